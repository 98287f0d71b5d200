"""The lake: a directory of Delta tables that any Delta reader understands.

Parquet files are written first and belong to nothing; one commit then makes them part of a table, all or none. The
commit of an export carries the last batch in it, so that whoever repeats an export knows where it ended, and in which
database. Of two that commit the same batches one succeeds.
"""

import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, create_table_with_add_actions
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from peeklock_pipeline.database import AcceptedCount
from peeklock_pipeline.files import DataFile, files_of, missing_files, write
from peeklock_pipeline.first_batch import FIRST_BATCH_KEY, LAST_BATCH_KEY, FirstBatch, first_batch_of
from peeklock_pipeline.plurals import messages
from peeklock_pipeline.refusals import BadLake
from peeklock_pipeline.table_specs import ARCHIVE, MESSAGES, MISSED, OPENING, REMOVED, TableSpec

FORMAT = 2
"""How this version writes a lake: 2 has digests of contents. A lake of a higher number is refused.

A table of a lower number gets the columns that it lacks with the first commit to it, and is null there until then.
"""

DESCRIPTION_PREFIX = "Written by peeklock-pipeline, format "
"""The description of every table of a lake, with the format behind it."""

SEALED_AT_KEY = "peeklock-sealed"
"""The one whose version is the microsecond in which that batch was sealed, which no other database shares."""

REMOVAL_KEY_PREFIX = "peeklock-removal-"
"""Behind it the name of a removal by the lake's retention: a transaction of its own, which says that it was done."""

SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
"""How the URL of an object store begins, also after a path has joined its slashes."""

ATTEMPTS = 5
"""How often an export commits anew where a compaction or the like came between."""


@dataclass(frozen=True, slots=True)
class ExportPosition:
    """Where the last export ended: the number of a batch, 0 for none, and the microsecond in which it was sealed."""

    number: int = 0
    sealed_at: int = 0


