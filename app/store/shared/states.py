"""Versioned states in named statements, the same for every engine.

A change locks the row of its key and then reads the versions, so the second of two changes sees the version that the
first has added. States are locked in the order of their keys, after the messages of their transaction and before its
groups.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from msgspec.structs import replace

from app.domain.archive import DEFAULT_BATCH_LIMITS
from app.domain.instant import Duration, Instant
from app.domain.message import Receipt
from app.domain.state import (
    NO_VERSION,
    AddedVersion,
    LoadedState,
    Processed,
    StateChange,
    StateSummary,
    StateVersion,
    VersionSummary,
    check_change,
)
from app.domain.weight import count_that_fit
from app.store.shared.attempts import stored_receipts
from app.store.shared.database import Database, SqlSession
from app.store.shared.json_columns import write_receipts
from app.store.shared.rows import Row


@dataclass(frozen=True, slots=True)
class LockedState:
    """The state of a change, locked until the transaction ends. `processed` is set if the change is a duplicate."""

    change: StateChange
    id: int
    newest: int
    updated_at: Instant
    now: Instant
    processed: Processed | None


@dataclass(frozen=True, slots=True)
class LockedStates:
    """The states that a transaction changes."""

    states: Sequence[LockedState] = ()

    @property
    def recorded(self) -> list[Receipt] | None:
        """The receipts of the first processing if a change is a duplicate, else None. A duplicate sends nothing."""
        for state in self.states:
            if state.processed is not None:
                return [replace(receipt, duplicate=True) for receipt in state.processed.receipts]
        return None


async def lock_states(session: SqlSession, changes: Sequence[StateChange]) -> LockedStates:
    """Lock the states of these changes, each of another key, and check the changes.

    Refuses with `VersionConflict` and `ResultDiffers`, before anything is written.
    """
    if not changes:
        return LockedStates()
    in_order = sorted(changes, key=lambda change: change.key)
    # All changes are checked before any state is created, because SQLite does not undo a refused step.
    found = [await _lock(session, change) for change in in_order]
    return LockedStates(
        [state or await _create(session, change) for state, change in zip(found, in_order, strict=True)]
    )


async def add_versions(
    session: SqlSession, locked: LockedStates, changes: Sequence[StateChange], receipts: Sequence[Receipt]
) -> list[AddedVersion]:
    """Add a version to each of the locked states, except for duplicates. Return the versions in the order of the changes."""
    stored = write_receipts(receipts) if changes else ""
    added = {state.change.key: await _add(session, state, stored) for state in locked.states}
    return [added[change.key] for change in changes]


async def _lock(session: SqlSession, change: StateChange) -> LockedState | None:
    """Lock a state, then read its versions. Return None for a key without a state, which has version 0."""
    found_rows = await session.fetch("state_for_update", state_key=change.key)
    if not found_rows:
        check_change(change, NO_VERSION, None)
        return None
    ((state_id, newest, updated_at, now),) = found_rows
    processed = await _processed(session, state_id, change.message_id)
    check_change(change, newest, processed)
    return LockedState(change, state_id, newest, updated_at, now, processed)


async def _create(session: SqlSession, change: StateChange) -> LockedState:
    """Create the state of a key, or lock the one that another transaction has created since."""
    while True:
        await session.change("create_state", state_key=change.key)
        # It is missing if it was deleted in between.
        if state := await _lock(session, change):
            return state


async def _processed(session: SqlSession, state_id: int, message_id: str | None) -> Processed | None:
    if message_id is None:
        return None
    for number, result_digest, receipts in await session.fetch(
        "processed_version", state_id=state_id, message_id=message_id
    ):
        return Processed(number, result_digest, tuple(await stored_receipts(session, receipts)))
    return None


async def _add(session: SqlSession, state: LockedState, receipts: str) -> AddedVersion:
    if state.processed is not None:
        return AddedVersion(state.processed.number, duplicate=True)
    change, number = state.change, state.newest + 1
    # Times ascend with the numbers even if the clock was set back, because versions are removed in the order of times.
    created_at = max(state.now, state.updated_at)
    await session.change(
        "add_version",
        state_id=state.id,
        number=number,
        message_id=change.message_id,
        value=change.value,
        metadata=change.metadata,
        result_digest=change.result_digest,
        receipts=receipts,
        created_at=created_at,
        replaced_at=created_at if state.newest else None,
    )
    await session.change("advance_state", id=state.id, number=number, updated_at=created_at)
    return AddedVersion(number)


class StateRecords:
    """`StateStore` over a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def newest(self, key: str) -> StateVersion | None:
        """See `StateStore`."""
        return _version(await self._database.fetch("newest_version", state_key=key))

    async def version(self, key: str, number: int) -> StateVersion | None:
        """See `StateStore`."""
        return _version(await self._database.fetch("version_by_number", state_key=key, number=number))

    async def before_message(self, key: str, message_id: str) -> LoadedState:
        """See `StateStore`."""
        found_rows = await self._database.fetch("captured", state_key=key, message_id=message_id)
        for state_id, number, captured in found_rows:
            # By its id, because the key may be that of a later state by now.
            base = _version(await self._database.fetch("version_of_state", state_id=state_id, number=number - 1))
            if base is not None or number - 1 == NO_VERSION:
                return LoadedState(base, captured)
            # The version before it was removed after the first read. From then on the message counts as new.
        return LoadedState(await self.newest(key))

    async def history(self, key: str, after: int, limit: int) -> list[VersionSummary]:
        """See `StateStore`."""
        found_rows = await self._database.fetch("state_history", state_key=key, after=after, limit=limit)
        return [
            VersionSummary(number, metadata, _text(message_id), created_at, value_bytes)
            for number, metadata, message_id, created_at, value_bytes in found_rows
        ]

    async def page(self, after: str, limit: int) -> list[StateSummary]:
        """See `StateStore`."""
        return [StateSummary(*row) for row in await self._database.fetch("page_of_states", after=after, limit=limit)]

    async def delete(self, key: str) -> bool:
        """See `StateStore`."""
        return await self._database.change("delete_state", state_key=key) > 0

    async def delete_old_versions(self, retention: Duration, limit: int) -> int:
        """See `StateStore`."""
        return await self._database.transaction(partial(_delete_old_versions, retention=retention, limit=limit))


