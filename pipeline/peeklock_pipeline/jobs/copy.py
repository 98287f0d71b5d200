"""copy: carries a lake over into another directory or object store, with the partitions of this version.

It copies one version of the source, in commits that record how many files are copied. So it may crash anywhere and be
repeated. The last commit makes the copy a lake: it records the end of the last export, where the next one continues.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import pyarrow as pa
from deltalake import DeltaTable, Transaction
from deltalake.exceptions import DeltaError
from pyspark.sql import SparkSession

from peeklock_pipeline.files import DataFile, read, write
from peeklock_pipeline.first_batch import FIRST_BATCH_KEY, LAST_BATCH_KEY, first_batch_of
from peeklock_pipeline.lake import REMOVAL_KEY_PREFIX, Lake
from peeklock_pipeline.logged_files import files_of
from peeklock_pipeline.progress import Progress, no_progress
from peeklock_pipeline.refusals import BadLake
from peeklock_pipeline.replay_log import REPLAY_KEY_PREFIX
from peeklock_pipeline.rewriting import groups_of, rewrite
from peeklock_pipeline.table_specs import ARCHIVE, MISSED, OPENING, REMOVED, REPLAYS, TableSpec
from peeklock_pipeline.tables import (
    COPY_BEGUN,
    COPY_COMPLETE,
    COPY_KEY,
    SEALED_AT_KEY,
    Change,
    commit,
    export_position_of,
    open_table,
    transaction_version,
)

COMMIT_TASKS = 64
"""Tasks of one commit. A crash loses only the last commit."""

RECORDS = (MISSED, OPENING, REMOVED, REPLAYS)
"""The tables in which a lake records what is not in its archive."""


@dataclass(frozen=True, slots=True)
class CopyResult:
    """The messages and files that this run copied, and the last batch of the lake."""

    messages: int
    files: int
    last_batch: int


def copy(
    spark: SparkSession,
    source: Lake,
    target: Lake,
    progress: Progress = no_progress,
    commit_tasks: int = COMMIT_TASKS,
) -> CopyResult:
    """Copy every message and all records of a lake, but no report. Exports to the source may go on.

    A complete copy is left as it is. Refuses with `BadLake` a target with something else, and if files of the source
    were removed meanwhile; and with `LakeUnavailable`.
    """
    run = _Copy(source, target)
    if run.is_complete():
        return CopyResult(0, 0, target.last_batch())
    table = run.pinned_source()
    files = files_of(table)
    messages, written, done = 0, 0, run.files_copied()
    for portion in _portions(groups_of(files, ARCHIVE), done, commit_tasks):
        progress(done, len(files))
        before = done
        added = run.write(spark, portion)
        done += sum(len(group) for group in portion)
        run.record(Change(added), before, done)
        messages, written = messages + sum(file.rows for file in added), written + len(added)
    progress(len(files), len(files))
    run.complete(spark, table)
    return CopyResult(messages, written, target.last_batch())


class _Copy:
    """The records of a copy in its target's archive. Transactions are named after the source's table."""

    def __init__(self, source: Lake, target: Lake) -> None:
        self._source = source
        self._target = target
        self._place = target.directory(ARCHIVE)
        archive = source.archive_table()
        self._files_key = f"peeklock-copied-{archive.metadata().id}"
        self._version_key = f"peeklock-copied-version-{archive.metadata().id}"
        self._latest = archive.version()
        begun = self._table()
        is_foreign = begun is not None and begun.transaction_version(self._version_key) is None
        if is_foreign or (begun is None and any(target.table(spec) for spec in RECORDS)):
            raise BadLake(
                f"{target.root} has messages or records that are not from {source.root}: choose a new directory."
            )

    def is_complete(self) -> bool:
        """Whether an earlier run has ended."""
        return transaction_version(self._table(), COPY_KEY) == COPY_COMPLETE

    def pinned_source(self) -> DeltaTable:
        """Return the source's archive at the version that the first run found."""
        table, place = self._table(), self._source.directory(ARCHIVE)
        version = self._latest if table is None else transaction_version(table, self._version_key)
        try:
            found = DeltaTable(str(place), version=version, storage_options=place.storage_options())
        except DeltaError as error:
            raise BadLake(f"{place} has no version {version} any more: copy into a new directory.") from error
        if table is None:
            self._commit(None, Change(), Transaction(COPY_KEY, COPY_BEGUN), Transaction(self._version_key, version))
        return found

    def files_copied(self) -> int:
        """Return how many files of the source are copied, in the order of their groups."""
        return transaction_version(self._table(), self._files_key)

    def write(self, spark: SparkSession, groups: Sequence[Sequence[DataFile]]) -> list[DataFile]:
        """Write the rows of these groups of the source to files of the target, which belong to no table yet."""
        try:
            return rewrite(spark, groups, self._place, ARCHIVE, place=self._source.directory(ARCHIVE))
        except BadLake as error:
            raise BadLake(
                f"{error} If a vacuum removed it after this copy began, copy into a new directory."
            ) from error

    def record(self, change: Change, before: int, done: int) -> None:
        """Commit files of the target together with the number of files that are copied then.

        Refuses with `BadLake` if another number than `before` is copied by now.
        """
        table = self._unfinished()
        if transaction_version(table, self._files_key) != before:
            raise self._overtaken()
        self._commit(table, change, Transaction(self._files_key, done))

    def complete(self, spark: SparkSession, archive: DeltaTable) -> None:
        """Copy what the source records about itself. The last commit makes the target a lake."""
        self._unfinished()
        for spec in RECORDS:
            self._copy_table(spec)
        position = export_position_of(archive)
        names = {row["removal"] for row in self._rows(REMOVED).to_pylist()}
        removals = [REMOVAL_KEY_PREFIX + name for name in names]
        first = first_batch_of(archive, self._source.directory(ARCHIVE))
        self._commit(
            self._unfinished(),
            Change(),
            Transaction(COPY_KEY, COPY_COMPLETE),
            Transaction(LAST_BATCH_KEY, position.number),
            Transaction(SEALED_AT_KEY, position.sealed_at),
            Transaction(FIRST_BATCH_KEY, first.number),
            *(Transaction(key, 1) for key in removals if archive.transaction_version(key) is not None),
        )

    def _copy_table(self, spec: TableSpec) -> None:
        """Create a table of the target. One that exists is from an earlier run, which a kill ended after this step."""
        table = self._source.table(spec)
        if table is None or self._target.table(spec) is not None:
            return
        rows = self._rows(spec)
        replays = {row["replay"] for row in rows.to_pylist()} if spec is REPLAYS else set[str]()
        keys = [REPLAY_KEY_PREFIX + name for name in replays]
        versions = [Transaction(key, transaction_version(table, key)) for key in keys]
        files = list(write(rows, self._target.directory(spec), spec)) if rows.num_rows else []
        if not commit(self._target.directory(spec), None, spec, Change(files), versions):
            raise self._overtaken()

    def _rows(self, spec: TableSpec) -> pa.Table:
        table = self._source.table(spec)
        files, place = files_of(table) if table else [], self._source.directory(spec)
        return pa.Table.from_batches((rows for file in files for rows in read(file, place, spec.schema)), spec.schema)

    def _table(self) -> DeltaTable | None:
        return open_table(self._place)

    def _unfinished(self) -> DeltaTable | None:
        """Return the target's archive. Refuses with `BadLake` if another run has completed the copy."""
        if transaction_version(table := self._table(), COPY_KEY) != COPY_BEGUN:
            raise self._overtaken()
        return table

    def _commit(self, table: DeltaTable | None, change: Change, *transactions: Transaction) -> None:
        if not commit(self._place, table, ARCHIVE, change, transactions):
            raise self._overtaken()

    def _overtaken(self) -> BadLake:
        return BadLake(f"Another copy to {self._target.root} is running: wait for its end.")


def _portions(groups: Iterable[list[DataFile]], copied: int, most: int) -> Iterator[list[list[DataFile]]]:
    """Yield the groups of each commit that are left when this number of files is copied."""
    left = _left(groups, copied)
    while portion := [*islice(left, most)]:
        yield portion


def _left(groups: Iterable[list[DataFile]], copied: int) -> Iterator[list[DataFile]]:
    before = 0
    for group in groups:
        if before >= copied:
            yield group
        before += len(group)