class Lake:
    """A lake at a directory, made by the first commit. Refuses with `BadLake` what is none of ours."""

    def __init__(self, root: str | Path) -> None:
        if SCHEME.match(str(root)):
            raise BadLake(f"{root} is a URL, and a lake is a local or shared directory: name its path.")
        self.root = Path(root).absolute()
        if self.root.exists() and not self.root.is_dir():
            raise BadLake(f"{self.root} is a file; a lake is a directory.")
        begun = any(self.directory(spec).is_dir() for spec in (ARCHIVE, MESSAGES))  # be it by a crash
        if self.root.exists() and not begun and any(self.root.iterdir()):
            raise BadLake(f"{self.root} is no lake and has other files in it: name a new directory, or an empty one.")

    def directory(self, spec: TableSpec) -> Path:
        """Where a table lies."""
        return self.root / spec.name

    def table(self, spec: TableSpec) -> DeltaTable | None:
        """A table as it is now; None before its first commit."""
        return _open_table(self.directory(spec))

    def tables(self) -> list[DeltaTable]:
        """Every table of the lake. Refuses with `BadLake` where there is none."""
        found = [_open_table(log.parent) for log in sorted(self.root.glob("*/_delta_log"))]
        if not found:
            raise BadLake(f"{self.root} is no lake: there is no table in it.")
        return [table for table in found if table is not None]

    def archive_table(self) -> DeltaTable:
        """The archive's table. Refuses with `BadLake` where nothing was ever exported."""
        if (table := self.table(ARCHIVE)) is None:
            raise BadLake(f"{self.root} is no lake yet: nothing was exported to it.")
        return table

    def export_position(self) -> ExportPosition:
        """Where the last export ended."""
        return export_position_of(self.table(ARCHIVE))

    def last_batch(self) -> int:
        """The number of the last batch that was exported; 0 for none."""
        return self.export_position().number

    def first_batch(self) -> FirstBatch | None:
        """The first batch of the lake; None before its first commit."""
        table = self.table(ARCHIVE)
        return None if table is None else first_batch_of(table)

    def add_batches(self, files: Sequence[DataFile], after: ExportPosition, last: ExportPosition, begun: int) -> bool:
        """Make files the messages of the batches behind `after` up to `last`; False where another export was faster.

        `begun` is the number of the lake's first batch, which the commit notes. Atomic: a crash before it leaves files
        that belong to nothing, and which `vacuum` removes.
        """
        ended = (
            Transaction(LAST_BATCH_KEY, last.number),
            Transaction(SEALED_AT_KEY, last.sealed_at),
            Transaction(FIRST_BATCH_KEY, begun),
        )
        for _ in range(ATTEMPTS):
            table = self.table(ARCHIVE)
            if export_position_of(table) != after:
                return False
            if self._add(ARCHIVE, table, files, "append", *ended):
                return True
        return False

    def transaction_version(self, spec: TableSpec, app_id: str) -> int:
        """How many steps of a course a table has taken in."""
        return _transaction_version(self.table(spec), app_id)

    def append_at_version(self, spec: TableSpec, files: Sequence[DataFile], app_id: str, after: int) -> bool:
        """Make files part of a table as the next step of a course; False where somebody else has taken that step."""
        for _ in range(ATTEMPTS):
            table = self.table(spec)
            if _transaction_version(table, app_id) != after:
                return False
            if self._add(spec, table, files, "append", Transaction(app_id, after + 1)):
                return True
        return False

    def append(self, spec: TableSpec, files: Sequence[DataFile]) -> None:
        """Make files part of a table. Refuses with `BadLake` where others went on changing it meanwhile."""
        if not any(self._add(spec, self.table(spec), files, "append") for _ in range(ATTEMPTS)):
            raise BadLake(f"{self.directory(spec)} was changed by somebody else meanwhile; run the job again.")

    def replace(self, spec: TableSpec, files: Sequence[DataFile]) -> None:
        """Make files the whole of a table. Refuses with `BadLake` where somebody else changed it meanwhile."""
        if not self._add(spec, self.table(spec), files, "overwrite"):
            raise BadLake(f"{self.directory(spec)} was changed by somebody else meanwhile; run the job again.")

    def read(self, spark: SparkSession, spec: TableSpec = ARCHIVE) -> DataFrame:
        """A table as a DataFrame; empty before its first commit."""
        return self.read_version(spark, self.table(spec), spec)

    def read_version(self, spark: SparkSession, table: DeltaTable | None, spec: TableSpec = ARCHIVE) -> DataFrame:
        """A table as a DataFrame, as it was when it was opened. Refuses with `BadLake` where a file of it is missing."""
        files = files_of(table) if table else []
        if gone := missing_files(files, self.directory(spec)):
            raise BadLake(
                f"{self.directory(spec) / gone[0].path} is missing or cannot be read, and holds {messages(gone[0].rows)} "
                "of the lake; `peeklock-pipeline audit` names what is lost."
            )
        return self.read_files(spark, files, spec)

    def read_files(self, spark: SparkSession, files: Sequence[DataFile], spec: TableSpec = ARCHIVE) -> DataFrame:
        """The rows of these files of a table."""
        columns = from_arrow_schema(spec.schema)
        if not files:
            return spark.createDataFrame([], columns)
        places = [str(self.directory(spec) / file.path) for file in files]
        found = spark.read.schema(columns).option("basePath", str(self.directory(spec))).parquet(*places)
        return found.select(spec.schema.names)

    def remove(self, table: DeltaTable, predicate: str, removal: str) -> None:
        """Remove the files of whole partitions from the archive, as it was opened, under the name of a removal.

        Refuses with `BadLake` where what it names was changed meanwhile.
        """
        properties = CommitProperties(app_transactions=[Transaction(REMOVAL_KEY_PREFIX + removal, 1)])
        try:
            table.delete(predicate, commit_properties=properties)
        except CommitFailedError as error:
            raise BadLake(f"{self.root} was changed by somebody else meanwhile; run the job again.") from error

    def record_missed(self, batches: Mapping[int, int]) -> None:
        """Note batches that no export can bring any more, by number, with how many messages each had.

        A batch that is removed stays removed, so the note is true from the moment it is written, and may be repeated.
        """
        if batches:
            rows = pa.table([pa.array(batches.keys()), pa.array(batches.values())], schema=MISSED.schema)
            self.append(MISSED, list(write(rows, self.directory(MISSED), MISSED)))

    def missed(self) -> dict[int, int]:
        """The batches that were removed from the archive before an export came for them, and their messages."""
        return {row["export_batch"]: row["messages"] for row in self._all(MISSED) or ()}

    def record_opening(self, gone: Sequence[AcceptedCount]) -> None:
        """Note what was gone, or exported without digests, before this lake counted; once for all.

        Refuses with `BadLake`. Before the first export has committed, its next attempt notes it again.
        """
        rows = {"queue": [one.queue for one in gone], "date": [one.day for one in gone]}
        missing = [one.accepted - one.held for one in gone]
        table = pa.table({**rows, "messages": missing}, schema=OPENING.schema)
        self.replace(OPENING, list(write(table, self.directory(OPENING), OPENING)))

    def opening(self) -> dict[tuple[str, date], int] | None:
        """What was gone before this lake counted; None where an export of this version has still to note it."""
        rows = self._all(OPENING)
        return None if rows is None else {(row["queue"], row["date"]): row["messages"] for row in rows}

    def _all(self, spec: TableSpec) -> list[dict[str, Any]] | None:
        """Every row of a small table; None before its first commit."""
        table = self.table(spec)
        return None if table is None else pa.table(table.to_pyarrow_dataset().to_table()).to_pylist()

    def removed(self, spark: SparkSession, table: DeltaTable) -> DataFrame:
        """What the lake's retention has removed from the archive, as it was opened.

        Counts whose removal was cut off before its commit do not count.
        """
        counts = self.read(spark, REMOVED)
        if self.table(REMOVED) is None:
            return counts
        names = [row[0] for row in counts.select("removal").distinct().collect()]
        done = [name for name in names if table.transaction_version(REMOVAL_KEY_PREFIX + name) is not None]
        return counts.where(counts["removal"].isin(done))

    def _add(
        self,
        spec: TableSpec,
        table: DeltaTable | None,
        files: Sequence[DataFile],
        mode: Literal["append", "overwrite"],
        *transactions: Transaction,
    ) -> bool:
        self.directory(spec).mkdir(parents=True, exist_ok=True)
        if table is not None and _format(table) < FORMAT:
            table = self._upgraded(spec, table)
        actions = [_action(file) for file in files]
        schema = Schema.from_arrow(spec.schema)
        properties = CommitProperties(app_transactions=list(transactions), max_commit_retries=0)
        try:
            if table is None:
                create_table_with_add_actions(
                    str(self.directory(spec)), schema, actions, "error", list(spec.partitions),
                    description=f"{DESCRIPTION_PREFIX}{FORMAT}", commit_properties=properties,
                )  # fmt: skip
            else:
                table.create_write_transaction(
                    [*actions], mode, schema, list(spec.partitions), commit_properties=properties
                )
        except CommitFailedError:
            return False
        return True

    def _upgraded(self, spec: TableSpec, table: DeltaTable) -> DeltaTable:
        """A table of an older format with the columns of this one. Cut off between its commits, it is done again."""
        present = {field.name for field in table.schema().fields}
        missing_fields = [field for field in Schema.from_arrow(spec.schema).fields if field.name not in present]
        if missing_fields:
            table.alter.add_columns(missing_fields)
        table.alter.set_table_description(f"{DESCRIPTION_PREFIX}{FORMAT}")
        return self.table(spec) or table


