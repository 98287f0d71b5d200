"""The files of a table are held as columns, and as objects only where a job looks at them."""

from __future__ import annotations

import pickle
from dataclasses import replace
from datetime import date

import pyarrow as pa
import pytest
from peeklock_pipeline.files import DataFile, write
from peeklock_pipeline.lake import Lake
from peeklock_pipeline.logged_files import (
    PORTION_FILES,
    DamagedFile,
    LoggedFiles,
    damaged_files,
    files_of,
    paths_of,
    require_files,
)
from peeklock_pipeline.refusals import BadLake
from peeklock_pipeline.table_specs import MISSED

MANY = 2 * PORTION_FILES + 1


@pytest.fixture(scope="module")
def many() -> LoggedFiles:
    """Files of two days by turns, in the order of their paths."""
    days = [date(2026, 9, 21 + number % 2) for number in range(MANY)]
    paths = [f"{number:06}.parquet" for number in range(MANY)]
    return LoggedFiles(pa.table({"path": paths, "rows": [1] * MANY, "size": [*range(MANY)], "partition.date": days}))


def test_the_files_of_a_table_are_in_the_order_of_their_paths(lake: Lake) -> None:
    rows = pa.table([pa.array([1]), pa.array([3])], schema=MISSED.schema)
    for _ in range(5):
        lake.append(MISSED, list(write(rows, lake.directory(MISSED), MISSED)))
    table = lake.table(MISSED)
    assert table is not None
    files = files_of(table)
    assert (len(files), files.rows) == (5, 5)
    assert [f"{lake.directory(MISSED)}/{file.path}" for file in files] == sorted(table.file_uris())
    assert files.paths == [file.path for file in files]
    assert [file.path for file in files.without(files.paths[1:4])] == [files.paths[0], files.paths[4]]
    assert paths_of(table, {files[0].path, "gone.parquet"}) == {files[0].path}
    assert paths_of(table, set()) == set()


def test_every_file_is_found_by_its_place_and_in_its_turn(many: LoggedFiles) -> None:
    assert many[0] == DataFile("000000.parquet", {"date": "2026-09-21"}, 1, 0)
    assert many[-1] == many[MANY - 1] == DataFile(f"{MANY - 1:06}.parquet", {"date": "2026-09-21"}, 1, MANY - 1)
    assert [file.size for file in many] == [*range(MANY)]
    assert [file.size for file in many[PORTION_FILES - 1 : PORTION_FILES + 2]] == [9_999, 10_000, 10_001]
    assert many[MANY:] == []
    with pytest.raises(IndexError):
        many[MANY]


def test_files_are_ordered_by_their_partition_and_then_by_their_path(many: LoggedFiles) -> None:
    backwards = LoggedFiles(pa.Table.from_pylist([columns_of(file) for file in reversed(many)]))
    ordered = backwards.by_partition(["date"])
    assert [file.size for file in ordered] == [*range(0, MANY, 2), *range(1, MANY, 2)]


def columns_of(file: DataFile) -> dict[str, object]:
    return {"path": file.path, "rows": file.rows, "size": file.size, "partition.date": file.partition["date"]}


def test_a_log_without_the_rows_of_a_file_has_no_sum() -> None:
    files = LoggedFiles(pa.table({"path": ["a", "b"], "rows": [1, None], "size": [1, 1]}))
    assert (files.rows, [file.rows for file in files]) == (None, [1, 0])
    assert files.without(["b"]).rows == 1


def test_a_list_of_many_files_is_small_for_tasks(many: LoggedFiles) -> None:
    sent = pickle.dumps(many)
    assert len(sent) < len(pickle.dumps([*many])) * 0.8
    assert [*pickle.loads(sent)] == [*many]


def test_missing_files_are_found_in_every_portion(many: LoggedFiles, lake: Lake) -> None:
    assert damaged_files(many, lake.root) == [DamagedFile(file) for file in many]


def test_a_file_with_other_bytes_or_other_rows_than_logged_is_damaged(lake: Lake) -> None:
    rows = pa.table([pa.array([1]), pa.array([3])], schema=MISSED.schema)
    place = lake.directory(MISSED)
    [file] = write(rows, place, MISSED)
    assert damaged_files([file, replace(file, rows=0)], place) == []  # a log may lack the number of rows
    others = [replace(file, size=file.size - 1), replace(file, rows=2)]
    found = [DamagedFile(other, 1, file.size) for other in others]
    assert damaged_files([others[0], file, others[1]], place) == found
    assert str(found[0]) == (
        f"was replaced: it has 1 message in {file.size} bytes, "
        f"and the log of its table has 1 message in {file.size - 1} bytes"
    )
    with pytest.raises(BadLake, match=rf"{file.path} was replaced: .* names what is lost"):
        require_files(others, place)
