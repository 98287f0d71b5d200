"""The reference model: what a queue means, in plain Python without a store, a lock or a clock of its own."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.domain.instant import Duration, Instant
from app.domain.message import MessageState

LOSSES = ("lock_expired", "purged")
"""Endings that the holder of a lock hears of as a loss."""
REUSED = "idempotency-key-reused"


@dataclass
class Letter:
    """A message of the model."""

    number: int
    priority: int
    available_at: Instant
    expires_at: Instant | None
    state: MessageState
    home: MessageState = MessageState.AVAILABLE
    deliveries: int = 0
    failures: int = 0
    token: str | None = None
    locked_until: Instant = 0
    is_renewed: bool = False


@dataclass(frozen=True)
class Kept:
    """What an attempt with an Idempotency-Key was answered, for which payload, and until when that is known."""

    payload: Any
    answer: Sequence[object]
    until: Instant


@dataclass
class Model:
    """A queue with a delivery limit, room for some messages, and no retry delay."""

    limit: int
    room: int
    now: Instant
    letters: dict[int, Letter] = field(default_factory=dict)
    ended: dict[str, str] = field(default_factory=dict)
    """What became of each token that no longer holds anything."""
    gone: dict[int, str] = field(default_factory=dict)
    """How each message that left the queue ended."""
    kept: dict[tuple[str, int], Kept] = field(default_factory=dict)
    """What is remembered of attempts, by verb and key."""

    # ---- sending -----------------------------------------------------------------------------------------------------

    def has_room(self, count: int) -> bool:
        """Whether the queue takes as many messages more."""
        return len(self.letters) + count <= self.room

    def sent(self, number: int, priority: int, delay: Duration, ttl: Duration | None) -> None:
        state = MessageState.SCHEDULED if delay else MessageState.AVAILABLE
        # A life begins when the message can first be received.
        expires = None if ttl is None else self.now + delay + ttl
        self.letters[number] = Letter(number, priority, self.now + delay, expires, state)

    # ---- attempts with a key -----------------------------------------------------------------------------------------

    def earlier(self, verb: str, key: int, payload: object) -> Sequence[object] | str | None:
        """What the first attempt was answered; `REUSED` for another payload, None where no attempt is remembered."""
        kept = self.kept.get((verb, key))
        if kept is None or kept.until <= self.now:
            return None
        return kept.answer if kept.payload == payload else REUSED

    def remembered(self, verb: str) -> list[tuple[int, Any]]:
        """The key and the payload of each attempt that is remembered."""
        return [(key, kept.payload) for (of, key), kept in self.kept.items() if of == verb and kept.until > self.now]

    def keep(self, verb: str, key: int, payload: object, answer: Sequence[object], keep: Duration) -> None:
        self.kept[verb, key] = Kept(payload, answer, self.now + keep)

    # ---- receiving ---------------------------------------------------------------------------------------------------

    def deferred(self) -> list[int]:
        """The numbers of deferred messages that can be received."""
        return [one.number for one in self.letters.values() if one.state is MessageState.DEFERRED and self._lives(one)]

    def dead(self) -> list[int]:
        """The numbers of dead-lettered messages, in the order in which they are received."""
        return sorted(one.number for one in self.letters.values() if one.state is MessageState.DEAD_LETTERED)

    def next(self, most: int, lowest_priority: int = 0) -> list[int]:
        """The numbers of the messages that a receiver gets now, through a filter on their priority."""
        ready = [one for one in self.letters.values() if one.state is MessageState.AVAILABLE and self._lives(one)]
        ready.sort(key=lambda letter: (-letter.priority, letter.available_at, letter.number))
        return [letter.number for letter in ready if letter.priority >= lowest_priority][:most]

    def locked(self, number: int, token: str, duration: Duration) -> None:
        letter = self.letters[number]
        letter.home, letter.state, letter.token = letter.state, MessageState.LOCKED, token
        letter.locked_until = self.now + duration
        letter.is_renewed = False
        letter.deliveries += 1

    def taken(self, number: int) -> None:
        """The message is received and deleted in one."""
        self._leave(self.letters[number], "received")

    def holder(self, token: str) -> Letter | None:
        """The message that the token still holds, its time not passed."""
        for letter in self.letters.values():
            if letter.token == token and letter.locked_until > self.now:
                return letter
        return None

    def receive_again(self, tokens: Sequence[str], duration: Duration) -> list[str]:
        """Those of these tokens that still hold a message; a lock that was renewed is renewed once more."""
        held = [(token, letter) for token in tokens if (letter := self.holder(token)) is not None]
        for token, letter in held:
            if letter.is_renewed:
                self.renew(token, duration)
        return [token for token, _ in held]

    # ---- ending deliveries -------------------------------------------------------------------------------------------

    def complete(self, token: str) -> str:
        return self._end(token, "completed", lambda letter: self._leave(letter, "completed"))

    def dead_letter(self, token: str) -> str:
        return self._end(token, "dead_lettered", lambda letter: self._free(letter, MessageState.DEAD_LETTERED))

    def defer(self, token: str) -> str:
        return self._end(token, "deferred", lambda letter: self._free(letter, MessageState.DEFERRED))

    def abandon(self, token: str, delay: Duration, counted: bool) -> str:
        return self._end(token, "abandoned", lambda letter: self._fail(letter, delay, counted))

    def renew(self, token: str, duration: Duration) -> str:
        letter = self.holder(token)
        if letter is not None:
            letter.locked_until = max(letter.locked_until, self.now + duration)
            letter.is_renewed = True
            return "renewed"
        self._expire_token(token)
        return self._late(token)

    # ---- what time does ----------------------------------------------------------------------------------------------

    def sweep(self) -> None:
        for letter in list(self.letters.values()):
            if letter.state is MessageState.LOCKED and letter.locked_until <= self.now:
                self.ended[letter.token or ""] = "lock_expired"
                self._fail(letter, 0, counted=True)

    def awaken(self) -> None:
        for letter in self.letters.values():
            if letter.state is MessageState.SCHEDULED and letter.available_at <= self.now:
                letter.state = MessageState.AVAILABLE

    def retire(self) -> None:
        unlocked = (MessageState.AVAILABLE, MessageState.SCHEDULED, MessageState.DEFERRED)
        for letter in list(self.letters.values()):
            if letter.state in unlocked and letter.expires_at is not None and letter.expires_at <= self.now:
                self._leave(letter, "expired")

    # ---- what an administrator does ----------------------------------------------------------------------------------

    def known(self) -> list[int]:
        """The numbers of all messages that are or were here."""
        return sorted([*self.letters, *self.gone])

    def chosen(self, states: Collection[MessageState], lowest_priority: int, limit: int | None) -> list[Letter]:
        """The first messages by number that are in these states and pass the filter."""
        passing = [one for one in self.letters.values() if one.state in states and one.priority >= lowest_priority]
        return sorted(passing, key=lambda letter: letter.number)[:limit]

    def purge(self, chosen: Sequence[Letter]) -> int:
        for letter in chosen:
            if letter.token is not None:
                self.ended[letter.token] = "purged"
            self._leave(letter, "purged")
        return len(chosen)

    def redrive(self, chosen: Sequence[Letter]) -> int:
        for letter in chosen:
            letter.state, letter.failures, letter.deliveries = MessageState.AVAILABLE, 0, 0
            letter.available_at, letter.expires_at = self.now, None
        return len(chosen)

    def edit(self, number: int, is_stale: bool, priority: int | None, delay: Duration | None) -> str:
        letter, refusal = self._unlocked(number, is_stale)
        if letter is None:
            return refusal
        if delay is not None:
            if letter.state not in (MessageState.AVAILABLE, MessageState.SCHEDULED):
                return "conflict"
            due = self.now + delay
            # What is left of the time to live moves with the due time.
            letter.expires_at = None if letter.expires_at is None else letter.expires_at + due - letter.available_at
            letter.available_at = due
            letter.state = MessageState.SCHEDULED if delay else MessageState.AVAILABLE
        if priority is not None:
            letter.priority = priority
        return "edited"

    def cancel(self, number: int, is_stale: bool) -> str:
        letter, refusal = self._unlocked(number, is_stale)
        if letter is None:
            return refusal
        self._leave(letter, "cancelled")
        return "cancelled"

    def recreate(self) -> None:
        """The queue is deleted, and another one is made under its name: it knows no message and no token."""
        for letter in list(self.letters.values()):
            if letter.token is not None:
                self.ended[letter.token] = "unknown"
            self._leave(letter, "deleted")
        self.ended = dict.fromkeys(self.ended, "unknown")

    # ---- steps of these ----------------------------------------------------------------------------------------------

    def _unlocked(self, number: int, is_stale: bool) -> tuple[Letter | None, str]:
        """The message, or why it cannot be changed by a caller who names no edition, or an old one."""
        letter = self.letters.get(number)
        if letter is None:
            return None, "message-not-found"
        if is_stale:
            return None, "precondition-failed"
        return (None, "message-locked") if letter.state is MessageState.LOCKED else (letter, "")

    def _end(self, token: str, outcome: str, effect: Callable[[Letter], None]) -> str:
        letter = self.holder(token)
        if letter is not None:
            self.ended[token] = outcome
            effect(letter)
            return outcome
        self._expire_token(token)
        return f"{outcome} replayed" if self.ended[token] == outcome else self._late(token)

    def _late(self, token: str) -> str:
        """What a holder hears whose delivery has ended otherwise."""
        ended = self.ended[token]
        if ended == "unknown":
            return "message-not-found"
        return "lock-lost" if ended in LOSSES else f"already {ended}"

    def _expire_token(self, token: str) -> None:
        """A late holder frees the row it held, as the sweeper would have."""
        for letter in self.letters.values():
            if letter.token == token:
                self.ended[token] = "lock_expired"
                self._fail(letter, 0, counted=True)
                return

    def _fail(self, letter: Letter, delay: Duration, counted: bool) -> None:
        if letter.home is MessageState.DEAD_LETTERED:
            self._free(letter, letter.home)
            return
        letter.failures += counted
        if counted and letter.failures >= self.limit:
            self._free(letter, MessageState.DEAD_LETTERED)
        elif delay and letter.home is MessageState.AVAILABLE:
            letter.available_at = self.now + delay
            self._free(letter, MessageState.SCHEDULED)
        else:
            self._free(letter, letter.home)

    def _lives(self, letter: Letter) -> bool:
        return letter.expires_at is None or letter.expires_at > self.now

    def _free(self, letter: Letter, state: MessageState) -> None:
        letter.state, letter.token, letter.locked_until = state, None, 0

    def _leave(self, letter: Letter, outcome: str) -> None:
        self.gone[letter.number] = outcome
        del self.letters[letter.number]
