"""Opens and commits to the Delta tables of a lake."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions

from peeklock_pipeline.files import DataFile, require_uncommitted
from peeklock_pipeline.first_batch import LAST_BATCH_KEY
from peeklock_pipeline.logged_files import paths_of
from peeklock_pipeline.refusals import BadLake, LakeUnavailable
from peeklock_pipeline.storage import Storage
from peeklock_pipeline.table_specs import TableSpec

FORMAT = 5
"""The format that this version writes: 2 has digests of contents, 3 histories, 4 partitions by day alone, 5 checksums of rows.

A lake of a higher format is refused. The first commit to a table of a lower format adds the missing columns, which are
null in older rows. It keeps the partitions of the table; `copy` makes a lake with those of this version.
"""

DESCRIPTION_PREFIX = "Written by peeklock-pipeline, format "
"""The start of the description of every table of a lake; the format follows."""

SEALED_AT_KEY = "peeklock-sealed"
"""The application whose transaction version is the microsecond in which that batch was sealed. It identifies the
database."""

COPY_KEY = "peeklock-copy"
"""The application whose transaction version tells whether the archive is a copy of another lake's, and complete."""

COPY_BEGUN, COPY_COMPLETE = 1, 2

NO_RETRY = 0
"""A commit on top of others that came meanwhile could repeat what they did. So callers open the table again."""

Mode = Literal["append", "overwrite"]


@dataclass(frozen=True, slots=True)
class ExportPosition:
    """The end of the last export: the number of a batch, 0 for none, and the microsecond in which it was sealed."""

    number: int = 0
    sealed_at: int = 0


@dataclass(frozen=True, slots=True)
class Change:
    """Files that a commit adds and removes. `moves_rows` means that the rows stay the same, as in a compaction."""

    added: Sequence[DataFile] = ()
    removed: Sequence[DataFile] = ()
    mode: Mode = "append"
    moves_rows: bool = False


def open_table(storage: Storage) -> DeltaTable | None:
    """Return a table at its latest version; None before its first commit.

    Refuses with `BadLake` a table that a newer version or another program wrote, and with `LakeUnavailable`.
    """
    try:
        with storage.refusals():
            table = DeltaTable(str(storage), storage_options=storage.storage_options())
    except TableNotFoundError:
        return None
    except DeltaError as error:
        raise BadLake(f"{storage} cannot be read as a Delta table: {_first_line(error)}") from error
    mark, _, written = (table.metadata().description or "").rpartition(" ")
    if mark != DESCRIPTION_PREFIX.strip() or not written.isdecimal():
        raise BadLake(f"{storage} is a Delta table, but peeklock-pipeline did not write it.")
    if format_of(table) > FORMAT:
        raise BadLake(
            f"{storage} was written by a newer peeklock-pipeline (format {written}; this one knows {FORMAT}): "
            "install that version, or choose another directory."
        )
    return table


def format_of(table: DeltaTable) -> int:
    """Return the format of a table."""
    return int((table.metadata().description or "").rpartition(" ")[2])


def layout_of(table: DeltaTable | None, spec: TableSpec) -> TableSpec:
    """Return how to write files for a table: a table keeps the partition columns with which it was made."""
    return spec if table is None else replace(spec, partitions=tuple(table.metadata().partition_columns))


def transaction_version(table: DeltaTable | None, app_id: str) -> int:
    """Return the version of an application's last transaction in a table; 0 for none."""
    return (table.transaction_version(app_id) or 0) if table else 0


def export_position_of(table: DeltaTable | None) -> ExportPosition:
    """Return the end of the last export that an archive table records."""
    return ExportPosition(transaction_version(table, LAST_BATCH_KEY), transaction_version(table, SEALED_AT_KEY))


def commit(
    storage: Storage,
    table: DeltaTable | None,
    spec: TableSpec,
    change: Change,
    transactions: Sequence[Transaction] = (),
) -> bool:
    """Commit a change on the opened version of a table, or create the table.

    Returns False if another commit came first; nothing is then changed. Refuses with `LakeUnavailable`, and with
    `BadLake` if a file to add was removed since it was written.
    """
    require_uncommitted(change.added, storage)
    schema, partitions = Schema.from_arrow(spec.schema), list(layout_of(table, spec).partitions)
    properties = CommitProperties(app_transactions=list(transactions), max_commit_retries=NO_RETRY)
    now = int(time.time() * 1000)
    adds = [_add(file, now, not change.moves_rows) for file in change.added]
    removes = [_remove(file, now, not change.moves_rows) for file in change.removed]
    try:
        with storage.refusals():
            if table is None:
                if storage.is_local:  # else deltalake prints an error of its own
                    Path(str(storage)).mkdir(parents=True, exist_ok=True)
                create_table_with_add_actions(
                    str(storage), schema, adds, "error", partitions, description=f"{DESCRIPTION_PREFIX}{FORMAT}",
                    configuration=dict(_settings(spec)), storage_options=storage.storage_options(), commit_properties=properties,
                )  # fmt: skip
            else:
                if format_of(table) < FORMAT:
                    _upgrade(table, spec)
                table.create_write_transaction(
                    [*adds, *removes], change.mode, schema, partitions, commit_properties=properties
                )
    except CommitFailedError:
        return _is_committed(storage, change, transactions)
    except DeltaError as error:
        if table is None and open_table(storage) is not None:  # another commit created it meanwhile
            return _is_committed(storage, change, transactions)
        raise LakeUnavailable(f"{storage} cannot be written: {_first_line(error)}") from error
    return True


def _is_committed(storage: Storage, change: Change, transactions: Sequence[Transaction]) -> bool:
    """Whether a commit that was reported as failed is in the log, as its files or else its transactions show.

    A repeated request to an object store finds the commit of the first one, if only the answer to it was lost.
    """
    table = open_table(storage) if change.added or transactions else None
    if table is None:
        return False
    if change.added:
        return bool(paths_of(table, {change.added[0].path}))
    is_done = all(table.transaction_version(one.app_id) == one.version for one in transactions)
    return is_done and not paths_of(table, {file.path for file in change.removed})


def _upgrade(table: DeltaTable, spec: TableSpec) -> None:
    """Add the columns of this format to a table of an older one. After a crash between its commits, it runs again.

    As with other commits, nothing may have come first: the caller has decided by what is in the opened version.
    """
    alone = CommitProperties(max_commit_retries=NO_RETRY)
    present = {field.name for field in table.schema().fields}
    missing_fields = [field for field in Schema.from_arrow(spec.schema).fields if field.name not in present]
    if missing_fields:
        table.alter.add_columns(missing_fields, commit_properties=alone)
    table.alter.set_table_properties(_settings(layout_of(table, spec)), commit_properties=alone)
    table.alter.set_table_description(f"{DESCRIPTION_PREFIX}{FORMAT}", commit_properties=alone)


def _settings(spec: TableSpec) -> dict[str, str]:
    """Return the setting that names the columns with statistics. Without it deltalake finds no rows by other columns."""
    named = [name for name in spec.statistics if name not in spec.partitions]
    return {"delta.dataSkippingStatsColumns": ",".join(named)} if named else {"delta.dataSkippingNumIndexedCols": "0"}


def _add(file: DataFile, now: int, is_change: bool) -> AddAction:
    return AddAction(file.path, file.size, file.partition, now, is_change, file.statistics)


def _remove(file: DataFile, now: int, is_change: bool) -> RemoveAction:
    return RemoveAction(file.path, is_change, now, file.size, dict(file.partition))


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]
