"""A lake or a database that was moved, copied or restored: jobs go on, or refuse with a sentence and change nothing."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from peeklock_pipeline.lake import Lake
from pyspark.sql import SparkSession

from tests.pipeline.archive import NOON, Archive, archived

RunCommand = Callable[..., tuple[int, str, str]]
RunRefused = Callable[..., str]

HOUR = 3_600_000_000


def job(name: str, archive: Archive, lake: Path) -> tuple[object, ...]:
    """The words of a job that reads the database."""
    return name, "--database-url", archive.url, "--lake", lake


def sealed(archive: Archive, *batches: int, at: int = NOON) -> None:
    """Seal batches with two messages each, whose ids name the moment."""
    for number in batches:
        rows = [archived(number * 10 + n, message_id=f"{number}-{n}-{at}") for n in range(2)]
        archive.seal(number, rows, sealed_at=at)


def copied(archive: Archive, target: Path) -> Archive:
    """A copy of an archive's database, as a backup makes it."""
    with (
        closing(sqlite3.connect(archive.url.removeprefix("sqlite:///"))) as live,
        closing(sqlite3.connect(target)) as copy,
    ):
        live.backup(copy)
    return Archive(f"sqlite:///{target}")


def ids(spark: SparkSession, lake: Path) -> list[str]:
    """The message ids of a lake, with repetitions."""
    return sorted(row[0] for row in Lake(lake).read(spark).select("message_id").collect())


def expected(*batches: int, at: int = NOON) -> list[str]:
    """The ids of these batches."""
    return sorted(f"{number}-{n}-{at}" for number in batches for n in range(2))


def test_a_lake_that_moved_goes_on_and_its_old_place_would_be_a_new_lake(
    run_command: RunCommand, spark: SparkSession, small_archive: Archive, tmp_path: Path
) -> None:
    sealed(small_archive, 1, 2)
    assert run_command(*job("export", small_archive, tmp_path / "here"))[0] == 0
    shutil.move(tmp_path / "here", tmp_path / "there")
    sealed(small_archive, 3)
    export = job("export", small_archive, tmp_path / "there")
    assert run_command(*export)[:2] == (0, f"2 messages in 1 batch went into {tmp_path}/there.\n")
    assert run_command(*job("audit", small_archive, tmp_path / "there"))[0] == 0
    assert ids(spark, tmp_path / "there") == expected(1, 2, 3)
    assert "is not a lake" in run_command(*job("audit", small_archive, tmp_path / "here"))[2]
    small_archive.remove(1, "expired")
    code, out, _ = run_command(*job("export", small_archive, tmp_path / "here"))
    assert (code, out.partition(". ")[2]) == (
        0, "This is a new lake, which begins with batch 2. 2 more were removed by their retention before this export "
        "came for them.\n",
    )  # fmt: skip


def test_each_job_refuses_a_restored_database_without_the_last_batch(
    run_command: RunCommand, run_refused: RunRefused, spark: SparkSession, small_archive: Archive, tmp_path: Path
) -> None:
    sealed(small_archive, 1)
    restored = copied(small_archive, tmp_path / "backup.db")
    sealed(small_archive, 2)
    lake = tmp_path / "lake"
    run_command(*job("export", small_archive, lake))
    for later in ((2, 3), ()):
        for name in ("export", "snapshot", "audit"):
            assert "was restored from an older backup: it has no batch 2 like the lake's last one" in run_refused(
                *job(name, restored, lake)
            )
        sealed(restored, *later, at=NOON + HOUR)
    assert ids(spark, lake) == expected(1, 2)
    assert run_command(*job("export", small_archive, lake))[:2] == (0, f"0 messages in 0 batches went into {lake}.\n")
    code, out, _ = run_command(*job("export", restored, tmp_path / "second"))
    assert (code, out.partition(" went")[0]) == (0, "6 messages in 3 batches")
    assert run_command(*job("audit", restored, tmp_path / "second"))[0] == 0


def test_a_restored_or_moved_database_with_the_last_batch_goes_on(
    run_command: RunCommand, spark: SparkSession, small_archive: Archive, tmp_path: Path
) -> None:
    sealed(small_archive, 1, 2)
    lake = tmp_path / "lake"
    run_command(*job("export", small_archive, lake))
    sealed(small_archive, 3)
    restored = copied(small_archive, tmp_path / "newer.db")
    sealed(small_archive, 4)
    assert run_command(*job("export", restored, lake))[1] == f"2 messages in 1 batch went into {lake}.\n"
    sealed(restored, 4, at=NOON + HOUR)
    assert run_command(*job("export", restored, lake))[1] == f"2 messages in 1 batch went into {lake}.\n"
    assert run_command(*job("audit", restored, lake))[0] == 0
    assert ids(spark, lake) == sorted([*expected(1, 2, 3), *expected(4, at=NOON + HOUR)])


def test_a_copy_of_a_database_is_noticed_when_the_original_is_exported_again(
    run_command: RunCommand, run_refused: RunRefused, small_archive: Archive, tmp_path: Path
) -> None:
    sealed(small_archive, 1)
    lake = tmp_path / "lake"
    run_command(*job("export", small_archive, lake))
    beside = copied(small_archive, tmp_path / "copy.db")
    sealed(beside, 2, at=NOON + HOUR)
    sealed(small_archive, 2)
    assert run_command(*job("export", beside, lake))[0] == 0
    assert "holds what was exported from another database" in run_refused(*job("export", small_archive, lake))


def test_a_lake_restored_from_a_backup_gets_what_the_archive_still_has(
    run_command: RunCommand, spark: SparkSession, small_archive: Archive, tmp_path: Path
) -> None:
    sealed(small_archive, 1)
    lake = tmp_path / "lake"
    run_command(*job("export", small_archive, lake))
    shutil.copytree(lake, tmp_path / "backup")
    sealed(small_archive, 2, 3)
    run_command(*job("export", small_archive, lake))
    small_archive.remove(2, "trimmed")
    shutil.rmtree(lake)
    shutil.move(tmp_path / "backup", lake)
    code, out, _ = run_command(*job("export", small_archive, lake))
    assert (code, out) == (
        0, f"2 messages in 2 batches went into {lake}. 2 more were removed by their retention before this export came "
        "for them.\n",
    )  # fmt: skip
    assert ids(spark, lake) == expected(1, 3)
    assert Lake(lake).missed() == {2: 2}


def test_a_copied_lake_counts_for_itself(
    run_command: RunCommand, spark: SparkSession, small_archive: Archive, tmp_path: Path
) -> None:
    sealed(small_archive, 1)
    run_command(*job("export", small_archive, tmp_path / "lake"))
    shutil.copytree(tmp_path / "lake", tmp_path / "copy")
    sealed(small_archive, 2)
    for lake in (tmp_path / "copy", tmp_path / "lake"):
        assert run_command(*job("export", small_archive, lake))[0] == 0
        assert ids(spark, lake) == expected(1, 2)
