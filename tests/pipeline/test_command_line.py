"""What people type: each command says what it did, and refuses with a sentence and exit status 2 what it cannot."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable
from peeklock_pipeline import cli
from peeklock_pipeline.columns import ARCHIVE
from peeklock_pipeline.database import Database
from peeklock_pipeline.files import write
from peeklock_pipeline.lake import FORMAT, MARK, Lake, Mark
from pyspark.sql import SparkSession

from tests.pipeline.archive import NOON, Archive, archived, live
from tests.servers import free_port

Type = Callable[..., tuple[int, str, str]]
Refused = Callable[..., str]


@pytest.fixture
def typed(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Type:
    """Type `peeklock-pipeline ...`: exit status, what it prints, what it says on standard error."""

    def run(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["peeklock-pipeline", *map(str, words)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as end:
            cli.main()
        said = capfd.readouterr()
        return end.value.code if isinstance(end.value.code, int) else 0, said.out, said.err

    return run


@pytest.fixture
def refused(typed: Type) -> Refused:
    """What a command that must be refused says: one line, and nothing on standard output."""

    def run(*words: object) -> str:
        code, out, err = typed(*words)
        assert (code, out) == (2, ""), err
        assert len(err.splitlines()) == 1
        return err

    return run


def test_a_day_with_the_pipeline(typed: Type, small: Archive, lake: Lake) -> None:
    small.seal(1, [archived(number) for number in range(1, 11)])
    small.hold(1, "orders", [live(11)])
    both = ("--database-url", small.url, "--lake", lake.root, "--master", "local[2,4]")
    assert typed("export", *both)[:2] == (0, f"10 messages in 1 batches went into {lake.root}.\n")
    code, out, _ = typed("export", *both, "--json")
    assert (code, json.loads(out)["messages"]) == (0, 0)
    code, out, _ = typed("snapshot", *both)
    assert (code, out.startswith("1 messages that were in queues at ")) == (0, True)
    code, out, _ = typed("audit", *both)
    assert (code, out.partition(":")[0]) == (0, "Nothing is lost, nothing is there twice")
    assert "11 accepted = 1 live + 0 dead-lettered + 10 completed" in out
    assert typed("compact", "--lake", lake.root)[:2] == (
        0,
        "1 files before, 1 now; `vacuum` removes the old ones later.\n",
    )
    assert typed("vacuum", "--lake", lake.root)[1] == f"0 files of 0 bytes were removed from {lake.root}.\n"
    code, out, _ = typed("retention", "--lake", lake.root, "--older-than", "0d", "--queue", "billing", "--json")
    assert (code, json.loads(out)["messages"]) == (0, 0)


def test_an_audit_that_finds_something_names_it_and_ends_with_1(typed: Type, small: Archive, lake: Lake) -> None:
    small.seal(1, [archived(1), archived(2)])
    both = ("--database-url", small.url, "--lake", lake.root)
    typed("export", *both)
    again = Database.at(small.url).read(1, 1).slice(0, 1)
    lake.append(ARCHIVE, list(write(again, lake.directory(ARCHIVE), ARCHIVE)))
    code, out, _ = typed("audit", *both)
    assert (code, out.splitlines()[:2]) == (1, [
        "Message id-1 (sequence number 1, queue orders) is there 2 times: completed.",
        "Batch 1 has 3 messages in the lake, and was sealed with 2.",
    ])  # fmt: skip
    code, out, _ = typed("audit", *both, "--json")
    assert (code, json.loads(out)["findings"][0]["message_id"]) == (1, "id-1")


@pytest.mark.parametrize("command", ["export", "snapshot", "audit"])
@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("nonsense", "A database URL looks like"),
        ("postgresql://host", "names no database"),
        ("sqlite:////nowhere/at/all.db", "The database /nowhere/at/all.db cannot be read"),
        (f"postgresql://anna:geheim@127.0.0.1:{free_port()}/peeklock", "cannot be read"),
        (f"mysql://anna:geheim@127.0.0.1:{free_port()}/peeklock", "cannot be read"),
    ],
)
def test_a_database_that_cannot_be_read(
    refused: Refused, small: Archive, lake: Lake, spark: SparkSession, command: str, url: str, sentence: str
) -> None:
    begun(small, lake)
    said = refused(command, "--database-url", url, "--lake", lake.root)
    assert sentence in said
    assert "geheim" not in said
    assert len(lake.exported().file_uris()) == 1


def test_a_database_without_an_archive(refused: Refused, lake: Lake, tmp_path: Path) -> None:
    (tmp_path / "empty.db").touch()
    said = refused("export", "--database-url", f"sqlite:///{tmp_path}/empty.db", "--lake", lake.root)
    assert "has no sealed archive" in said
    assert not lake.root.exists()


@pytest.mark.parametrize("command", ["audit", "compact", "vacuum", "retention", "trim"])
def test_a_lake_that_is_not_there(refused: Refused, small: Archive, tmp_path: Path, command: str) -> None:
    more = {"audit": ["--database-url", small.url], "retention": ["--older-than", "1d"]}.get(command, [])
    assert "is no lake" in refused(command, "--lake", tmp_path / "none", *more)
    assert not (tmp_path / "none").exists()


def test_what_is_no_lake_is_left_alone(refused: Refused, small: Archive, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "home").mkdir()
    (tmp_path / "home/letter.txt").touch()
    export = ("export", "--database-url", small.url, "--lake")
    assert "is a file; a lake is a directory" in refused(*export, tmp_path / "file")
    assert "is no lake and has other files in it" in refused(*export, tmp_path / "home")
    assert [file.name for file in (tmp_path / "home").iterdir()] == ["letter.txt"]


def test_a_lake_of_a_newer_version(refused: Refused, small: Archive, lake: Lake) -> None:
    begun(small, lake)
    lake.exported().alter.set_table_description(f"{MARK}{FORMAT + 1}")
    version = DeltaTable(str(lake.directory(ARCHIVE))).version()
    said = refused("export", "--database-url", small.url, "--lake", lake.root)
    assert f"was written by a newer peeklock-pipeline (format {FORMAT + 1}; this one knows {FORMAT})" in said
    assert DeltaTable(str(lake.directory(ARCHIVE))).version() == version


def test_a_table_of_somebody_else_and_a_broken_one(refused: Refused, small: Archive, lake: Lake) -> None:
    begun(small, lake)
    export = ("export", "--database-url", small.url, "--lake", lake.root)
    lake.exported().alter.set_table_description("Grandmother's recipes")
    assert "none that peeklock-pipeline has written" in refused(*export)
    for commit in (lake.directory(ARCHIVE) / "_delta_log").iterdir():
        commit.write_text("{")
    assert "cannot be read as a Delta table" in refused(*export)


def test_what_a_crash_left_half_written_is_no_hindrance(typed: Type, small: Archive, lake: Lake) -> None:
    small.seal(1, [archived(number) for number in range(1, 11)])
    rows = Database.at(small.url).read(1, 1).slice(0, 5)
    [left] = write(rows, lake.directory(ARCHIVE), ARCHIVE)  # and no commit
    code, out, _ = typed("export", "--database-url", small.url, "--lake", lake.root, "--json")
    assert (code, json.loads(out)["messages"]) == (0, 10)
    assert not any(uri.endswith(left.path) for uri in lake.exported().file_uris())


def test_a_server_that_is_not_there_or_is_none(refused: Refused, small: Archive, lake: Lake) -> None:
    begun(small, lake)
    trim = ("trim", "--lake", lake.root, "--url")
    assert "No answer from" in refused(*trim, f"http://127.0.0.1:{free_port()}")
    assert "http://127.0.0.1" not in refused(*trim, "nonsense")


def test_an_age_that_is_none(refused: Refused, small: Archive, lake: Lake) -> None:
    begun(small, lake)
    assert "An age is a number and a unit" in refused("retention", "--lake", lake.root, "--older-than", "soon")
    assert "may belong to an export that runs" in refused("vacuum", "--lake", lake.root, "--older-than", "1s")


def begun(archive: Archive, lake: Lake) -> None:
    """A lake with one message in it."""
    archive.seal(1, [archived(1)])
    files = list(write(Database.at(archive.url).read(1, 1), lake.directory(ARCHIVE), ARCHIVE))
    assert lake.add_batches(files, Mark(), Mark(1, NOON + 1))
