"""Prepares a database that was restored from a backup: invalidates lock records, and skips sequence numbers.

A restored database is as it was at the backup. Redis may have newer lock records, whose locks the database does not know,
and clients have seen sequence numbers that the database would give out again. Nothing inside the database shows that it was
restored, because the backup contains all of it.
"""

from app.broker.ports.lock_store import SharedRecord
from app.broker.ports.store import Store

SKIPPED_NUMBERS = 1_000_000_000
"""More messages than are sent between a backup and its restore."""

UNSHARED_NUMBERS = 10_000_000
"""More messages than a process sends after it has last shared the highest number."""


async def prepare_restored(store: Store, skipped: int = SKIPPED_NUMBERS) -> int:
    """Start a lock version, and skip sequence numbers and ids of queues. Return the next sequence number."""
    await store.queues.start_lock_version()
    return await store.skip_numbers(skipped)


async def share_number(store: Store, record: SharedRecord) -> int:
    """Share the highest sequence number of the database. Return the highest that any process has seen in it."""
    name, number = f"highest_number:{await store.database_id()}", await store.highest_number()
    return (await record.raise_to({name: number})).get(name, number)


async def catch_up(store: Store, record: SharedRecord) -> int | None:
    """If a process has seen a higher sequence number than the database has, prepare the database as a restored one.

    Return the next sequence number, or None if the database is not behind. Other processes may send meanwhile: the
    database is read after the record, so their numbers do not make it look behind.
    """
    seen = await share_number(store, record)
    if await store.highest_number() >= seen:
        return None
    await store.queues.start_lock_version()
    return await store.continue_after(seen, UNSHARED_NUMBERS)
