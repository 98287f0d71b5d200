"""The reference model: the behaviour of a queue in plain Python, without a store, a lock or its own clock."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.domain.instant import Duration, Instant
from app.domain.message import MessageState

LOCK_LOSS_OUTCOMES = ("lock_expired", "purged", "recovered")
"""Outcomes that the holder of a lock gets reported as a lost lock."""
KEY_REUSED = "idempotency-key-reused"


@dataclass
class ModelMessage:
    """A message of the model."""

    number: int
    priority: int
    available_at: Instant
    expires_at: Instant | None
    state: MessageState
    home_state: MessageState = MessageState.AVAILABLE
    delivery_count: int = 0
    failure_count: int = 0
    first_delivered_at: Instant | None = None
    token: str | None = None
    locked_until: Instant = 0
    is_renewed: bool = False
    group: str | None = None
    has_place: bool = False
    """Whether it counts among the messages of its group that are in flight."""


@dataclass(frozen=True)
class AttemptRecord:
    """The payload and result of an attempt with an Idempotency-Key, and until when they are stored."""

    payload: Any
    answer: Sequence[object]
    until: Instant


@dataclass
class Model:
    """A queue with a delivery limit, a limit of messages, a limit of each group, a default delay, and no retry delay."""

    max_delivery_count: int
    max_messages: int
    now: Instant
    group_in_flight: int | None = None
    default_delay: Duration | None = None
    messages: dict[int, ModelMessage] = field(default_factory=dict)
    outcomes: dict[str, str] = field(default_factory=dict)
    """The outcome of each token that no longer holds a message."""
    removed: dict[int, str] = field(default_factory=dict)
    """How each message that left the queue ended."""
    attempts: dict[tuple[str, int], AttemptRecord] = field(default_factory=dict)
    """The stored attempts, by operation and key."""

    # ---- sending -----------------------------------------------------------------------------------------------------

    def has_room(self, count: int) -> bool:
        """Return whether the queue has room for this many messages."""
        return len(self.messages) + count <= self.max_messages

    def sent(
        self, number: int, priority: int, delay: Duration | None, ttl: Duration | None, group: str | None = None
    ) -> MessageState:
        """Store a message; return its state."""
        if delay is None:
            delay = self.default_delay or 0
        # The time to live starts when the message can first be received.
        expires = None if ttl is None else self.now + delay + ttl
        message = ModelMessage(number, priority, self.now + delay, expires, MessageState.SCHEDULED, group=group)
        self.messages[number] = message
        if not delay:
            self._enter([message])
        return message.state

    # ---- attempts with an Idempotency-Key ----------------------------------------------------------------------------

    def earlier_answer(self, verb: str, key: int, payload: object) -> Sequence[object] | str | None:
        """Return the stored result; `KEY_REUSED` for another payload, None if no attempt is stored."""
        kept = self.attempts.get((verb, key))
        if kept is None or kept.until <= self.now:
            return None
        return kept.answer if kept.payload == payload else KEY_REUSED

    def remembered_attempts(self, verb: str) -> list[tuple[int, Any]]:
        """Return the key and the payload of each stored attempt."""
        return [
            (key, kept.payload) for (of, key), kept in self.attempts.items() if of == verb and kept.until > self.now
        ]

    def remember(self, verb: str, key: int, payload: object, answer: Sequence[object], keep: Duration) -> None:
        self.attempts[verb, key] = AttemptRecord(payload, answer, self.now + keep)

    # ---- receiving ---------------------------------------------------------------------------------------------------

    def deferred(self) -> list[int]:
        """Return the numbers of deferred messages that can be received."""
        return [
            message.number
            for message in self.messages.values()
            if message.state is MessageState.DEFERRED and self._is_unexpired(message)
        ]

    def dead(self) -> list[int]:
        """Return the numbers of dead-lettered messages, in the order of delivery."""
        return sorted(
            message.number for message in self.messages.values() if message.state is MessageState.DEAD_LETTERED
        )

    def next(self, most: int, lowest_priority: int = 0) -> list[int]:
        """Return the numbers of the messages that a receiver gets now, with a filter on their priority."""
        ready = [
            candidate
            for candidate in self.messages.values()
            if candidate.state is MessageState.AVAILABLE and self._is_unexpired(candidate)
        ]
        ready.sort(key=lambda message: (-message.priority, message.available_at, message.number))
        return [message.number for message in ready if message.priority >= lowest_priority][:most]

    def locked(self, number: int, token: str, duration: Duration) -> None:
        message = self.messages[number]
        message.home_state, message.state, message.token = message.state, MessageState.LOCKED, token
        message.locked_until = self.now + duration
        message.is_renewed = False
        message.delivery_count += 1
        if message.first_delivered_at is None:
            message.first_delivered_at = self.now

    def received_and_deleted(self, numbers: Sequence[int]) -> None:
        """Receive and delete the messages."""
        for number in numbers:
            self._remove(self.messages[number], "received")
        self._admit()

    def holder(self, token: str) -> ModelMessage | None:
        """Return the message that the token holds, if its lock has not expired."""
        for message in self.messages.values():
            if message.token == token and message.locked_until > self.now:
                return message
        return None

    def can_settle(self, token: str) -> bool:
        """Return whether a settlement under this token takes effect now."""
        return self.holder(token) is not None

    def receive_again(self, tokens: Sequence[str], duration: Duration) -> list[str]:
        """Return those of these tokens that still hold a message; renew locks that were renewed before."""
        held = [(token, message) for token in tokens if (message := self.holder(token)) is not None]
        for token, message in held:
            if message.is_renewed:
                self.renew(token, duration)
        return [token for token, _ in held]

    # ---- settling deliveries -----------------------------------------------------------------------------------------

    def complete(self, token: str) -> str:
        return self._end(token, "completed", lambda message: self._remove(message, "completed"))

    def dead_letter(self, token: str) -> str:
        return self._end(token, "dead_lettered", lambda message: self._release(message, MessageState.DEAD_LETTERED))

    def defer(self, token: str) -> str:
        return self._end(token, "deferred", lambda message: self._release(message, MessageState.DEFERRED))

    def release(self, token: str) -> str:
        return self._end(token, "released", self._take_back)

    def abandon(self, token: str, delay: Duration, counted: bool) -> str:
        return self._end(token, "abandoned", lambda message: self._fail(message, delay, counted))

    def change_lock(self, token: str, duration: Duration) -> Instant | str:
        """Set the end of the lock exactly; return it."""
        message = self.holder(token)
        if message is not None:
            message.locked_until = self.now + duration
            return message.locked_until
        self._expire_token(token)
        return self._late_answer(token)

    def renew(self, token: str, duration: Duration) -> str:
        message = self.holder(token)
        if message is not None:
            message.locked_until = max(message.locked_until, self.now + duration)
            message.is_renewed = True
            return "renewed"
        self._expire_token(token)
        return self._late_answer(token)

    # ---- time --------------------------------------------------------------------------------------------------------

    def sweep(self) -> None:
        for message in list(self.messages.values()):
            if message.state is MessageState.LOCKED and message.locked_until <= self.now:
                self.outcomes[message.token or ""] = "lock_expired"
                self._fail(message, 0, counted=True)
        self._admit()

    def promote(self) -> None:
        self._enter(
            [
                message
                for message in self.messages.values()
                if message.state is MessageState.SCHEDULED and message.available_at <= self.now
            ]
        )

    def expire(self) -> None:
        for message in [message for message in self.messages.values() if self.is_overdue(message)]:
            self._remove(message, "expired")
        self._admit()

    def is_overdue(self, message: ModelMessage) -> bool:
        """Return whether the time to live of an unlocked message has ended."""
        unlocked = (MessageState.AVAILABLE, MessageState.SCHEDULED, MessageState.DEFERRED, MessageState.BLOCKED)
        return message.state in unlocked and message.expires_at is not None and message.expires_at <= self.now

    # ---- administration ----------------------------------------------------------------------------------------------

    def known_numbers(self) -> list[int]:
        """Return the numbers of all messages, including those that left the queue."""
        return sorted([*self.messages, *self.removed])

    def select(self, states: Collection[MessageState], lowest_priority: int, limit: int | None) -> list[ModelMessage]:
        """Return the first messages by number that are in these states and match the filter."""
        passing = [
            candidate
            for candidate in self.messages.values()
            if candidate.state in states and candidate.priority >= lowest_priority
        ]
        return sorted(passing, key=lambda message: message.number)[:limit]

    def purge(self, states: Collection[MessageState], lowest_priority: int, limit: int | None) -> int:
        """Purge messages by number. One that a purged message of its group lets follow may be purged too."""
        purged, after = 0, 0
        while limit is None or purged < limit:
            read = [message for message in self.select(states, 0, None) if message.number > after]
            if not read:
                break
            chosen = [message for message in read if message.priority >= lowest_priority]
            chosen = chosen if limit is None else chosen[: limit - purged]
            for message in chosen:
                if message.token is not None:
                    self.outcomes[message.token] = "purged"
                self._remove(message, "purged")
            self._admit()
            purged, after = purged + len(chosen), read[-1].number
        return purged

    def redrive(self, chosen: Sequence[ModelMessage]) -> int:
        for message in chosen:
            message.failure_count = message.delivery_count = 0
            message.first_delivered_at = None
            message.available_at, message.expires_at = self.now, None
        self._enter(chosen)
        return len(chosen)

    def edit(self, number: int, is_stale: bool, priority: int | None, delay: Duration | None) -> str:
        message, refusal = self._unlocked(number, is_stale)
        if message is None:
            return refusal
        if delay is not None:
            if message.state not in (MessageState.AVAILABLE, MessageState.SCHEDULED, MessageState.BLOCKED):
                return "conflict"
            due = self.now + delay
            # The rest of the time to live moves with the due time.
            message.expires_at = None if message.expires_at is None else message.expires_at + due - message.available_at
            message.available_at = due
            if delay:
                self._release(message, MessageState.SCHEDULED)
                self._admit()
            elif message.state is MessageState.SCHEDULED:
                self._enter([message])
        if priority is not None:
            message.priority = priority
        return "edited"

    def cancel(self, number: int, is_stale: bool) -> str:
        message, refusal = self._unlocked(number, is_stale)
        if message is None:
            return refusal
        self._remove(message, "cancelled")
        self._admit()
        return "cancelled"

    def recreate(self) -> None:
        """Delete the queue and create another one with its name, which knows no message and no token."""
        for message in list(self.messages.values()):
            if message.token is not None:
                self.outcomes[message.token] = "unknown"
            self._remove(message, "deleted")
        self.outcomes = dict.fromkeys(self.outcomes, "unknown")

    # ---- helpers -----------------------------------------------------------------------------------------------------

    def _unlocked(self, number: int, is_stale: bool) -> tuple[ModelMessage | None, str]:
        """Return the message, or why a request without an ETag, or with a stale one, cannot change it."""
        message = self.messages.get(number)
        if message is None:
            return None, "message-not-found"
        if message.state is MessageState.LOCKED:
            return None, "message-locked"
        return (None, "precondition-failed") if is_stale else (message, "")

    def _end(self, token: str, outcome: str, effect: Callable[[ModelMessage], None]) -> str:
        message = self.holder(token)
        if message is not None:
            self.outcomes[token] = outcome
            effect(message)
            self._admit()
            return outcome
        self._expire_token(token)
        return f"{outcome} replayed" if self.outcomes[token] == outcome else self._late_answer(token)

    def _late_answer(self, token: str) -> str:
        """Return the result for a holder whose delivery has ended with another outcome."""
        ended = self.outcomes[token]
        if ended == "unknown":
            return "message-not-found"
        return "lock-lost" if ended in LOCK_LOSS_OUTCOMES else f"already {ended}"

    def _expire_token(self, token: str) -> None:
        """A late holder frees its row, as the sweeper does."""
        for message in self.messages.values():
            if message.token == token:
                self.outcomes[token] = "lock_expired"
                self._fail(message, 0, counted=True)
                self._admit()
                return

    def _take_back(self, message: ModelMessage) -> None:
        message.delivery_count -= 1
        if not message.delivery_count:
            message.first_delivered_at = None
        self._release(message, message.home_state)

    def _fail(self, message: ModelMessage, delay: Duration, counted: bool) -> None:
        if message.home_state is MessageState.DEAD_LETTERED:
            self._release(message, message.home_state)
            return
        message.failure_count += counted
        if counted and message.failure_count >= self.max_delivery_count:
            self._release(message, MessageState.DEAD_LETTERED)
        elif delay and message.home_state is MessageState.AVAILABLE:
            message.available_at = self.now + delay
            self._release(message, MessageState.SCHEDULED)
        else:
            self._release(message, message.home_state)

    def _is_unexpired(self, message: ModelMessage) -> bool:
        return message.expires_at is None or message.expires_at > self.now

    def _release(self, message: ModelMessage, state: MessageState) -> None:
        message.state, message.token, message.locked_until = state, None, 0
        message.has_place = message.has_place and state is MessageState.AVAILABLE

    def _enter(self, messages: Collection[ModelMessage]) -> None:
        """Make messages available, or blocked if they are in a group, and admit as many as there are places."""
        for message in messages:
            is_limited = message.group is not None and self.group_in_flight is not None
            message.state = MessageState.BLOCKED if is_limited else MessageState.AVAILABLE
        self._admit()

    def _admit(self) -> None:
        """Make the first blocked messages of each group available while it has free places."""
        for message in sorted(self.messages.values(), key=lambda message: message.number):
            in_flight = sum(other.has_place and other.group == message.group for other in self.messages.values())
            if message.state is MessageState.BLOCKED and in_flight < (self.group_in_flight or 0):
                message.state, message.has_place, message.available_at = MessageState.AVAILABLE, True, self.now

    def _remove(self, message: ModelMessage, outcome: str) -> None:
        self.removed[message.number] = outcome
        del self.messages[message.number]
