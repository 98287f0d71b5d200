"""A lake, an archive and queues into which a test plants faults, each in rows of its own.

A fault is `delete`, `duplicate`, `phantom` (a further row), `change COLUMN` or `swap COLUMN`. Columns come from the lake's
schema and from the server's tables, so a new column has its faults as soon as it exists.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from peeklock_pipeline.database import Database
from peeklock_pipeline.files import write
from peeklock_pipeline.jobs.audit import FROM_SCRATCH, AuditOptions, AuditResult, audit
from peeklock_pipeline.jobs.export import export
from peeklock_pipeline.jobs.findings import Finding
from peeklock_pipeline.lake import Lake
from peeklock_pipeline.table_specs import ARCHIVE
from peeklock_pipeline.tables import Change, commit
from pyspark.sql import SparkSession

from app.store.tables import ArchiveRow, MessageRow
from tests.faults.database_access import execute
from tests.pipeline.archive import DAY, NOON, Archive, archived, live

Row = dict[str, Any]
Columns = Sequence[str]

LAKE: Columns = ARCHIVE.schema.names
TABLES: dict[str, Columns] = {
    "archive": tuple(ArchiveRow.model_fields),
    "message": tuple(MessageRow.model_fields),
}

PHANTOM_OFFSET = 500_000
"""How far the number of a planted row, or a changed number, is from its origin."""

WRONG_BATCH_OFFSET = 100_000
"""How far a changed number of a batch is from its own."""


def faults_of(columns: Columns) -> list[str]:
    """Every fault that rows of these columns can have."""
    swaps = [f"swap {name}" for name in columns if name != "export_batch"]
    return ["delete", "duplicate", "phantom", *(f"change {name}" for name in columns), *swaps]


def with_fault(fault: str, one: Row, other: Row) -> list[Row]:
    """These two rows with a fault in the first of them, or between them."""
    kind, _, column = fault.partition(" ")
    match kind:
        case "delete":
            return [other]
        case "duplicate":
            return [one, one, other]
        case "phantom":
            return [one, other, one | {"sequence_number": one["sequence_number"] + PHANTOM_OFFSET}]
        case "change":
            return [one | {column: changed(column, one[column])}, other]
        case _:
            return [one | {column: other[column]}, other | {column: one[column]}]


def changed(column: str, value: Any) -> Any:
    """Another value of the same type."""
    match value:
        case int() | None if column == "export_batch":
            return (value or 0) + WRONG_BATCH_OFFSET
        case int() if column == "sequence_number":
            return value + PHANTOM_OFFSET
        case int():
            return value + 7
        case datetime():
            return value + timedelta(microseconds=1)
        case date():
            return value + timedelta(days=1)
        case bytes():
            return bytes(255 - octet for octet in value)
        case list():
            return value[1:]
        case _:
            return f"{value}x"


def full_row(number: int, **facts: Any) -> Row:
    """An archived row with a value in every column, none of them that of its neighbour."""
    odd = number % 2
    return archived(
        number, queue=("orders", "billing")[odd], queue_id=1 + odd, outcome=("completed", "expired")[odd],
        settled_at=NOON + number + odd * DAY, remove_at=NOON + number + 30 * DAY, lock_token=number.to_bytes(16, "big"),
        receiver_id=f"receiver-{number}", priority=odd, enqueued_at=NOON - DAY - number, available_at=NOON - DAY + number,
        expires_at=NOON + 2 * DAY + number, first_delivered_at=NOON - number, last_delivered_at=NOON + number,
        delivery_count=number, failure_count=number + 1, last_failure=f"failure {number}", group_id=f"group-{number}",
        headers=json.dumps({"subject": number}), properties=json.dumps({"n": number}), body_kind=1 + odd,
        body=b"%d" % number, dead_letter_reason=f"reason {number}", dead_letter_description=f"text {number}", **facts,
    )  # fmt: skip


def waiting(number: int) -> Row:
    """The row of a message in a queue with a value in every column, none of them that of its neighbour."""
    odd = number % 2
    shared = {name: value for name, value in full_row(number).items() if name in TABLES["message"]}
    return live(number) | shared | {
        "state": 4 + odd, "home_state": 4 + odd, "locked_until": NOON + number, "lock_generation": number,
        "dead_lettered_at": NOON + number, "queue_id": 1,
    }  # fmt: skip


@dataclass(frozen=True, slots=True)
class PlantedFault:
    """A fault in one place, and by what an audit names it: a message, a batch, or a queue and day."""

    place: str
    fault: str
    first: int
    batch: int | None = None
    queue: str | None = None

    @property
    def pair(self) -> tuple[int, int]:
        """The numbers of the two rows that are this fault's own."""
        return self.first, self.first + 1

    def is_named(self, findings: Iterable[Finding]) -> bool:
        """Whether one of these names the fault."""
        return any(self._matches(finding) for finding in findings)

    def _matches(self, finding: Finding) -> bool:
        if self.queue is not None and finding.day is not None:
            return finding.queue == self.queue
        if finding.message_id is None:
            return self.batch is not None and finding.batch == self.batch
        return finding.sequence_number in {*self.pair, self.first + PHANTOM_OFFSET}


