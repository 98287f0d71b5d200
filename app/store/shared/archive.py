"""The archive and its batches in named statements, the same for every engine."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from app.domain.archive import (
    BATCH_SPAN,
    CURRENT_DIGEST_VERSION,
    DEFAULT_BATCH_LIMITS,
    ArchiveBatch,
    ArchivedMessage,
    BatchContents,
    BatchLimits,
    CopiedBatch,
    DigestVersion,
    RemovalCause,
    TrimResult,
    UnsealedMessage,
    digest_version_of,
    trim_result,
)
from app.domain.digest import digest_of_numbers, digest_of_rows
from app.domain.instant import DAY, Duration, Instant
from app.domain.settlement import RESTORABLE_OUTCOMES, TOMBSTONE_RETENTION, Outcome
from app.domain.weight import count_that_fit
from app.store.shared import rows
from app.store.shared.database import Database, SqlSession
from app.store.shared.message_rows import archived_message

BATCH_KEEP: Duration = 366 * DAY
"""How long the record of a removed batch is kept."""


class ArchiveRecords:
    """`ArchiveStore` over a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def ended_before(self, before: int, limit: int) -> list[ArchivedMessage]:
        """See `ArchiveStore`."""
        found_rows = await self._database.fetch("ended_before", before=before, limit=limit)
        return [archived_message(row) for row in found_rows]

    async def first_unsealed(self, since: Instant) -> UnsealedMessage | None:
        """See `ArchiveStore`."""
        return await _first_unsealed(self._database, since)

    async def seal(
        self,
        first: UnsealedMessage,
        limits: BatchLimits = DEFAULT_BATCH_LIMITS,
        version: DigestVersion = CURRENT_DIGEST_VERSION,
    ) -> ArchiveBatch | None:
        """See `ArchiveStore`. One transaction seals at a time and holds its lock until it ends, so numbers have no gaps."""

        async def work(session: SqlSession) -> ArchiveBatch | None:
            if not await session.fetch("try_lock_sealing"):
                return None
            current = await _first_unsealed(session, first.remove_at)
            if current is None or current.sequence_number != first.sequence_number:
                return None
            return await _seal(session, first.remove_at, limits, version)

        return await self._database.transaction(work)

    async def list_batches(self, after: int, limit: int) -> list[ArchiveBatch]:
        """See `ArchiveStore`."""
        return [rows.batch(row) for row in await self._database.fetch("batches", after=after, limit=limit)]

    async def trim(self, copy: CopiedBatch) -> TrimResult:
        """See `ArchiveStore`."""

        async def work(session: SqlSession) -> TrimResult:
            locked = await session.fetch("batch_for_update", number=copy.number)
            if not locked:
                return TrimResult.UNKNOWN
            ((removed_at, digest, version),) = locked
            if removed_at is not None:
                return TrimResult.ALREADY_REMOVED
            if version not in DIGEST_STATEMENTS:
                # Sealed by a newer server: this one cannot verify the copy.
                return TrimResult.DIFFERS
            numbers = await _batch_messages(session, copy.number)
            result = trim_result(copy, digest, await _contents(session, numbers, version), TOMBSTONE_RETENTION)
            if result is TrimResult.TRIMMED:
                await _remove(session, copy.number, numbers, RemovalCause.TRIMMED)
                if version == DigestVersion.HISTORIES:
                    # The copy has them too. Those of other batches stay until their own time.
                    await session.change("delete_histories", numbers=numbers)
            return result

        return await self._database.transaction(work)

    async def delete_expired(self, limit: int) -> int:
        """See `ArchiveStore`. A batch is removed as a whole, even if it holds more messages than `limit`."""
        total = 0
        for _ in range(limit):
            removed = await self._database.transaction(_remove_expired_batch)
            if removed is None or (total := total + removed) >= limit:
                break
        await self._delete_old_records(limit)
        return total

    async def _delete_old_records(self, limit: int) -> None:
        """Delete the records of batches that were removed long ago. Keep the newest: the next number follows it."""
        ((following, _),) = await self._database.fetch("next_batch")
        await self._database.change("delete_expired_batches", before=following - 1, retention=BATCH_KEEP, limit=limit)


async def _first_unsealed(session: SqlSession, since: Instant) -> UnsealedMessage | None:
    found_rows = await session.fetch("first_unsealed", since=since)
    return UnsealedMessage(*found_rows[0]) if found_rows else None


