"""Other readers of Delta tables find every row of a lake, by a filter of any column."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from peeklock_pipeline.files import write
from peeklock_pipeline.lake import Lake
from peeklock_pipeline.table_specs import ARCHIVE, MISSED, TableSpec
from peeklock_pipeline.tables import DESCRIPTION_PREFIX

from tests.pipeline.histories import ended, fill

AS_BEFORE = replace(ARCHIVE, partitions=("queue", "date"), statistics=())


def found(table: DeltaTable, column: str, value: object) -> list[int]:
    """The numbers of the messages with this value, read through pyarrow."""
    rows = table.to_pyarrow_dataset().to_table(filter=ds.field(column) == value)
    return sorted(pa.table(rows)["sequence_number"].to_pylist())


def file_of(lake: Lake, number: int, spec: TableSpec) -> None:
    rows = pa.Table.from_pylist([ended(number, 0, 1, 1, 2)], schema=ARCHIVE.schema)
    lake.append(spec, list(write(rows, lake.directory(ARCHIVE), spec)))


@pytest.mark.parametrize(("column", "value"), [("queue", "orders"), ("outcome", "completed"), ("group_id", "g")])
def test_a_filter_finds_rows_by_columns_with_and_without_statistics(lake: Lake, column: str, value: str) -> None:
    fill(lake, [ended(1, 0, 1, 1, 2, group_id="g"), ended(2, 0, 1, 1, 2, group_id="g", queue="orders")])
    fill(lake, [ended(3, 0, None, None, 2, queue="other", outcome="expired")])

    assert found(lake.archive_table(), column, value) == [1, 2]


def test_a_filter_finds_rows_of_a_lake_of_an_earlier_format(lake: Lake) -> None:
    file_of(lake, 1, AS_BEFORE)
    table = lake.archive_table()
    table.alter.set_table_description(f"{DESCRIPTION_PREFIX}3")
    file_of(lake, 2, lake.layout(ARCHIVE))

    assert found(lake.archive_table(), "outcome", "completed") == [1, 2]
    assert found(lake.archive_table(), "queue", "orders") == [1, 2]


def test_a_filter_finds_rows_of_a_table_without_statistics(lake: Lake) -> None:
    lake.record_missed({5: 3, 7: 1})

    table = lake.table(MISSED)
    assert table is not None
    assert pa.table(table.to_pyarrow_dataset().to_table(filter=ds.field("export_batch") > 5)).to_pylist() == [
        {"export_batch": 7, "messages": 1}
    ]