async def _delete_old_versions(session: SqlSession, retention: Duration, limit: int) -> int:
    """Remove versions that were replaced, and those of deleted states. Only one transaction at a time does this."""
    if not await session.fetch("try_lock_trimming"):
        return 0
    return await _delete_replaced(session, retention, limit) + await _delete_of_deleted_states(session, limit)


async def _delete_replaced(session: SqlSession, retention: Duration, limit: int) -> int:
    rows = await session.fetch("replacing_versions", retention=retention, limit=limit)
    rows = rows[: count_that_fit([size for *_, size in rows], DEFAULT_BATCH_LIMITS.max_body_bytes)]
    if rows:
        await session.change("delete_versions", numbers=[old for _, old, _ in rows])
        await session.change("forget_messages", numbers=[new for new, *_ in rows])
    return len(rows)


async def _delete_of_deleted_states(session: SqlSession, limit: int) -> int:
    rows = await session.fetch("versions_of_deleted", limit=limit)
    rows = rows[: count_that_fit([size for _, size in rows], DEFAULT_BATCH_LIMITS.max_body_bytes)]
    if rows:
        await session.change("delete_versions", numbers=[number for number, _ in rows])
    else:
        await session.change("delete_empty_states")
    return len(rows)


def _version(found_rows: Sequence[Row]) -> StateVersion | None:
    for number, value, metadata, message_id, created_at in found_rows:
        return StateVersion(number, value, metadata, _text(message_id), created_at)
    return None


def _text(message_id: str | bytes | None) -> str | None:
    """Return a message id as text; MariaDB and MySQL return its bytes."""
    return message_id.decode() if isinstance(message_id, bytes) else message_id
