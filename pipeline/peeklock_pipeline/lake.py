"""The lake: a directory of Delta tables that any Delta reader understands.

Parquet files are written first and belong to no table. One commit then adds all of them to a table, or none. The commit
of an export records its last batch, so the next export knows where that one ended, and in which database. Of two
exports that commit the same batches, one succeeds.
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

FORMAT = 3
"""The format that this version writes: 2 has digests of contents, 3 histories. A lake of a higher format is refused.

The first commit to a table of a lower format adds the missing columns. They are null in older rows.
"""

DESCRIPTION_PREFIX = "Written by peeklock-pipeline, format "
"""The start of the description of every table of a lake; the format follows."""

SEALED_AT_KEY = "peeklock-sealed"
"""The application whose transaction version is the microsecond in which that batch was sealed. It identifies the
database."""

REMOVAL_KEY_PREFIX = "peeklock-removal-"
"""The prefix of applications named after a removal by the lake's retention. The transaction records that it was
done."""

SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
"""The start of the URL of an object store, also after `Path` has merged its slashes."""

ATTEMPTS = 5
"""Attempts of a commit when another one, such as a compaction, commits first."""


@dataclass(frozen=True, slots=True)
class ExportPosition:
    """The end of the last export: the number of a batch, 0 for none, and the microsecond in which it was sealed."""

    number: int = 0
    sealed_at: int = 0


class Lake:
    """A lake in a directory, created by the first commit. Refuses with `BadLake` a directory with other contents."""

    def __init__(self, root: str | Path) -> None:
        if scheme := SCHEME.match(str(root)):
            raise BadLake(f"A lake is a local or shared directory, not a URL ({scheme[0]}/...): name its path.")
        self.root = Path(root).absolute()
        if self.root.exists() and not self.root.is_dir():
            raise BadLake(f"{self.root} is a file; a lake is a directory.")
        begun = any(self.directory(spec).is_dir() for spec in (ARCHIVE, MESSAGES))  # also if a crash left no commit
        if self.root.exists() and not begun and any(self.root.iterdir()):
            raise BadLake(
                f"{self.root} is not a lake and has other files in it: choose a new directory, or an empty one."
            )

    def directory(self, spec: TableSpec) -> Path:
        """Return the directory of a table."""
        return self.root / spec.name

    def table(self, spec: TableSpec) -> DeltaTable | None:
        """Return a table at its latest version; None before its first commit."""
        return _open_table(self.directory(spec))

    def tables(self) -> list[DeltaTable]:
        """Return every table of the lake. Refuses with `BadLake` if there is none."""
        found = [_open_table(log.parent) for log in sorted(self.root.glob("*/_delta_log"))]
        if not found:
            raise BadLake(f"{self.root} is not a lake: it has no table.")
        return [table for table in found if table is not None]

    def archive_table(self) -> DeltaTable:
        """Return the archive's table. Refuses with `BadLake` if nothing was exported."""
        if (table := self.table(ARCHIVE)) is None:
            raise BadLake(f"{self.root} is not a lake yet: nothing was exported to it.")
        return table

    def export_position(self) -> ExportPosition:
        """Return the end of the last export."""
        return export_position_of(self.table(ARCHIVE))

    def last_batch(self) -> int:
        """Return the number of the last exported batch; 0 for none."""
        return self.export_position().number

    def first_batch(self) -> FirstBatch | None:
        """Return the first batch of the lake; None before its first commit."""
        table = self.table(ARCHIVE)
        return None if table is None else first_batch_of(table)

    def add_batches(self, files: Sequence[DataFile], after: ExportPosition, last: ExportPosition, begun: int) -> bool:
        """Commit files as the messages of the batches from `after` to `last`; return False if another export was first.

        `begun` is the number of the lake's first batch, which the commit records. The commit is atomic: a crash before
        it leaves files that belong to no table, which `vacuum` removes.
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
        """Return the version of an application's last transaction in a table; 0 for none."""
        return _transaction_version(self.table(spec), app_id)

    def append_at_version(self, spec: TableSpec, files: Sequence[DataFile], app_id: str, after: int) -> bool:
        """Add files to a table as the transaction after `after`; return False if another process has committed it."""
        for _ in range(ATTEMPTS):
            table = self.table(spec)
            if _transaction_version(table, app_id) != after:
                return False
            if self._add(spec, table, files, "append", Transaction(app_id, after + 1)):
                return True
        return False

    def append(self, spec: TableSpec, files: Sequence[DataFile]) -> None:
        """Add files to a table. Refuses with `BadLake` if other commits come first in each attempt."""
        if not any(self._add(spec, self.table(spec), files, "append") for _ in range(ATTEMPTS)):
            raise BadLake(f"{self.directory(spec)} was changed by another job meanwhile; run this one again.")

    def replace(self, spec: TableSpec, files: Sequence[DataFile]) -> None:
        """Replace all files of a table. Refuses with `BadLake` if another process changed it meanwhile."""
        if not self._add(spec, self.table(spec), files, "overwrite"):
            raise BadLake(f"{self.directory(spec)} was changed by another job meanwhile; run this one again.")

    def read(self, spark: SparkSession, spec: TableSpec = ARCHIVE) -> DataFrame:
        """Return a table as a DataFrame; empty before its first commit."""
        return self.read_version(spark, self.table(spec), spec)

    def read_version(self, spark: SparkSession, table: DeltaTable | None, spec: TableSpec = ARCHIVE) -> DataFrame:
        """Return a table at its opened version as a DataFrame. Refuses with `BadLake` if a file is missing."""
        files = files_of(table) if table else []
        if gone := missing_files(files, self.directory(spec)):
            raise BadLake(
                f"{self.directory(spec) / gone[0].path} is missing or cannot be read, and holds {messages(gone[0].rows)} "
                "of the lake; `peeklock-pipeline audit` names what is lost."
            )
        return self.read_files(spark, files, spec)

    def read_files(self, spark: SparkSession, files: Sequence[DataFile], spec: TableSpec = ARCHIVE) -> DataFrame:
        """Return the rows of these files of a table."""
        columns = from_arrow_schema(spec.schema)
        if not files:
            return spark.createDataFrame([], columns)
        places = [str(self.directory(spec) / file.path) for file in files]
        found = spark.read.schema(columns).option("basePath", str(self.directory(spec))).parquet(*places)
        return found.select(spec.schema.names)

    def remove(self, table: DeltaTable, predicate: str, removal: str) -> None:
        """Remove whole partitions from the archive at its opened version, and record the removal by its name.

        Refuses with `BadLake` if the partitions changed meanwhile.
        """
        properties = CommitProperties(app_transactions=[Transaction(REMOVAL_KEY_PREFIX + removal, 1)])
        try:
            table.delete(predicate, commit_properties=properties)
        except CommitFailedError as error:
            raise BadLake(f"{self.root} was changed by another job meanwhile; run this one again.") from error

    def record_missed(self, batches: Mapping[int, int]) -> None:
        """Record batches that can no longer be exported: their numbers, and the number of their messages.

        A removed batch stays removed. So the record is correct once it is written, and may be repeated.
        """
        if batches:
            rows = pa.table([pa.array(batches.keys()), pa.array(batches.values())], schema=MISSED.schema)
            self.append(MISSED, list(write(rows, self.directory(MISSED), MISSED)))

    def missed(self) -> dict[int, int]:
        """Return the batches that were removed from the archive before an export, with the number of their messages."""
        return {row["export_batch"]: row["messages"] for row in self._all(MISSED) or ()}

    def record_opening(self, gone: Sequence[AcceptedCount]) -> None:
        """Record, once, what was gone or exported without digests before this lake began to count.

        Refuses with `BadLake`. If the first export does not commit, its next attempt records it again.
        """
        rows = {"queue": [account.queue for account in gone], "date": [account.day for account in gone]}
        missing = [account.accepted - account.held for account in gone]
        table = pa.table({**rows, "messages": missing}, schema=OPENING.schema)
        self.replace(OPENING, list(write(table, self.directory(OPENING), OPENING)))

    def opening(self) -> dict[tuple[str, date], int] | None:
        """Return what was gone before this lake began to count; None if no export of this version has recorded it
        yet."""
        rows = self._all(OPENING)
        return None if rows is None else {(row["queue"], row["date"]): row["messages"] for row in rows}

    def _all(self, spec: TableSpec) -> list[dict[str, Any]] | None:
        """Return every row of a small table; None before its first commit."""
        table = self.table(spec)
        return None if table is None else pa.table(table.to_pyarrow_dataset().to_table()).to_pylist()

    def removed(self, spark: SparkSession, table: DeltaTable) -> DataFrame:
        """Return what the lake's retention has removed from the archive at its opened version.

        Leaves out counts of a removal that crashed before its commit.
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
        """Add the columns of this format to a table of an older one. After a crash between its commits, it runs
        again."""
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
        raise BadLake(f"{directory} is a Delta table, but peeklock-pipeline did not write it.")
    if _format(table) > FORMAT:
        raise BadLake(
            f"{directory} was written by a newer peeklock-pipeline (format {written}; this one knows {FORMAT}): "
            "install that version, or choose another directory."
        )
    return table


def _format(table: DeltaTable) -> int:
    return int((table.metadata().description or "").rpartition(" ")[2])


def export_position_of(table: DeltaTable | None) -> ExportPosition:
    """Return the end of the last export that an archive table records."""
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
