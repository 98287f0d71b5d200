"""The reference of the pipeline's benchmark reads the archive's own columns, of which all but three are the lake's."""

import asyncpg
from peeklock_pipeline.table_specs import ARCHIVE

from benchmarks.pipeline.exporting import SEALED_TABLE


async def test_the_reference_reads_every_column_that_an_export_reads_from_the_archive(postgres_url: str) -> None:
    connection = await asyncpg.connect(postgres_url)
    try:
        read = await connection.prepare(f"SELECT * FROM {SEALED_TABLE}")
        names = [column.name for column in read.get_attributes()]
    finally:
        await connection.close()
    assert names == [name for name in ARCHIVE.schema.names if name not in ("date", "history", "row_checksum")]
