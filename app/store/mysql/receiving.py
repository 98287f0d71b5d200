"""Receiving on MariaDB and MySQL: first lock and read rows, then give them to their receivers."""

import secrets
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeAlias

from app.domain.delivery import Claim, lock_end
from app.domain.instant import Instant
from app.domain.message import Message, MessageState
from app.domain.settlement import SECRET_BYTES
from app.domain.weight import count_that_fit
from app.runtime.clock import Clock
from app.runtime.coalescer import RequeueEntryError
from app.store.mysql.scan_limits import ScanLimits
from app.store.mysql.session import Execute, MysqlSession
from app.store.mysql.templates import numbers_json, rows_json
from app.store.shared import message_rows
from app.store.shared.history import any_keeps_history, record_delivered
from app.store.shared.message_rows import MESSAGE_COLUMNS
from app.store.shared.rows import IS_OFFERED, Row

NEXT_STATEMENTS: Mapping[MessageState, str] = {
    MessageState.AVAILABLE: "next_available",
    MessageState.DEAD_LETTERED: "next_dead_lettered",
}
"""The statement that finds the next messages in a state. Deferred messages are only received by number."""

COLUMN: Mapping[str, int] = {name: index for index, name in enumerate(MESSAGE_COLUMNS)}
WEIGHT = len(MESSAGE_COLUMNS)
"""The column with the weight of the message in a row that was scanned."""

SourceKey: TypeAlias = tuple[int, MessageState]
"""A queue, and the source state of a claim."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """A row that this transaction has locked and read, and the claim that gets it."""

    row: Row
    claim: Claim
    secret: bytes
    read_started_at: float
    """The monotonic clock before the row was requested."""

    @property
    def sequence_number(self) -> int:
        return self.row[COLUMN["sequence_number"]]

    @property
    def read_at(self) -> Instant:
        return self.row[COLUMN["read_at"]]

    @property
    def locked_until(self) -> Instant:
        expires_at = self.row[COLUMN["expires_at"]]
        return lock_end(self.read_at, self.claim.lock_duration, expires_at, self.claim.source)

    def lock_params(self) -> Mapping[str, Any]:
        """Return the parameters of the statement `lock` for the row."""
        return {
            "sequence_number": self.sequence_number,
            "home_state": self.claim.source.value,
            "lock_token": self.secret,
            "read_at": self.read_at,
            "locked_until": self.locked_until,
            "receiver_id": self.claim.receiver_id,
        }

    @property
    def omits_body(self) -> bool:
        """Return whether the row came without its body and properties."""
        return self.row[COLUMN["body"]] is None

    def message(self, omitted: tuple[str, bytes] | None) -> Message:
        """Return the message as it is after the statement `lock`, with the body and properties that the row omitted."""
        row = list(self.row)
        if omitted is not None:
            row[COLUMN["properties"]], row[COLUMN["body"]] = omitted
        row[COLUMN["state"]] = MessageState.LOCKED.value
        if row[COLUMN["home_state"]] != IS_OFFERED:
            row[COLUMN["home_state"]] = self.claim.source.value
        row[COLUMN["delivery_count"]] += 1
        row[COLUMN["lock_token"]] = self.secret
        row[COLUMN["locked_until"]] = self.locked_until
        row[COLUMN["lock_generation"]] = 0
        row[COLUMN["receiver_id"]] = self.claim.receiver_id
        if row[COLUMN["first_delivered_at"]] is None:
            row[COLUMN["first_delivered_at"]] = self.read_at
        row[COLUMN["last_delivered_at"]] = self.read_at
        return message_rows.message(row, self.read_started_at)


async def claim(
    session: MysqlSession, clock: Clock, claims: Sequence[Claim], execute: Execute, scan_limits: ScanLimits[SourceKey]
) -> list[list[Message] | Exception]:
    """Lock the next messages for each claim, together within one budget. Claims of one queue are served in their order.

    A claim gets `RequeueEntryError` if the budget had no room for a message of its queue and source. The first claim
    never does. Rows beyond the budget stay locked until the transaction ends; `scan_limits` keeps them few.
    """
    requested: defaultdict[SourceKey, int] = defaultdict(int)
    for wanted_claim in claims:
        requested[wanted_claim.queue_id, wanted_claim.source] += wanted_claim.max_messages
    budget = max(wanted_claim.max_bytes for wanted_claim in claims)
    read_started_at = clock.monotonic()
    rows_by_source = await _find(session, requested, budget, scan_limits)
    allocations = _allocate(claims, rows_by_source, budget, read_started_at)
    truncated = _truncated(claims, rows_by_source, allocations)
    for source_key, fitted in truncated.items():
        if fitted:
            scan_limits.shrink(source_key, fitted)
    delivered = await _deliver(session, allocations, session.execute if any_keeps_history(claims) else execute)
    await record_delivered(session, claims, delivered)
    return [
        RequeueEntryError() if not messages and (wanted_claim.queue_id, wanted_claim.source) in truncated else messages
        for wanted_claim, messages in zip(claims, delivered, strict=True)
    ]


async def claim_unbatched(
    session: MysqlSession, clock: Clock, wanted_claim: Claim, execute: Execute, scan_limits: ScanLimits[SourceKey]
) -> list[Message]:
    """Lock the next messages for one claim."""
    (answer,) = await claim(session, clock, [wanted_claim], execute, scan_limits)
    if isinstance(answer, Exception):
        raise answer
    return answer


async def claim_by_number(
    session: MysqlSession, clock: Clock, wanted_claim: Claim, numbers: Sequence[int]
) -> list[Message]:
    """Lock those of these messages that are in the claim's source state, in this order."""
    distinct_numbers = list(dict.fromkeys(numbers))
    read_started_at = clock.monotonic()
    found_rows = await session.fetch(
        "by_number",
        numbers=numbers_json(distinct_numbers),
        queue_id=wanted_claim.queue_id,
        source=wanted_claim.source.value,
        limit=wanted_claim.max_messages,
    )
    by_number = {row[COLUMN["sequence_number"]]: row for row in found_rows}
    in_order = [by_number[number] for number in distinct_numbers if number in by_number]
    allocations = _allocate(
        [wanted_claim],
        {(wanted_claim.queue_id, wanted_claim.source): in_order},
        wanted_claim.max_bytes,
        read_started_at,
    )
    run = session.execute if wanted_claim.keeps_history else session.commit
    (messages,) = await _deliver(session, allocations, run)
    await record_delivered(session, [wanted_claim], [messages])
    return messages


