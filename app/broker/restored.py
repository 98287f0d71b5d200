"""After a restore: what clients and Redis know of the lost time must not be taken for what the database knows.

A restored database is as it was at the backup. Redis may have newer lock records, whose locks the database does not know,
and clients have seen sequence numbers that the database would give out again. Nothing in the database says that it is not
what it was: a backup has all of it.
"""

import secrets
from typing import Protocol

from app.broker.ports import LockVersions, SequenceNumbers, SharedRecord

MAX_LOCK_VERSION = 1 << 30
"""Half of what the column holds, because each purge of locks adds one."""

SKIPPED_NUMBERS = 1_000_000_000
"""More messages than are sent between a backup and its restore."""

UNSHARED_NUMBERS = 10_000_000
"""More messages than are sent between the last number that a process has shared and its end."""


class RestorableStore(SequenceNumbers, Protocol):
    """A store that may have gone back to a backup."""

    @property
    def queues(self) -> LockVersions:
        """The queues."""
        ...

    async def database_id(self) -> str:
        """Return an id that is unique to this database, except for copies of it."""
        ...


async def start_lock_version(queues: LockVersions) -> None:
    """Let no lock record count that Redis has from before. The next renewal of each lock asks the database.

    The version is chosen at random, because a counter of the database has gone back with it.
    """
    await queues.start_lock_version(secrets.randbelow(MAX_LOCK_VERSION))


async def prepare_restored(queues: LockVersions, numbers: SequenceNumbers, skipped: int = SKIPPED_NUMBERS) -> int:
    """Start a lock version and leave out sequence numbers and ids of queues. Return the next sequence number."""
    await start_lock_version(queues)
    return await numbers.skip_numbers(skipped)


async def share_number(store: RestorableStore, record: SharedRecord) -> int:
    """Share the highest number of the database. Return the highest that any process has seen of it."""
    name, number = f"highest_number:{await store.database_id()}", await store.highest_number()
    return (await record.raise_to({name: number})).get(name, number)


async def catch_up(store: RestorableStore, record: SharedRecord) -> int | None:
    """If the database is behind what any process has seen of it, prepare it as a restored one.

    Return the next sequence number, or None if the database is not behind. Other processes may send meanwhile: the
    database is read after the record, so their numbers do not make it look behind.
    """
    seen = await share_number(store, record)
    if await store.highest_number() >= seen:
        return None
    await start_lock_version(store.queues)
    return await store.continue_after(seen, UNSHARED_NUMBERS)