@dataclass(frozen=True, slots=True)
class AuditedSystem:
    """One database and its lake, with a log of all that was sent."""

    archive: Archive
    lake: Lake
    log: Path

    def copied(self, place: Path) -> AuditedSystem:
        """The same, to be spoiled."""
        place.mkdir()
        file = shutil.copy(self.archive.url.removeprefix("sqlite:///"), place / "peeklock.sqlite3")
        shutil.copytree(str(self.lake.root), place / "lake")
        return AuditedSystem(Archive(f"sqlite:///{file}"), Lake(place / "lake"), self.log)

    def run_audit(self, spark: SparkSession, log: Path | None, options: AuditOptions = FROM_SCRATCH) -> AuditResult:
        """What an audit finds here."""
        return audit(spark, Database.from_url(self.archive.url), self.lake, log, options=options)

    def damage_lake(self, change: Callable[[list[Row]], list[Row]]) -> None:
        """Put other rows into the lake, as no job does it."""
        table = self.lake.archive_table()
        found = pa.table(table.to_pyarrow_dataset().to_table()).select(LAKE).to_pylist()
        rows = pa.Table.from_pylist(change(found), schema=ARCHIVE.schema)
        files = list(write(rows, self.lake.directory(ARCHIVE), ARCHIVE))
        assert commit(self.lake.directory(ARCHIVE), table, ARCHIVE, Change(files, mode="overwrite"))

    def damage_table(self, table: str, planted_faults: Sequence[PlantedFault]) -> None:
        """Plant faults into rows of a table of the database."""
        own = ", ".join(str(number) for planted_fault in planted_faults for number in planted_fault.pair)
        values = ", ".join("s.export_batch" if name == "export_batch" else f"t.{name}" for name in TABLES[table])
        found = execute(
            self.archive.url,
            f"SELECT {values} FROM {table} t LEFT JOIN archive_seal s ON s.sequence_number = t.sequence_number "
            f"WHERE t.sequence_number IN ({own})",
        )
        rows = damaged_rows(planted_faults)([dict(zip(TABLES[table], row, strict=True)) for row in found])
        for damaged in (table, "archive_seal"):
            execute(self.archive.url, f"DELETE FROM {damaged} WHERE sequence_number IN ({own})")
        if table == "archive":
            self.archive.fill_archive(rows)
        else:
            self.archive.fill(table, rows)


def damaged_rows(planted_faults: Sequence[PlantedFault]) -> Callable[[list[Row]], list[Row]]:
    """Changes rows of the lake so that they have these faults."""

    def change(rows: list[Row]) -> list[Row]:
        by_number = {row["sequence_number"]: row for row in rows}
        spoiled = [
            row
            for planted_fault in planted_faults
            for row in with_fault(planted_fault.fault, *(by_number.pop(n) for n in planted_fault.pair))
        ]
        return [*by_number.values(), *spoiled]

    return change


def exported(spark: SparkSession, archive: Archive, lake: Lake) -> None:
    """Bring what is sealed into the lake."""
    export(spark, Database.from_url(archive.url), lake)