async def _find(
    session: MysqlSession, requested: Mapping[SourceKey, int], budget: int, scan_limits: ScanLimits[SourceKey]
) -> dict[SourceKey, Sequence[Row]]:
    """Find the next messages of each queue and source: all that are requested, or more than the budget has room for."""
    limits = {source_key: scan_limits.limit(source_key, most) for source_key, most in requested.items()}
    while True:
        texts = [
            session.render(NEXT_STATEMENTS[source], queue_id=queue_id, limit=limit)
            for (queue_id, source), limit in limits.items()
        ]
        answers = await session.execute(*texts)
        rows_by_source = {source_key: answer.rows for source_key, answer in zip(limits, answers, strict=True)}
        incomplete = [
            source_key
            for source_key, source_rows in rows_by_source.items()
            if len(source_rows) == limits[source_key] < requested[source_key]
            and sum(row[WEIGHT] for row in source_rows) <= budget
        ]
        if not incomplete:
            return rows_by_source
        for source_key in incomplete:
            limits[source_key] = min(requested[source_key], scan_limits.grow(source_key))


def _allocate(
    claims: Sequence[Claim], rows_by_source: Mapping[SourceKey, Sequence[Row]], budget: int, read_started_at: float
) -> list[list[Delivery]]:
    """Return what each claim gets. Nothing follows the first message that the budget has no room for."""
    remaining_rows = {source_key: iter(source_rows) for source_key, source_rows in rows_by_source.items()}
    allocations: list[list[Delivery]] = [[] for _ in claims]
    candidates = [
        (wanted_claim, allocation, row)
        for wanted_claim, allocation in zip(claims, allocations, strict=True)
        for row in islice(remaining_rows[wanted_claim.queue_id, wanted_claim.source], wanted_claim.max_messages)
    ]
    count = count_that_fit((row[WEIGHT] for *_, row in candidates), budget)
    for wanted_claim, allocation, row in candidates[:count]:
        allocation.append(Delivery(row[:WEIGHT], wanted_claim, secrets.token_bytes(SECRET_BYTES), read_started_at))
    return allocations


def _truncated(
    claims: Sequence[Claim],
    rows_by_source: Mapping[SourceKey, Sequence[Row]],
    allocations: Sequence[Sequence[Delivery]],
) -> dict[SourceKey, int]:
    """Return each queue and source that exceeded the budget, and how many of its messages fitted."""
    fitted = dict.fromkeys(rows_by_source, 0)
    for wanted_claim, allocation in zip(claims, allocations, strict=True):
        fitted[wanted_claim.queue_id, wanted_claim.source] += len(allocation)
    return {source_key: count for source_key, count in fitted.items() if count < len(rows_by_source[source_key])}


async def _deliver(
    session: MysqlSession, deliveries: Sequence[Sequence[Delivery]], execute: Execute
) -> list[list[Message]]:
    """Write which claim has which message. Return the messages of each claim after their rows are updated."""
    all_deliveries = [delivery for of_one in deliveries for delivery in of_one]
    if not all_deliveries:
        return [[] for _ in deliveries]
    texts = [session.render("lock", rows=rows_json([delivery.lock_params() for delivery in all_deliveries]))]
    # Large bodies are read only now, when their delivery is certain, in the same round trip.
    if large := [delivery.sequence_number for delivery in all_deliveries if delivery.omits_body]:
        texts.append(session.render("large_bodies", numbers=large))
    answers = await execute(*texts)
    omitted = {number: (properties, body) for number, properties, body in answers[1].rows} if large else {}
    return [[delivery.message(omitted.get(delivery.sequence_number)) for delivery in of_one] for of_one in deliveries]
