"""Files of a lake are read in portions that fit into memory."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from peeklock_pipeline.files import ROW_GROUP_BYTES, read, write
from peeklock_pipeline.storage import Storage
from peeklock_pipeline.table_specs import TableSpec

BODIES = TableSpec("bodies", pa.schema([pa.field("number", pa.int64()), pa.field("body", pa.binary())]))


def test_a_file_of_large_rows_is_read_by_row_group(tmp_path: Path) -> None:
    rows = pa.table([range(100), [bytes(1 << 20)] * 100], schema=BODIES.schema)
    [file] = write(rows, Storage.at(tmp_path), BODIES)
    batches = list(read(file, Storage.at(tmp_path), BODIES.schema))
    assert [number for batch in batches for number in batch["number"].to_pylist()] == list(range(100))
    assert max(batch.nbytes for batch in batches) <= ROW_GROUP_BYTES
