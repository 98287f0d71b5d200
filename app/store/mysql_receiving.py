"""Receiving on MariaDB and MySQL: rows are locked and read, then given to their receivers."""

import secrets
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeAlias

from app.domain.delivery import Claim
from app.domain.instant import Instant
from app.domain.message import Message, MessageState
from app.domain.settlement import SECRET_BYTES, LockToken
from app.runtime.clock import Clock
from app.runtime.coalescer import LeftOverError
from app.store import rows
from app.store.mysql_session import Ask, Session
from app.store.mysql_text import column, table
from app.store.pace import Pace
from app.store.rows import MESSAGE_COLUMNS, Row

NEXT: Mapping[MessageState, str] = {
    MessageState.AVAILABLE: "next_available",
    MessageState.DEAD_LETTERED: "next_dead_lettered",
}
"""The statement that finds the next messages in a state; deferred ones are only asked for by number."""

COLUMN: Mapping[str, int] = {name: place for place, name in enumerate(MESSAGE_COLUMNS)}
WEIGHT = len(MESSAGE_COLUMNS)
"""Where a row that was looked at has the weight of its message."""

Line: TypeAlias = tuple[int, MessageState]
"""A queue, and the state that is claimed from."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """A row that this transaction has locked and read, and the claim that gets it."""

    row: Row
    claim: Claim
    secret: bytes
    asked: float
    """The monotonic clock before the row was asked for."""

    @property
    def sequence_number(self) -> int:
        return self.row[COLUMN["sequence_number"]]

    @property
    def read_at(self) -> Instant:
        return self.row[COLUMN["read_at"]]

    @property
    def locked_until(self) -> Instant:
        return self.read_at + self.claim.lock_duration

    def written(self) -> Mapping[str, Any]:
        """What the statement `lock` makes of the row."""
        return {
            "sequence_number": self.sequence_number,
            "home_state": self.claim.source.value,
            "lock_token": self.secret,
            "read_at": self.read_at,
            "locked_until": self.locked_until,
            "receiver_id": self.claim.receiver_id,
        }

    @property
    def is_light(self) -> bool:
        """Whether the row came without its body and properties."""
        return self.row[COLUMN["body"]] is None

    def message(self, left_out: tuple[str, bytes] | None) -> Message:
        """The message as it is once that statement has run, with what the row came without."""
        row = list(self.row)
        if left_out is not None:
            row[COLUMN["properties"]], row[COLUMN["body"]] = left_out
        row[COLUMN["state"]] = MessageState.LOCKED.value
        row[COLUMN["home_state"]] = self.claim.source.value
        row[COLUMN["delivery_count"]] += 1
        row[COLUMN["lock_token"]] = self.secret
        row[COLUMN["locked_until"]] = self.locked_until
        row[COLUMN["lock_generation"]] = 0
        row[COLUMN["receiver_id"]] = self.claim.receiver_id
        row[COLUMN["last_delivered_at"]] = self.read_at
        return rows.message(row, self.asked)


async def claim(
    session: Session, clock: Clock, claims: Sequence[Claim], ask: Ask, pace: Pace[Line]
) -> list[list[Message] | Exception]:
    """Lock the next messages for each claim, together within one budget; claims of one queue are served in their order.

    A claim is answered with `LeftOverError` where its line has a message that the budget had no room for. The first
    one never is. Rows behind the budget are locked until the transaction ends; `pace` keeps them few.
    """
    asked: defaultdict[Line, int] = defaultdict(int)
    for wish in claims:
        asked[wish.queue_id, wish.source] += wish.most
    budget = max(wish.budget for wish in claims)
    began = clock.monotonic()
    found = await _find(session, asked, budget, pace)
    shares = _share(claims, found, budget, began)
    cut = _cut(claims, found, shares)
    for line, fitted in cut.items():
        if fitted:
            pace.was_cut(line, fitted)
    delivered = await _deliver(session, shares, ask)
    return [
        LeftOverError() if not messages and (wish.queue_id, wish.source) in cut else messages
        for wish, messages in zip(claims, delivered, strict=True)
    ]


async def claim_alone(session: Session, clock: Clock, wish: Claim, ask: Ask, pace: Pace[Line]) -> list[Message]:
    """Lock the next messages for one claim."""
    (answer,) = await claim(session, clock, [wish], ask, pace)
    if isinstance(answer, Exception):
        raise answer
    return answer


async def claim_these(session: Session, clock: Clock, wish: Claim, numbers: Sequence[int]) -> list[Message]:
    """Lock these messages as far as they are where the claim takes from, in this order."""
    wanted = list(dict.fromkeys(numbers))
    began = clock.monotonic()
    found = await session.fetch(
        "these", numbers=column(wanted), queue_id=wish.queue_id, source=wish.source.value, most=wish.most
    )
    by_number = {row[COLUMN["sequence_number"]]: row for row in found}
    in_order = [by_number[number] for number in wanted if number in by_number]
    shares = _share([wish], {(wish.queue_id, wish.source): in_order}, wish.budget, began)
    (messages,) = await _deliver(session, shares, session.finish)
    return messages


async def still_locked(session: Session, clock: Clock, tokens: Sequence[LockToken]) -> list[Message]:
    """The messages of these deliveries whose locks still live, in order."""
    if not tokens:
        return []
    asked = clock.monotonic()
    found = await session.fetch("still_locked", numbers=[token.sequence_number for token in tokens])
    return rows.held_by(tokens, found, asked)


async def _find(
    session: Session, asked: Mapping[Line, int], budget: int, pace: Pace[Line]
) -> dict[Line, Sequence[Row]]:
    """What is next in each line: all that is asked for, or more than the budget has room for."""
    looks = {line: pace.most(line, most) for line, most in asked.items()}
    while True:
        texts = [session.text(NEXT[source], queue_id=queue_id, most=most) for (queue_id, source), most in looks.items()]
        answers = await session.ask(*texts)
        found = {line: answer.rows for line, answer in zip(looks, answers, strict=True)}
        short = [
            line
            for line, rows_found in found.items()
            if len(rows_found) == looks[line] < asked[line] and sum(row[WEIGHT] for row in rows_found) <= budget
        ]
        if not short:
            return found
        for line in short:
            looks[line] = min(asked[line], pace.was_short(line))


def _share(
    claims: Sequence[Claim], found: Mapping[Line, Sequence[Row]], budget: int, asked: float
) -> list[list[Delivery]]:
    """What each claim gets. Nothing follows the first message that the budget has no room for."""
    lines = {line: iter(rows_found) for line, rows_found in found.items()}
    shares: list[list[Delivery]] = [[] for _ in claims]
    total = 0
    for wish, share in zip(claims, shares, strict=True):
        for row in islice(lines[wish.queue_id, wish.source], wish.most):
            if total and total + row[WEIGHT] > budget:
                return shares
            total += row[WEIGHT]
            share.append(Delivery(row[:WEIGHT], wish, secrets.token_bytes(SECRET_BYTES), asked))
    return shares


def _cut(
    claims: Sequence[Claim], found: Mapping[Line, Sequence[Row]], shares: Sequence[Sequence[Delivery]]
) -> dict[Line, int]:
    """The lines with a message that the budget had no room for, and how many of each fitted."""
    fitted = dict.fromkeys(found, 0)
    for wish, share in zip(claims, shares, strict=True):
        fitted[wish.queue_id, wish.source] += len(share)
    return {line: count for line, count in fitted.items() if count < len(found[line])}


async def _deliver(session: Session, deliveries: Sequence[Sequence[Delivery]], ask: Ask) -> list[list[Message]]:
    """Write who has what; the messages of each claim, once their rows say so."""
    flat = [delivery for of_one in deliveries for delivery in of_one]
    if not flat:
        return [[] for _ in deliveries]
    texts = [session.text("lock", rows=table([delivery.written() for delivery in flat]))]
    # Large bodies are only read now that they are known to be delivered, in the same round trip.
    if heavy := [delivery.sequence_number for delivery in flat if delivery.is_light]:
        texts.append(session.text("heavy", numbers=heavy))
    answers = await ask(*texts)
    left_out = {number: (properties, body) for number, properties, body in answers[1].rows} if heavy else {}
    return [[delivery.message(left_out.get(delivery.sequence_number)) for delivery in of_one] for of_one in deliveries]