async def _seal(
    session: SqlSession, since: Instant, limits: BatchLimits, version: DigestVersion
) -> ArchiveBatch | None:
    """Give the next number to the messages that follow. A crash before the commit leaves nothing changed."""
    found_rows = await session.fetch("unsealed", since=since, until=since + BATCH_SPAN, limit=limits.max_messages)
    chosen = found_rows[: _count_in_batch(found_rows, limits)]
    if not chosen:
        return None
    ((number, now),) = await session.fetch("next_batch")
    messages = [message for message, *_ in chosen]
    await session.change("seal", numbers=messages, batch=number)
    if older := [message for message, *_, is_older in chosen if is_older]:
        await session.change("seal_older", numbers=older, batch=number)
    covered = digest_version_of(version, sum([event_count for *_, event_count, _ in chosen]))
    sealed = await _contents(session, messages, covered)
    remove_at = max([remove_at for _, remove_at, *_ in chosen])
    batch = ArchiveBatch(number, sealed.row_count, sealed.digest, now, remove_at, digest_version=covered)
    await session.change("add_batch", **asdict(batch))
    return batch


def _count_in_batch(unsealed: Sequence[rows.Row], limits: BatchLimits) -> int:
    """Return how many of these messages, in order, a batch takes: their bodies and their events fit its limits."""
    return min(
        count_that_fit([body_bytes for _, _, body_bytes, *_ in unsealed], limits.max_body_bytes),
        count_that_fit([event_count for *_, event_count, _ in unsealed], limits.max_events),
    )


async def _batch_messages(session: SqlSession, number: int) -> list[int]:
    return [message for (message,) in await session.fetch("batch_messages", number=number)]


async def _contents(session: SqlSession, numbers: Sequence[int], version: int) -> BatchContents:
    """Count and digest those of these messages that are in the archive now."""
    statement, digest = DIGEST_STATEMENTS[version]
    found_rows: Sequence[rows.Row] = await session.fetch(statement, numbers=numbers) if numbers else ()
    values = [value for value, _ in found_rows]
    if version == DigestVersion.HISTORIES and numbers:
        values += [value for (value,) in await session.fetch("event_digests", numbers=numbers)]
    youngest = min([age for _, age in found_rows], default=0)
    return BatchContents(len(found_rows), digest(values), youngest)


DIGEST_STATEMENTS: Mapping[int, tuple[str, Callable[[Iterable[Any]], str]]] = {
    DigestVersion.NUMBERS: ("archived_numbers", digest_of_numbers),
    DigestVersion.ROWS: ("archived_digests", digest_of_rows),
    DigestVersion.HISTORIES: ("archived_digests", digest_of_rows),
}
"""For each digest version: the statement that reads its input, and the function that computes the digest."""


async def _remove_expired_batch(session: SqlSession) -> int | None:
    """Remove one expired batch. Return how many messages were removed, or None if no batch has expired."""
    found_rows = await session.fetch("expired_batch") or await session.fetch("unfinished_batch")
    if not found_rows:
        return None
    ((number,),) = found_rows
    return await _remove(session, number, await _batch_messages(session, number), RemovalCause.EXPIRED)


async def _remove(session: SqlSession, number: int, numbers: Sequence[int], cause: RemovalCause) -> int:
    """Remove the messages of a batch that this transaction has locked. Return how many were removed."""
    removed = await session.change("delete_archived", numbers=numbers) if numbers else 0
    await session.change("delete_seals", number=number)
    await session.change("mark_batch_removed", number=number, removal=cause.value)
    return removed


async def archive_and_delete(
    session: SqlSession, numbers: Sequence[int], queue: str, outcome: Outcome, retention: Duration
) -> None:
    """Archive rows that this transaction has locked, or count them if the queue keeps no archive. Then delete them."""
    if retention:
        await session.change(
            "archive_messages", numbers=numbers, queue=queue, outcome=outcome.value, retention=retention
        )
        await session.change("add_unsealed", numbers=numbers)
        if outcome in RESTORABLE_OUTCOMES:
            await session.change("add_restorable", numbers=numbers)
    else:
        await session.change("count_unarchived", numbers=numbers, queue=queue)
    await session.change("delete_messages", numbers=numbers)
