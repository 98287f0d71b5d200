"""Claims on PostgreSQL: one statement serves the claims of many receivers, in order of arrival."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import accumulate, chain, repeat
from operator import attrgetter
from secrets import token_bytes

from app.domain.delivery import Claim, delivery_position
from app.domain.message import Message, MessageState
from app.domain.refusals import StoreUnavailable
from app.domain.settlement import SECRET_BYTES
from app.domain.weight import weight_of
from app.runtime.clock import Clock
from app.runtime.coalescer import RequeueEntryError
from app.store.postgresql.entries import short_array
from app.store.postgresql.scan_bounds import Scan, ScanBounds, ScanPosition, ScanResult
from app.store.shared import message_rows
from app.store.shared.database import SqlSession
from app.store.shared.history import any_keeps_history, record_delivered
from app.store.shared.rows import Row

MESSAGE_WIDTH = len(message_rows.MESSAGE_COLUMNS)
QUEUE_ID, PRIORITY, AVAILABLE_AT, READ_AT = map(
    message_rows.MESSAGE_COLUMNS.index, ("queue_id", "priority", "available_at", "read_at")
)
SLOT, ENTRIES_READ, TRUNCATED_AT = MESSAGE_WIDTH, MESSAGE_WIDTH + 1, MESSAGE_WIDTH + 2
"""The columns after the message: its slot, how many index entries the scan has read, and the first slot whose message
exceeded the budget, or None."""


async def claim(
    session: SqlSession, bounds: ScanBounds, clock: Clock, claims: Sequence[Claim]
) -> list[list[Message] | Exception]:
    """Return the next messages for all these claims, each in order, together within one budget.

    A claim gets `RequeueEntryError` if the budget was spent before its queue was scanned to the end. The first claim
    never does.

    A claim that got nothing although a message is available is tried once more: the scan skipped rows that another
    statement had locked for a moment, and some of them may be available again.
    """
    batch = ClaimBatch(claims, clock)
    try:
        await _serve_all(session, bounds, batch)
    except StoreUnavailable:
        # The served messages are locked for their receivers, so return them.
        if not any(batch.served):
            raise
    return batch.results()


async def claim_in_transaction(
    session: SqlSession, bounds: ScanBounds, clock: Clock, claims: Sequence[Claim]
) -> list[list[Message] | Exception]:
    """Within a transaction: claim as `claim` does. Serves nothing if the transaction failed."""
    batch = ClaimBatch(claims, clock)
    await _serve_all(session, bounds, batch)
    return batch.results()


async def claim_unbatched(session: SqlSession, bounds: ScanBounds, clock: Clock, wanted_claim: Claim) -> list[Message]:
    """Within a transaction: return the next messages for one claim. Serves nothing if the transaction failed."""
    (answer,) = await claim_in_transaction(session, bounds, clock, [wanted_claim])
    if isinstance(answer, Exception):
        raise answer
    return answer


class ClaimBatch:
    """Claims, the name of their statement, and the messages served to each so far."""

    def __init__(self, claims: Sequence[Claim], clock: Clock) -> None:
        self.claims = claims
        self.clock = clock
        self.statement = "claim_recorded" if any_keeps_history(claims) else "claim"
        self.served: list[list[Message]] = [[] for _ in claims]
        self._requeued: set[int] = set()
        self._by_queue: defaultdict[int, list[int]] = defaultdict(list)
        for claim_index, claim in enumerate(claims):
            self._by_queue[claim.queue_id].append(claim_index)

    def budget(self) -> int:
        """Return what is left of the budget that the claims share."""
        return max(map(attrgetter("max_bytes"), self.claims)) - sum(map(weight_of, chain.from_iterable(self.served)))

    def queue_ids(self) -> list[int]:
        """Return every queue that has a claim."""
        return list(self._by_queue)

    def unserved(self) -> list[int]:
        """Return the queues that were scanned to the end and have a claim that got nothing."""
        unserved = {
            claim.queue_id
            for claim_index, claim in enumerate(self.claims)
            if not self.served[claim_index] and claim_index not in self._requeued
        }
        return [queue_id for queue_id in self._by_queue if queue_id in unserved]

    def claims_on(self, queue_id: int) -> list[int]:
        """Return the indexes of the claims on a queue, in order of arrival."""
        return self._by_queue[queue_id]

    def missing(self, claim_index: int) -> int:
        """Return how many messages a claim may still get.

        None after its first statement with a message, because the next one would exceed the budget by its first message.
        """
        return 0 if self.served[claim_index] else self.claims[claim_index].max_messages

    def requeue(self, claim_indexes: Iterable[int]) -> None:
        """Record that the budget was spent before these claims were served."""
        self._requeued.update(claim_indexes)

    def results(self) -> list[list[Message] | Exception]:
        """Return what each claim got, in order of delivery, or `RequeueEntryError` if the budget left it nothing."""
        for served in self.served:
            if len(served) > 1:
                served.sort(key=_delivery_position)
        if not self._requeued:
            return [*self.served]
        return [
            RequeueEntryError() if not served and claim_index in self._requeued else served
            for claim_index, served in enumerate(self.served)
        ]


def _delivery_position(message: Message) -> tuple[int, ...]:
    if message.home_state is MessageState.DEAD_LETTERED:
        return (message.sequence_number,)
    return delivery_position(message)


async def _serve_all(session: SqlSession, bounds: ScanBounds, batch: ClaimBatch) -> None:
    if batch.claims[0].source is MessageState.DEAD_LETTERED:
        await _serve_dead_letters(session, batch)
        return
    scan = bounds.scan(batch.queue_ids())
    await _serve(session, bounds, scan, batch)
    await _serve_again(session, bounds, scan, batch)


async def _serve(session: SqlSession, bounds: ScanBounds, scan: Scan, batch: ClaimBatch) -> None:
    """Fetch the missing messages of the scanned queues, and serve them."""
    slots: list[int] = []
    slot_counts: list[int] = []
    for queue_id in scan.queue_ids:
        slots_before = len(slots)
        for claim_index in batch.claims_on(queue_id):
            slots.extend(repeat(claim_index, batch.missing(claim_index)))
        slot_counts.append(len(slots) - slots_before)
    read_started_at = batch.clock.monotonic()
    try:
        found_rows = await _fetch(session, scan, batch, slots, slot_counts)
        for row in found_rows:
            slot: int = row[SLOT]
            batch.served[slots[slot - 1]].append(message_rows.message(row[:MESSAGE_WIDTH], read_started_at))
        truncated_at: int | None = found_rows[-1][TRUNCATED_AT] if found_rows else None
        if truncated_at is not None:
            batch.requeue(slots[truncated_at - 1 :])
        if found_rows and bounds.needs_update(skipped := found_rows[-1][ENTRIES_READ] - len(found_rows)):
            bounds.update(
                scan,
                _scan_results(scan, slot_counts, found_rows, is_truncated=truncated_at is not None),
                skipped,
                found_rows[-1][READ_AT],
            )
    except BaseException:
        for queue_id in scan.queue_ids:
            bounds.discard(queue_id)
        raise
    finally:
        bounds.finish(scan)


async def _fetch(
    session: SqlSession, scan: Scan, batch: ClaimBatch, slots: Sequence[int], slot_counts: Sequence[int]
) -> Sequence[Row]:
    """Fetch a message for each slot, which is the index of its claim. `slot_counts` counts those of each scanned queue."""
    claims = [batch.claims[claim_index] for claim_index in slots]
    positions = scan.positions()
    if len(claims) == 1 and not positions:
        # The budget is no matter: it never refuses the first message.
        (claim,) = claims
        return await session.fetch(
            f"{batch.statement}_one",
            queue_id=claim.queue_id,
            secret=token_bytes(SECRET_BYTES),
            lock_duration=claim.lock_duration,
            receiver_id=claim.receiver_id,
        )
    return await session.fetch(
        batch.statement,
        queue_id=scan.queue_ids,
        max_messages=slot_counts,
        slots_before=list(accumulate(slot_counts, initial=0))[:-1],
        bound_time=[time for time, _ in positions],
        bound_number=[number for _, number in positions],
        secrets=token_bytes(SECRET_BYTES * len(claims)),
        lock_duration=short_array([claim.lock_duration for claim in claims]),
        receiver_id=short_array([claim.receiver_id for claim in claims]),
        budget=batch.budget(),
    )


async def _serve_again(session: SqlSession, bounds: ScanBounds, scan: Scan, batch: ClaimBatch) -> None:
    """Serve claims again that got nothing: below their `ScanBound` if that is cheap, and if a message is available after
    all."""
    above_bound = [queue_id for queue_id in batch.unserved() if queue_id not in scan.from_start]
    if cheap := bounds.cheap_to_scan_below(above_bound):
        await _serve(session, bounds, bounds.scan_below(cheap), batch)
    if unserved := [queue_id for queue_id in batch.unserved() if queue_id in scan.from_start]:
        await _serve_claimable(session, bounds, unserved, batch)


async def _serve_claimable(
    session: SqlSession, bounds: ScanBounds, queue_ids: Sequence[int], batch: ClaimBatch
) -> None:
    """Check which queues have a claimable message, and claim from those once more."""
    scan = bounds.scan_below(queue_ids)
    try:
        ((claimable, now, skipped),) = await session.fetch("claimable_queues", queue_id=queue_ids)
        if bounds.needs_update(skipped):
            results = {queue_id: ScanResult(None, is_exhausted=queue_id not in claimable) for queue_id in queue_ids}
            bounds.update(scan, results, skipped, now)
    finally:
        bounds.finish(scan)
    if claimable:
        await _serve(session, bounds, bounds.scan_below(claimable), batch)


def _scan_results(
    scan: Scan, slot_counts: Sequence[int], found_rows: Sequence[Row], *, is_truncated: bool
) -> dict[int, ScanResult]:
    """Return the result of a scan by queue. A scan that the budget truncated exhausts no queue."""
    last: dict[int, tuple[int, ScanPosition]] = {}
    for row in sorted(found_rows, key=lambda row: row[SLOT]):
        last[row[QUEUE_ID]] = (row[PRIORITY], (row[AVAILABLE_AT], row[0]))
    counts = Counter(row[QUEUE_ID] for row in found_rows)
    return {
        queue_id: ScanResult(last.get(queue_id), is_exhausted=not is_truncated and counts[queue_id] < slot_count)
        for queue_id, slot_count in zip(scan.queue_ids, slot_counts, strict=True)
    }


async def _serve_dead_letters(session: SqlSession, batch: ClaimBatch) -> None:
    """Serve the next messages of dead-letter queues, by number. The session is a transaction if a claim is recorded."""
    for claim_index, claim in enumerate(batch.claims):
        read_started_at = batch.clock.monotonic()
        found_rows = await session.fetch(
            "claim_dead_letters",
            queue_id=claim.queue_id,
            limit=claim.max_messages,
            secrets=token_bytes(SECRET_BYTES * claim.max_messages),
            lock_duration=claim.lock_duration,
            receiver_id=claim.receiver_id,
            budget=claim.max_bytes,
        )
        messages = _in_slot_order(found_rows, read_started_at)
        await record_delivered(session, [claim], [messages])
        batch.served[claim_index] += messages


async def claim_by_number(session: SqlSession, clock: Clock, claim: Claim, numbers: Sequence[int]) -> list[Message]:
    """Return those of these messages that are in the claim's source state, in this order.

    The session is a transaction if the claim is recorded.
    """
    distinct_numbers = list(dict.fromkeys(numbers))
    read_started_at = clock.monotonic()
    found_rows = await session.fetch(
        "claim_by_number",
        numbers=distinct_numbers,
        queue_id=claim.queue_id,
        source=claim.source.value,
        limit=claim.max_messages,
        secrets=token_bytes(SECRET_BYTES * len(distinct_numbers)),
        lock_duration=claim.lock_duration,
        receiver_id=claim.receiver_id,
        budget=claim.max_bytes,
    )
    messages = _in_slot_order(found_rows, read_started_at)
    await record_delivered(session, [claim], [messages])
    return messages


def _in_slot_order(found_rows: Iterable[Row], read_started_at: float) -> list[Message]:
    return [
        message_rows.message(row[:MESSAGE_WIDTH], read_started_at)
        for row in sorted(found_rows, key=lambda row: row[SLOT])
    ]
