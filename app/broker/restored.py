"""After a restore: what clients and Redis know of the lost time must not be taken for what the database knows.

A restored database is as it was at the backup. Redis may have newer lock records, whose locks the database does not know,
and clients have seen sequence numbers that the database would give out again.
"""

import secrets

from app.broker.ports import LockVersions, SequenceNumbers

MAX_LOCK_VERSION = 1 << 30
"""Half of what the column holds, because each purge of locks adds one."""

SKIPPED_NUMBERS = 1_000_000_000
"""More messages than are sent between a backup and its restore."""


async def start_lock_version(queues: LockVersions) -> None:
    """Let no lock record count that Redis has from before. The next renewal of each lock asks the database.

    The version is chosen at random, because a counter of the database has gone back with it.
    """
    await queues.start_lock_version(secrets.randbelow(MAX_LOCK_VERSION))


async def prepare_restored(queues: LockVersions, numbers: SequenceNumbers, skipped: int = SKIPPED_NUMBERS) -> int:
    """Start a lock version and leave out sequence numbers and ids of queues. Return the next sequence number."""
    await start_lock_version(queues)
    return await numbers.skip_numbers(skipped)
