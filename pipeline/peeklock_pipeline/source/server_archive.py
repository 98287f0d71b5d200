"""The archive in the server's database as an origin: an offset is the number of a sealed batch."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from peeklock_pipeline.conditions import Condition
from peeklock_pipeline.database import Batch, Database
from peeklock_pipeline.jobs.export import export_tasks
from peeklock_pipeline.plurals import messages
from peeklock_pipeline.refusals import BatchesLost
from peeklock_pipeline.source.origins import CHUNK_ROWS, Offset, Plan
from peeklock_pipeline.table_specs import HISTORY

NEEDS = {"date": "settled_at", "lock_token": "sequence_number", HISTORY: "sequence_number"}
"""Columns that are computed from another column."""


@dataclass(frozen=True)
class BatchRange(InputPartition):
    """Neighbouring batches that one task reads, and the number of their messages."""

    first: int
    last: int
    rows: int


@dataclass(frozen=True, slots=True)
class ServerArchive:
    """The sealed batches in a database."""

    database: Database

    def first_offset(self, from_batch: int | None) -> Offset:
        """Return the offset before a batch, or before the first one that is still in the archive."""
        first = from_batch or self.database.first_kept_batch()
        return {"batch": self.last_batch() if first is None else first - 1}

    def last_batch(self, after: int = 0, most: int | None = None) -> int:
        """Return the last sealed batch, of the first `most` after a number."""
        return self.database.last_batch(after, most)

    def plan(self, start: Offset, last: int | None, conditions: Sequence[Condition] = ()) -> Plan:
        """Return the ranges of batches that remain and in which a row may meet the conditions."""
        sealed = self.database.batches(start["batch"], last)
        remaining = [batch for batch in sealed if batch.removed_at is None and may_match(batch, conditions)]
        tasks = [BatchRange(task.first, task.last, task.rows) for task in export_tasks(remaining)]
        return Plan(tasks, _lost([batch for batch in sealed if batch.removed_at is not None]))

    def rows(
        self, task: InputPartition, schema: StructType, conditions: Sequence[Condition] = ()
    ) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a range that meet the conditions.

        Refuses with `BatchesLost`, after the last message, if batches of the range were removed since it was planned.
        """
        assert isinstance(task, BatchRange)
        names, exact, found = schema.fieldNames(), to_arrow_schema(schema, timezone="UTC"), 0
        needed = [*names, *(NEEDS[name] for name in names if name in NEEDS)]
        for piece in self.database.chunks(task.first, task.last, needed, conditions):
            found += piece.num_rows
            yield from piece.select(names).cast(exact).to_batches(max_chunksize=CHUNK_ROWS)
        if conditions:  # then the number of rows proves nothing
            found = sum(
                batch.rows for batch in self.database.batches(task.first - 1, task.last) if not batch.removed_at
            )
        if found != task.rows:
            raise BatchesLost(
                f"Batches {task.first} to {task.last} held {messages(task.rows)} and now hold {found}: some were "
                "removed by retention or a trim while they were being read. Read again, or read the lake."
            )


CLOCK_SKEW = 3_600_000_000
"""Microseconds by which the database's clock may have been set back between settlement and sealing."""


def may_match(batch: Batch, conditions: Sequence[Condition]) -> bool:
    """Return whether a row of this batch may meet all conditions: sending and settlement precede the sealing."""
    bounds = {
        "export_batch": (batch.number, batch.number),
        "settled_at": (0, batch.sealed_at + CLOCK_SKEW),
        "enqueued_at": (0, batch.sealed_at + CLOCK_SKEW),
    }
    return all(one.may_hold(*bounds[one.column]) for one in conditions if one.column in bounds)


def _lost(removed: Sequence[Batch]) -> str | None:
    if not removed:
        return None
    return (
        f"Batches {removed[0].number} to {removed[-1].number} with {messages(sum(batch.rows for batch in removed))} were "
        "removed from the archive before this stream had read them. Read them from the lake, and continue with the option "
        "failOnDataLoss=false; or keep the archive longer."
    )