def _open_table(directory: Path) -> DeltaTable | None:
    try:
        table = DeltaTable(str(directory))
    except TableNotFoundError:
        return None
    except DeltaError as error:
        raise BadLake(f"{directory} cannot be read as a Delta table: {_first_line(error)}") from error
    mark, _, written = (table.metadata().description or "").rpartition(" ")
    if mark != DESCRIPTION_PREFIX.strip() or not written.isdecimal():
        raise BadLake(f"{directory} is a Delta table, but none that peeklock-pipeline has written.")
    if _format(table) > FORMAT:
        raise BadLake(
            f"{directory} was written by a newer peeklock-pipeline (format {written}; this one knows {FORMAT}): "
            "install that version, or choose another directory."
        )
    return table


def _format(table: DeltaTable) -> int:
    return int((table.metadata().description or "").rpartition(" ")[2])


def export_position_of(table: DeltaTable | None) -> ExportPosition:
    """Where the last export ended that an archive's table knows of."""
    if table is None:
        return ExportPosition()
    return ExportPosition(table.transaction_version(LAST_BATCH_KEY) or 0, table.transaction_version(SEALED_AT_KEY) or 0)


def _transaction_version(table: DeltaTable | None, app_id: str) -> int:
    return (table.transaction_version(app_id) or 0) if table else 0


def _action(file: DataFile) -> AddAction:
    written, statistics = int(time.time() * 1000), json.dumps({"numRecords": file.rows})
    return AddAction(file.path, file.size, file.partition, written, True, statistics)


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]
