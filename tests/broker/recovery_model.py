"""The reference model with receivers that recover their messages, and with messages that can be restored."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from app.domain.instant import Duration
from app.domain.message import MessageState
from tests.broker.reference_model import Model, ModelMessage

RESTORABLE_OUTCOMES = ("purged", "cancelled")


@dataclass
class RecoveryModel(Model):
    """A queue whose receivers have names, and what was purged from it."""

    receivers: dict[str, str] = field(default_factory=dict)
    """The receiver that got each token."""
    restorable: dict[int, tuple[ModelMessage, Duration | None]] = field(default_factory=dict)
    """The messages that were purged or cancelled, each with the time to live that it has when it is restored."""
    orphans: dict[int, ModelMessage] = field(default_factory=dict)
    """The messages of deleted queues. One that expires is purged, and can be restored to a queue of the same name."""
    has_orphans_in_doubt: bool = False
    """Whether a transaction may still settle an orphan, so that it cannot be said which of them can be restored."""

    def received_by(self, receiver: str, numbers: Sequence[int]) -> None:
        """Note which receiver has just got these messages."""
        self.receivers |= {self.messages[number].token or "": receiver for number in numbers}

    def held_by(self, receiver: str) -> list[int]:
        """Return the numbers of the messages that a receiver holds, in the order of delivery."""
        held = [
            message
            for message in self.messages.values()
            if message.token and self.receivers.get(message.token) == receiver and self.holder(message.token)
        ]
        held.sort(key=lambda message: (-message.priority, message.available_at, message.number))
        return [message.number for message in held]

    def recovered(self, number: int, token: str, duration: Duration) -> None:
        """Give a message to the receiver that holds it again, under another token."""
        message = self.messages[number]
        old = message.token or ""
        self.outcomes[old] = "recovered"
        self.receivers[token] = self.receivers[old]
        message.token, message.is_renewed = token, False
        message.locked_until = self.now + duration
        message.delivery_count += 1

    def select_restorable(self, lowest_priority: int, limit: int | None) -> list[int]:
        """Return the first messages by number that can be restored and match the filter."""
        passing = [number for number, (message, _) in self.restorable.items() if message.priority >= lowest_priority]
        return sorted(passing)[:limit]

    def restored(self, chosen: Sequence[int], numbers: Sequence[int]) -> int:
        """Store messages again under new numbers, as many as there is room for. Return how many."""
        fitting = chosen[: self.max_messages - len(self.messages)]
        for old, number in zip(fitting, numbers, strict=True):
            message, ttl = self.restorable.pop(old)
            self.sent(number, message.priority, 0, ttl, message.group)
        return len(fitting)

    def recreate(self) -> None:
        self.orphans |= self.messages
        super().recreate()

    def sweep(self) -> None:
        super().sweep()
        for orphan in self.orphans.values():
            if orphan.state is MessageState.LOCKED and orphan.locked_until <= self.now:
                orphan.state = MessageState.AVAILABLE

    def expire(self) -> None:
        super().expire()
        for orphan in [orphan for orphan in self.orphans.values() if self.is_overdue(orphan)]:
            self.restorable[orphan.number] = (self.orphans.pop(orphan.number), None)

    def _remove(self, message: ModelMessage, outcome: str) -> None:
        super()._remove(message, outcome)
        if outcome in RESTORABLE_OUTCOMES:
            self.restorable[message.number] = (message, self._ttl_when_restored(message))

    def _ttl_when_restored(self, message: ModelMessage) -> Duration | None:
        """A time to live begins again, unless it had ended."""
        if message.expires_at is None or message.expires_at <= max(message.available_at, self.now):
            return None
        return message.expires_at - message.available_at
