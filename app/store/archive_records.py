"""The archive's batches in named statements, the same for every engine."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from typing import Any

from app.domain.archive import (
    SEALED_VERSION,
    STRETCH,
    USUAL_BOUND,
    ArchiveBatch,
    Bound,
    Candidate,
    Copy,
    DigestVersion,
    Found,
    RemovalCause,
    TrimResult,
    Unsealed,
    fitting,
    judged,
)
from app.domain.digest import digest_of_numbers, digest_of_rows
from app.domain.instant import DAY, Duration, Instant
from app.domain.settlement import TOMBSTONE_KEEP
from app.store import rows
from app.store.database import Database, Session

BATCH_KEEP: Duration = 366 * DAY
"""How long it is remembered that a batch was removed."""


class ArchiveRecords:
    """`Archive` over a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def first_unsealed(self, since: Instant) -> Unsealed | None:
        """See `Archive`."""
        return await _first_unsealed(self._database, since)

    async def seal(
        self, first: Unsealed, bound: Bound = USUAL_BOUND, version: DigestVersion = SEALED_VERSION
    ) -> ArchiveBatch | None:
        """See `Archive`. Numbers follow each other without a gap because whoever gives one holds the turn to the end."""

        async def work(session: Session) -> ArchiveBatch | None:
            if not await session.fetch("take_turn_if_free"):
                return None
            seen = await _first_unsealed(session, first.remove_at)
            if seen is None or seen.sequence_number != first.sequence_number:
                return None
            return await _seal(session, first.remove_at, bound, version)

        return await self._database.transaction(work)

    async def batches(self, after: int, most: int) -> list[ArchiveBatch]:
        """See `Archive`."""
        return [rows.batch(row) for row in await self._database.fetch("batches", after=after, most=most)]

    async def trim(self, copy: Copy) -> TrimResult:
        """See `Archive`."""

        async def work(session: Session) -> TrimResult:
            held = await session.fetch("hold_batch", number=copy.number)
            if not held:
                return TrimResult.UNKNOWN
            ((removed_at, digest, version),) = held
            if removed_at is not None:
                return TrimResult.ALREADY_REMOVED
            if version not in DIGESTS:
                # Sealed by a newer server: this one cannot verify the copy.
                return TrimResult.DIFFERS
            result = judged(copy, digest, await _found(session, copy.number, version), TOMBSTONE_KEEP)
            if result is TrimResult.TRIMMED:
                await _remove(session, copy.number, RemovalCause.TRIMMED)
            return result

        return await self._database.transaction(work)

    async def forget(self, most: int) -> int:
        """See `Archive`; a batch goes as a whole, also where it has more messages than were asked for."""
        gone = 0
        for _ in range(most):
            went = await self._database.transaction(_forget_one)
            if went is None or (gone := gone + went) >= most:
                break
        await self._forget_batches(most)
        return gone

    async def _forget_batches(self, most: int) -> None:
        """Forget batches that were removed long ago, but not the newest one, whose number the next one follows."""
        ((following, _),) = await self._database.fetch("next_batch")
        await self._database.change("forget_batches", before=following - 1, keep=BATCH_KEEP, most=most)


async def _first_unsealed(session: Session, since: Instant) -> Unsealed | None:
    found = await session.fetch("first_unsealed", since=since)
    return Unsealed(*found[0]) if found else None


async def _seal(session: Session, since: Instant, bound: Bound, version: DigestVersion) -> ArchiveBatch | None:
    """Give the next number to the messages that follow. Cut off before the commit, nothing has happened."""
    found = await session.fetch("unsealed", since=since, until=since + STRETCH, most=bound.messages)
    chosen = fitting([Candidate(*row) for row in found], bound.body_bytes)
    if not chosen:
        return None
    numbers = [candidate.sequence_number for candidate in chosen]
    ((number, now),) = await session.fetch("next_batch")
    await session.change("seal", numbers=numbers, batch=number)
    sealed = await _found(session, number, version)
    remove_at = max(one.remove_at for one in chosen)
    batch = ArchiveBatch(number, sealed.row_count, sealed.digest, now, remove_at, digest_version=version)
    await session.change("add_batch", **asdict(batch))
    return batch


async def _found(session: Session, number: int, version: int) -> Found:
    """Count and digest the rows of a batch as they are in the archive now."""
    statement, digest = DIGESTS[version]
    found = await session.fetch(statement, number=number)
    youngest = min((waited for _, waited in found), default=0)
    return Found(len(found), digest(covered for covered, _ in found), youngest)


DIGESTS: Mapping[int, tuple[str, Callable[[Iterable[Any]], str]]] = {
    DigestVersion.NUMBERS: ("ended_of_batch", digest_of_numbers),
    DigestVersion.ROWS: ("digests_of_batch", digest_of_rows),
}
"""For each version of digests the statement that gives what it is taken of, and how it is taken."""


async def _forget_one(session: Session) -> int | None:
    """Remove one batch past its time; how many messages went, None where there is no such batch."""
    found = await session.fetch("expired_batch")
    return await _remove(session, found[0][0], RemovalCause.EXPIRED) if found else None


async def _remove(session: Session, number: int, cause: RemovalCause) -> int:
    """Remove the messages of a batch that this transaction holds; how many went."""
    went = await session.change("delete_batch", number=number)
    await session.change("note_removal", number=number, removal=cause.value)
    return went
