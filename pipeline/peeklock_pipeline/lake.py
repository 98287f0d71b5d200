"""The lake: Delta tables below a directory or URI, which any Delta reader understands.

Parquet files are written first and belong to no table. One commit then adds all of them to a table, or none. The commit
of an export records its last batch, so the next export knows where that one ended, and in which database. Of two
exports that commit the same batches, one succeeds.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, Transaction
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from peeklock_pipeline.files import DataFile, Value, write
from peeklock_pipeline.first_batch import FIRST_BATCH_KEY, LAST_BATCH_KEY, FirstBatch, first_batch_of
from peeklock_pipeline.logged_files import NO_BOUNDS, files_of, paths_of, require_files
from peeklock_pipeline.ranges import Conversion, rows_of_files
from peeklock_pipeline.refusals import BadLake
from peeklock_pipeline.storage import NO_OPTIONS, Storage
from peeklock_pipeline.table_specs import ARCHIVE, MESSAGES, MISSED, OPENING, REMOVED, TableSpec
from peeklock_pipeline.tables import (
    COPY_BEGUN,
    COPY_KEY,
    SEALED_AT_KEY,
    Change,
    ExportPosition,
    commit,
    export_position_of,
    layout_of,
    open_table,
    transaction_version,
)

REMOVAL_KEY_PREFIX = "peeklock-removal-"
"""The prefix of applications named after a removal by the lake's retention. The transaction records that it was
done."""

PATTERN = re.compile(r"[]*?{}\\[]")
"""The characters of a pattern of paths, as Spark takes every path for one."""

MANY_FILES = 10_000
"""The number of files above which Spark does not read them for a job itself: its driver would hold about 1,500 bytes for
each, as long as the result exists."""

ATTEMPTS = 5
"""Attempts of a commit when another one, such as a compaction, commits first."""


def any_version(_: DeltaTable) -> bool:
    """Accept every version of a table."""
    return True


class Lake:
    """A lake in a directory or an object store, created by the first commit.

    Refuses with `BadLake` a place with other contents, and with `LakeUnavailable`.
    """

    def __init__(self, root: str | Path | Storage, options: Mapping[str, str] = NO_OPTIONS) -> None:
        self.root = Storage.at(root, options)
        if self.root.is_file():
            raise BadLake(f"{self.root} is a file; a lake is a directory.")
        names = self.root.names()
        begun = any(spec.name in names for spec in (ARCHIVE, MESSAGES, OPENING))  # what a first job writes first
        if names and not begun:
            raise BadLake(
                f"{self.root} is not a lake and has other files in it: choose a new directory, or an empty one."
            )

    def directory(self, spec: TableSpec) -> Storage:
        """Return the directory of a table."""
        return self.root.under(spec.name)

    def table(self, spec: TableSpec) -> DeltaTable | None:
        """Return a table at its latest version; None before its first commit.

        Refuses with `BadLake` the archive of an unfinished copy.
        """
        table = open_table(self.directory(spec))
        if spec.name == ARCHIVE.name and transaction_version(table, COPY_KEY) == COPY_BEGUN:
            raise BadLake(f"{self.root} is an unfinished copy of another lake: run `peeklock-pipeline copy` again.")
        return table

    def layout(self, spec: TableSpec) -> TableSpec:
        """Return how to write files for a table: one that exists keeps its partition columns."""
        return layout_of(self.table(spec), spec)

    def tables(self) -> list[tuple[Storage, DeltaTable]]:
        """Return every table of the lake, with its directory. Refuses with `BadLake` if there is none."""
        places = [self.root.under(name) for name in self.root.names()]
        found = [(place, table) for place in places if (table := open_table(place)) is not None]
        if not found:
            raise BadLake(f"{self.root} is not a lake: it has no table.")
        return found

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
        return None if table is None else first_batch_of(table, self.directory(ARCHIVE))

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
            if self._commit(ARCHIVE, table, Change(files), *ended):
                return True
        return False

    def transaction_version(self, spec: TableSpec, app_id: str) -> int:
        """Return the version of an application's last transaction in a table; 0 for none."""
        return transaction_version(self.table(spec), app_id)

    def append_at_version(self, spec: TableSpec, files: Sequence[DataFile], app_id: str, after: int) -> bool:
        """Add files to a table as the transaction after `after`; return False if another process has committed it."""
        for _ in range(ATTEMPTS):
            table = self.table(spec)
            if transaction_version(table, app_id) != after:
                return False
            if self._commit(spec, table, Change(files), Transaction(app_id, after + 1)):
                return True
        return False

    def commit_at_version(self, spec: TableSpec, change: Change, after: int, *transactions: Transaction) -> bool:
        """Commit a change of a table at its version `after`, -1 before its first commit.

        Returns False if another process has committed since.
        """
        table = self.table(spec)
        version = -1 if table is None else table.version()
        return version == after and self._commit(spec, table, change, *transactions)

    def append(self, spec: TableSpec, files: Sequence[DataFile]) -> None:
        """Add files to a table. Refuses with `BadLake` if other commits come first in each attempt."""
        if not any(self._commit(spec, self.table(spec), Change(files)) for _ in range(ATTEMPTS)):
            raise self._changed(spec)

    def replace(self, spec: TableSpec, files: Sequence[DataFile], *transactions: Transaction) -> None:
        """Replace all files of a table. Refuses with `BadLake` if another process changed it meanwhile."""
        if not self._commit(spec, self.table(spec), Change(files, mode="overwrite"), *transactions):
            raise self._changed(spec)

    def replace_by_later(self, spec: TableSpec, files: Sequence[DataFile], app_id: str, version: int) -> bool:
        """Replace all files of a table as this transaction; return False if the table has a later one.

        Refuses with `BadLake` if other commits come first in each attempt.
        """
        for _ in range(ATTEMPTS):
            table = self.table(spec)
            if transaction_version(table, app_id) > version:
                return False
            if self._commit(spec, table, Change(files, mode="overwrite"), Transaction(app_id, version)):
                return True
        raise self._changed(spec)

    def exchange(
        self,
        spec: TableSpec,
        change: Change,
        *transactions: Transaction,
        is_valid: Callable[[DeltaTable], bool] = any_version,
    ) -> None:
        """Remove files of a table and add others in their place, beside commits that do not touch them.

        Refuses with `BadLake` if another commit removed one of the files meanwhile, or if the change is not valid for
        the version of the table on which it is committed.
        """
        gone = {file.path for file in change.removed}
        for _ in range(ATTEMPTS):
            table = self.table(spec)
            if table is None or gone - paths_of(table, gone) or not is_valid(table):
                break
            if self._commit(spec, table, change, *transactions):
                return
        raise self._changed(spec)

    def _changed(self, spec: TableSpec) -> BadLake:
        return BadLake(f"{self.directory(spec)} was changed by another job meanwhile; run this one again.")

    def read(
        self, spark: SparkSession, spec: TableSpec = ARCHIVE, within: Mapping[str, tuple[Value, Value]] = NO_BOUNDS
    ) -> DataFrame:
        """Return a table as a DataFrame; empty before its first commit.

        `within` leaves out files that have no row within these bounds, as `files_of` does; the caller filters the rows.
        """
        return self.read_version(spark, self.table(spec), spec, within)

    def read_version(
        self,
        spark: SparkSession,
        table: DeltaTable | None,
        spec: TableSpec = ARCHIVE,
        within: Mapping[str, tuple[Value, Value]] = NO_BOUNDS,
    ) -> DataFrame:
        """Return a table at its opened version as a DataFrame. Refuses with `BadLake` if a file is missing."""
        files = files_of(table, within) if table else []
        require_files(files, self.directory(spec))
        return self.read_files(spark, files, spec)

    def read_files(self, spark: SparkSession, files: Sequence[DataFile], spec: TableSpec = ARCHIVE) -> DataFrame:
        """Return the rows of these files of a table, in the columns of `spec`."""
        columns, directory = from_arrow_schema(spec.schema), self.directory(spec)
        if not files:
            return spark.createDataFrame([], columns)
        if self.is_read_by_arrow(files, spec):
            return rows_of_files(spark, files, directory, spec, Conversion(lambda rows: rows, spec))
        places = [PATTERN.sub(r"\\\g<0>", f"{directory}/{file.path}") for file in files]
        found = spark.read.schema(columns).option("basePath", str(directory)).parquet(*places)
        return found.select(spec.schema.names)

    def is_read_by_arrow(self, files: Sized, spec: TableSpec) -> bool:
        """Whether Arrow reads these files, in the executors. Each query then reads all columns of `spec`.

        Spark would need a connector for an object store, and memory on the driver for each of many files. It reads the
        columns that a query uses. So it also reads many files of a directory if `spec` is not narrowed.
        """
        return not self.root.is_local or (spec.is_narrowed and len(files) > MANY_FILES)

    def convert_files(
        self, spark: SparkSession, files: Sequence[DataFile], spec: TableSpec, conversion: Conversion
    ) -> DataFrame:
        """Return what a conversion makes of the rows of these files, in the columns of `spec`."""
        return rows_of_files(spark, files, self.directory(spec), spec, conversion)

    def remove(self, change: Change, removal: str, is_valid: Callable[[DeltaTable], bool]) -> None:
        """Exchange files of the archive, and record by its name that the removal was done. Refuses as `exchange`."""
        self.exchange(ARCHIVE, change, Transaction(REMOVAL_KEY_PREFIX + removal, 1), is_valid=is_valid)

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

    def record_opening(self, accounts: Iterable[pa.Table]) -> None:
        """Record, once, what was gone or exported without digests before this lake began to count (`ACCOUNTS`).

        Refuses with `BadLake`. If the first export does not commit, its next attempt records it again.
        """
        found = (gone for rows in accounts if (gone := _gone(rows)).num_rows)
        self.replace(OPENING, [file for gone in found for file in write(gone, self.directory(OPENING), OPENING)])

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

    def _commit(self, spec: TableSpec, table: DeltaTable | None, change: Change, *transactions: Transaction) -> bool:
        return commit(self.directory(spec), table, spec, change, transactions)


def _gone(accounts: pa.Table) -> pa.Table:
    """Return how many messages of each queue and day the database does not hold, where this is not 0."""
    messages = pc.subtract(pc.subtract(accounts["accepted"], accounts["unarchived"]), accounts["held"])
    gone = accounts.select(["queue", "date"]).append_column("messages", messages).cast(OPENING.schema)
    return gone.filter(pc.field("messages") != 0)
