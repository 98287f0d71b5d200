"""What the clients of one run were answered, and what is left in the database, by message, by token and by group."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from tests.faults.journal import RecordedCall

SETTLEMENTS = frozenset({"complete", "execute", "abandon", "dead_letter", "defer", "release"})
FINAL = {"complete": "completed", "execute": "completed", "dead_letter": "dead_lettered"}
"""Settlements after which a load client never sees the message again, and what the service then calls it."""


@dataclass(frozen=True, slots=True)
class RemainingMessage:
    """A message in the database after a run; `token` is the one that ended it."""

    sequence_number: int
    message_id: str
    digest: str
    state: str
    token: str | None = None


@dataclass(frozen=True, slots=True)
class RemainingVersion:
    """A version of a state in the database after a run, and the message that added it."""

    key: str
    number: int
    message_id: str


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message as a receiver got it. `claimed` counts how often it had been handed out, this time included."""

    message_id: str
    sequence_number: int
    digest: str
    token: str
    claimed: int
    remaining: float
    asked_at: float
    heard_at: float


@dataclass(frozen=True, slots=True)
class Finding:
    """A promise that was not kept, and the message it was about."""

    kind: str
    message_id: str
    details: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.message_id}: {self.details}"


class History:
    """The logs of all clients of one run, and the remaining messages and versions, by message and by token."""

    def __init__(
        self,
        calls: Sequence[RecordedCall],
        remaining_messages: Sequence[RemainingMessage],
        versions: Sequence[RemainingVersion] = (),
    ) -> None:
        self.calls = calls
        self.versions = versions
        self.remaining = remaining_messages
        self.sends = [call for call in calls if call.verb in ("send", "execute")]
        self.deliveries = [delivery for call in calls if call.verb == "receive" for delivery in _deliveries(call)]

    @cached_property
    def remaining_by_id(self) -> dict[int, RemainingMessage]:
        """What is left, by sequence number."""
        return {remaining_message.sequence_number: remaining_message for remaining_message in self.remaining}

    @cached_property
    def completed(self) -> set[str]:
        """The tokens that ended a message."""
        return {remaining_message.token for remaining_message in self.remaining if remaining_message.token}

    @cached_property
    def digests(self) -> dict[str, set[str]]:
        """What was sent or published, by message id. An id whose requests were all refused has nothing."""
        published = [call for call in self.calls if call.verb == "publish"]
        found: defaultdict[str, set[str]] = defaultdict(set)
        for call in (*self.sends, *published):
            found[call.asked["message_id"]] |= {call.asked["digest"]} if call.may_have_effect else set()
        return dict(found)

    @cached_property
    def by_message(self) -> dict[str, list[Delivery]]:
        """The deliveries of each message, first one first."""
        groups: defaultdict[str, list[Delivery]] = defaultdict(list)
        for delivery in sorted(self.deliveries, key=lambda delivery: (delivery.claimed, delivery.heard_at)):
            groups[delivery.message_id].append(delivery)
        return groups

    @cached_property
    def by_group(self) -> dict[str, list[Delivery]]:
        """The deliveries of each group whose queue has at most one message of a group in flight."""
        group_of = {call.asked["message_id"]: call.asked.get("group") for call in self.sends}
        groups: defaultdict[str, list[Delivery]] = defaultdict(list)
        for delivery in self.deliveries:
            if group := group_of.get(delivery.message_id):
                groups[group].append(delivery)
        return groups

    @cached_property
    def first_asked_at(self) -> dict[str, float]:
        """When the first request to send each message was made."""
        first: dict[str, float] = {}
        for call in self.sends:
            message_id = call.asked["message_id"]
            first[message_id] = min(call.at, first.get(message_id, call.at))
        return first

    @cached_property
    def by_token(self) -> dict[str, list[RecordedCall]]:
        """The requests about each delivery."""
        groups: defaultdict[str, list[RecordedCall]] = defaultdict(list)
        for call in self.calls:
            if token := call.asked.get("token"):
                groups[token].append(call)
        return groups

    @cached_property
    def message_of(self) -> dict[str, str]:
        """The message id behind each token."""
        return {delivery.token: delivery.message_id for delivery in self.deliveries}

    def effects(self, token: str) -> list[RecordedCall]:
        """The settlements of a delivery that were acknowledged, also as replayed."""
        return [call for call in self.by_token.get(token, ()) if call.verb in SETTLEMENTS and call.is_acknowledged]

    def promised_until(self, delivery: Delivery) -> float:
        """The time until which its holder could rely on the lock, counted from the earliest moment of the claim."""
        renewals = [call for call in self.by_token.get(delivery.token, ()) if call.verb == "renew"]
        promises = [call.at + call.answer["remaining"] for call in renewals if call.is_acknowledged]
        return max([delivery.asked_at + delivery.remaining, *promises])

    def may_have_ended(self, token: str, before: float) -> bool:
        """Whether its holder may have given the delivery up by then."""
        asked = [call for call in self.by_token.get(token, ()) if call.verb in SETTLEMENTS]
        return any(call.at < before and call.may_have_effect for call in asked)


def _deliveries(call: RecordedCall) -> Iterator[Delivery]:
    for message in call.answer.get("messages", ()):
        yield Delivery(**message, asked_at=call.at, heard_at=call.done)
