"""Receiving on MariaDB and MySQL: rows are locked and read, then given to their receivers."""

import secrets
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from app.domain.delivery import Claim
from app.domain.instant import Instant
from app.domain.message import Message, MessageState
from app.domain.settlement import SECRET_BYTES, LockToken
from app.store import rows
from app.store.mysql_session import Ask, Session
from app.store.mysql_text import column, table
from app.store.rows import MESSAGE_COLUMNS, Row

NEXT: Mapping[MessageState, str] = {
    MessageState.AVAILABLE: "next_available",
    MessageState.DEAD_LETTERED: "next_dead_lettered",
}
"""The statement that finds the next messages in a state; deferred ones are only asked for by number."""

COLUMN: Mapping[str, int] = {name: place for place, name in enumerate(MESSAGE_COLUMNS)}


@dataclass(frozen=True, slots=True)
class Delivery:
    """A row that this transaction has locked and read, and the claim that gets it."""

    row: Row
    claim: Claim
    secret: bytes

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

    def message(self) -> Message:
        """The message as it is once that statement has run."""
        row = list(self.row)
        row[COLUMN["state"]] = MessageState.LOCKED.value
        row[COLUMN["home_state"]] = self.claim.source.value
        row[COLUMN["delivery_count"]] += 1
        row[COLUMN["lock_token"]] = self.secret
        row[COLUMN["locked_until"]] = self.locked_until
        row[COLUMN["lock_generation"]] = 0
        row[COLUMN["receiver_id"]] = self.claim.receiver_id
        row[COLUMN["last_delivered_at"]] = self.read_at
        return rows.message(row)


async def claim(session: Session, claims: Sequence[Claim], ask: Ask) -> list[list[Message]]:
    """Lock the next messages for each claim; claims of one queue share what there is in their order."""
    groups: defaultdict[tuple[int, MessageState], int] = defaultdict(int)
    for wish in claims:
        groups[wish.queue_id, wish.source] += wish.most
    texts = [session.text(NEXT[source], queue_id=queue_id, most=most) for (queue_id, source), most in groups.items()]
    answers = await session.ask(*texts)
    found = {group: iter(answer.rows) for group, answer in zip(groups, answers, strict=True)}
    return await _deliver(session, [_share(found[wish.queue_id, wish.source], wish) for wish in claims], ask)


async def claim_these(session: Session, wish: Claim, numbers: Sequence[int]) -> list[Message]:
    """Lock these messages as far as they are where the claim takes from, in this order."""
    wanted = list(dict.fromkeys(numbers))
    found = await session.fetch(
        "these", numbers=column(wanted), queue_id=wish.queue_id, source=wish.source.value, most=wish.most
    )
    by_number = {row[COLUMN["sequence_number"]]: row for row in found}
    in_order = (by_number[number] for number in wanted if number in by_number)
    (messages,) = await _deliver(session, [_share(in_order, wish)], session.finish)
    return messages


async def still_locked(session: Session, tokens: Sequence[LockToken]) -> list[Message]:
    """The messages of these deliveries whose locks still live, in order."""
    if not tokens:
        return []
    found = await session.fetch("still_locked", numbers=[token.sequence_number for token in tokens])
    return rows.held_by(tokens, found)


def _share(found: Iterator[Row], wish: Claim) -> list[Delivery]:
    return [Delivery(row, wish, secrets.token_bytes(SECRET_BYTES)) for row in islice(found, wish.most)]


async def _deliver(session: Session, deliveries: Sequence[Sequence[Delivery]], ask: Ask) -> list[list[Message]]:
    """Write who has what; the messages of each claim, once their rows say so."""
    if written := [delivery.written() for of_one in deliveries for delivery in of_one]:
        await ask(session.text("lock", rows=table(written)))
    return [[delivery.message() for delivery in of_one] for of_one in deliveries]
