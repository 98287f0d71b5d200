"""Claims on PostgreSQL: what many receivers wish goes in one statement, and whoever came first is served first."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import chain, repeat
from secrets import token_bytes

from app.domain.delivery import Claim, delivery_position
from app.domain.message import Message, MessageState
from app.domain.refusals import StoreUnavailable
from app.domain.settlement import SECRET_BYTES, LockToken
from app.domain.weight import weight_of
from app.runtime.clock import Clock
from app.runtime.coalescer import RequeueEntryError
from app.store.postgresql.scan_floors import Scan, ScanFloors, ScanPosition, ScanResult
from app.store.records import rows
from app.store.records.database import SqlSession
from app.store.records.rows import Row

MESSAGE_WIDTH = len(rows.MESSAGE_COLUMNS)
QUEUE_ID, PRIORITY, AVAILABLE_AT, READ_AT = map(
    rows.MESSAGE_COLUMNS.index, ("queue_id", "priority", "available_at", "read_at")
)
SLOT, SKIPPED, TRUNCATED_AT = MESSAGE_WIDTH, MESSAGE_WIDTH + 1, MESSAGE_WIDTH + 2
"""What the statement tells beside the message: its place in the order of the wishes, how many entries were passed, and
the first place whose message the budget had no room for, or None."""


async def claim(
    session: SqlSession, floors: ScanFloors, clock: Clock, claims: Sequence[Claim]
) -> list[list[Message] | Exception]:
    """The next messages for all these claims, each in order, together within one budget.

    A claim is answered with `RequeueEntryError` where the budget was spent before its queue was looked at to the end. The
    first one never is.

    A claim that got nothing although something is ready is tried once more: rows that another statement held for a
    moment were skipped, and not all of them need be gone.
    """
    batch = ClaimBatch(claims, clock)
    try:
        await _serve_all(session, floors, batch)
    except StoreUnavailable:
        # What was served is locked for its receivers, who had better hear of it.
        if not batch.has_served:
            raise
    return batch.results()


async def claim_one(session: SqlSession, floors: ScanFloors, clock: Clock, wanted_claim: Claim) -> list[Message]:
    """The next messages for one claim. Serves nothing if the transaction failed."""
    batch = ClaimBatch([wanted_claim], clock)
    await _serve_all(session, floors, batch)
    (answer,) = batch.results()
    if isinstance(answer, Exception):
        raise answer
    return answer


class ClaimBatch:
    """Claims and what each has been served so far."""

    def __init__(self, claims: Sequence[Claim], clock: Clock) -> None:
        self.claims = claims
        self.clock = clock
        self._requeued: set[int] = set()
        self._served: list[list[Message]] = [[] for _ in claims]
        self._by_queue: defaultdict[int, list[int]] = defaultdict(list)
        for claim_index, claim in enumerate(claims):
            self._by_queue[claim.queue_id].append(claim_index)

    def budget(self) -> int:
        """What is left of the budget that the claims share."""
        return max(claim.max_bytes for claim in self.claims) - sum(map(weight_of, chain.from_iterable(self._served)))

    def queue_ids(self) -> list[int]:
        """Every queue that is claimed from."""
        return list(self._by_queue)

    def incomplete(self) -> list[int]:
        """The queues with a claim that is not wholly served."""
        return [queue_id for queue_id, claim_indexes in self._by_queue.items() if any(map(self.missing, claim_indexes))]

    def unserved(self) -> list[int]:
        """The queues that were looked at to the end, with a claim that got nothing."""
        answered = [bool(served) or claim_index in self._requeued for claim_index, served in enumerate(self._served)]
        return [
            queue_id
            for queue_id, claim_indexes in self._by_queue.items()
            if not all(answered[claim_index] for claim_index in claim_indexes)
        ]

    @property
    def has_served(self) -> bool:
        """Whether anybody got anything."""
        return any(self._served)

    def claims_on(self, queue_id: int) -> list[int]:
        """The claims on a queue, by their place among all, in order of arrival."""
        return self._by_queue[queue_id]

    def missing(self, claim_index: int) -> int:
        """How many messages a claim still lacks."""
        return self.claims[claim_index].max_messages - len(self._served[claim_index])

    def serve(self, claim_index: int, message: Message) -> None:
        """Give a message to a claim."""
        self._served[claim_index].append(message)

    def requeue(self, claim_indexes: Iterable[int]) -> None:
        """Note that the budget was spent before it was the turn of these claims."""
        self._requeued.update(claim_indexes)

    @property
    def is_truncated(self) -> bool:
        """Whether the budget left something out."""
        return bool(self._requeued)

    def results(self) -> list[list[Message] | Exception]:
        """What each claim was served, in the order of delivery; one that the budget left nothing for is left over."""
        for served in self._served:
            if len(served) > 1:
                served.sort(key=_delivery_position)
        if not self.is_truncated:
            return [*self._served]
        return [
            RequeueEntryError() if not served and claim_index in self._requeued else served
            for claim_index, served in enumerate(self._served)
        ]


def _delivery_position(message: Message) -> tuple[int, ...]:
    if message.home_state is MessageState.DEAD_LETTERED:
        return (message.sequence_number,)
    return delivery_position(message)


async def _serve_all(session: SqlSession, floors: ScanFloors, batch: ClaimBatch) -> None:
    if batch.claims[0].source is MessageState.DEAD_LETTERED:
        await _serve_dead_letters(session, batch)
        return
    scan = floors.scan(batch.queue_ids())
    await _serve(session, floors, scan, batch)
    await _serve_again(session, floors, scan, batch)


async def _serve(session: SqlSession, floors: ScanFloors, scan: Scan, batch: ClaimBatch) -> None:
    """Ask for what is missing in the queues of the look, and serve it."""
    slots: list[int] = []
    before: list[int] = []
    most: list[int] = []
    for queue_id in scan.queue_ids:
        before.append(len(slots))
        for claim_index in batch.claims_on(queue_id):
            slots.extend(repeat(claim_index, batch.missing(claim_index)))
        most.append(len(slots) - before[-1])
    positions = scan.positions()
    asked_at = batch.clock.monotonic()
    try:
        found = await session.fetch(
            "claim",
            queue_id=scan.queue_ids,
            most=most,
            before=before,
            floor_time=[time for time, _ in positions],
            floor_number=[number for _, number in positions],
            secrets=token_bytes(SECRET_BYTES * len(slots)),
            duration=[batch.claims[claim_index].lock_duration for claim_index in slots],
            receiver_id=[batch.claims[claim_index].receiver_id for claim_index in slots],
            budget=batch.budget(),
        )
        for row in found:
            slot: int = row[SLOT]
            batch.serve(slots[slot - 1], rows.message(row[:MESSAGE_WIDTH], asked_at))
        truncated_at: int | None = found[-1][TRUNCATED_AT] if found else None
        if truncated_at is not None:
            batch.requeue(slots[truncated_at - 1 :])
        if found and floors.needs_update(skipped := found[-1][SKIPPED] - len(found)):
            floors.update(
                scan,
                _scan_results(scan, most, found, is_truncated=truncated_at is not None),
                skipped,
                found[-1][READ_AT],
            )
    except BaseException:
        for queue_id in scan.queue_ids:
            floors.discard(queue_id)
        raise
    finally:
        floors.finish(scan)


async def _serve_again(session: SqlSession, floors: ScanFloors, scan: Scan, batch: ClaimBatch) -> None:
    """Serve claims that came short: from below the floors where that is cheap, and where something is ready after all.

    Once the budget is spent, only claims that got nothing from a queue that was looked at to the end are served again.
    """
    incomplete = batch.unserved() if batch.is_truncated else batch.incomplete()
    if cheap := floors.cheap_to_scan_below([queue_id for queue_id in incomplete if queue_id not in scan.from_start]):
        await _serve(session, floors, floors.scan_below(cheap), batch)
    if unserved := [queue_id for queue_id in batch.unserved() if queue_id in scan.from_start]:
        await _serve_claimable(session, floors, unserved, batch)


async def _serve_claimable(
    session: SqlSession, floors: ScanFloors, queue_ids: Sequence[int], batch: ClaimBatch
) -> None:
    """Look whether something can be claimed after all, and if so claim once more."""
    scan = floors.scan_below(queue_ids)
    try:
        ((claimable, now, skipped),) = await session.fetch("claimable_queues", queue_id=queue_ids)
        if floors.needs_update(skipped):
            results = {queue_id: ScanResult(None, is_exhausted=queue_id not in claimable) for queue_id in queue_ids}
            floors.update(scan, results, skipped, now)
    finally:
        floors.finish(scan)
    if claimable:
        await _serve(session, floors, floors.scan_below(claimable), batch)


def _scan_results(
    scan: Scan, most: Sequence[int], found: Sequence[Row], *, is_truncated: bool
) -> dict[int, ScanResult]:
    """What a look has brought, queue by queue. One that the budget has cut exhausts nothing."""
    last: dict[int, tuple[int, ScanPosition]] = {}
    for row in sorted(found, key=lambda row: row[SLOT]):
        last[row[QUEUE_ID]] = (row[PRIORITY], (row[AVAILABLE_AT], row[0]))
    counts = Counter(row[QUEUE_ID] for row in found)
    return {
        queue_id: ScanResult(last.get(queue_id), is_exhausted=not is_truncated and counts[queue_id] < wanted)
        for queue_id, wanted in zip(scan.queue_ids, most, strict=True)
    }


async def _serve_dead_letters(session: SqlSession, batch: ClaimBatch) -> None:
    """Serve the next messages of dead-letter queues, by number."""
    for claim_index, claim in enumerate(batch.claims):
        asked_at = batch.clock.monotonic()
        found = await session.fetch(
            "claim_dead_letters",
            queue_id=claim.queue_id,
            most=claim.max_messages,
            secrets=token_bytes(SECRET_BYTES * claim.max_messages),
            duration=claim.lock_duration,
            receiver_id=claim.receiver_id,
            budget=claim.max_bytes,
        )
        for message in _in_slot_order(found, asked_at):
            batch.serve(claim_index, message)


async def claim_by_number(session: SqlSession, clock: Clock, claim: Claim, numbers: Sequence[int]) -> list[Message]:
    """These messages, as far as they are in the state that is claimed from, in this order."""
    wanted = list(dict.fromkeys(numbers))
    asked_at = clock.monotonic()
    found = await session.fetch(
        "claim_by_number",
        number=wanted,
        queue_id=claim.queue_id,
        source=claim.source.value,
        most=claim.max_messages,
        secrets=token_bytes(SECRET_BYTES * len(wanted)),
        duration=claim.lock_duration,
        receiver_id=claim.receiver_id,
        budget=claim.max_bytes,
    )
    return _in_slot_order(found, asked_at)


async def still_locked(session: SqlSession, clock: Clock, tokens: Sequence[LockToken]) -> list[Message]:
    """The messages of these deliveries whose locks still live, in order."""
    asked_at = clock.monotonic()
    found = await session.fetch("still_locked", numbers=[token.sequence_number for token in tokens])
    return rows.messages_locked_by(tokens, found, asked_at)


def _in_slot_order(found: Iterable[Row], asked_at: float) -> list[Message]:
    return [rows.message(row[:MESSAGE_WIDTH], asked_at) for row in sorted(found, key=lambda row: row[SLOT])]
