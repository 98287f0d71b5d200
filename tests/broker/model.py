"""The reference model: what a queue means, in plain Python without a store, a lock or a clock of its own."""

from collections.abc import Callable
from dataclasses import dataclass, field

from app.domain.instant import Duration, Instant
from app.domain.message import MessageState


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


@dataclass
class Model:
    """A queue with a delivery limit and no retry delay."""

    limit: int
    now: Instant
    letters: dict[int, Letter] = field(default_factory=dict)
    ended: dict[str, str] = field(default_factory=dict)
    """What became of each token that no longer holds anything."""
    gone: dict[int, str] = field(default_factory=dict)
    """How each message that left the queue ended."""

    def sent(self, number: int, priority: int, delay: Duration, ttl: Duration | None) -> None:
        state = MessageState.SCHEDULED if delay else MessageState.AVAILABLE
        # A life begins when the message can first be received.
        expires = None if ttl is None else self.now + delay + ttl
        self.letters[number] = Letter(number, priority, self.now + delay, expires, state)

    def deferred(self) -> list[int]:
        """The numbers of deferred messages that can be received."""
        return [one.number for one in self.letters.values() if one.state is MessageState.DEFERRED and self._lives(one)]

    def dead(self) -> list[int]:
        """The numbers of dead-lettered messages, in the order in which they are received."""
        return sorted(one.number for one in self.letters.values() if one.state is MessageState.DEAD_LETTERED)

    def next(self, most: int) -> list[int]:
        """The numbers of the messages that a receiver gets now."""
        ready = [one for one in self.letters.values() if one.state is MessageState.AVAILABLE and self._lives(one)]
        ready.sort(key=lambda letter: (-letter.priority, letter.available_at, letter.number))
        return [letter.number for letter in ready[:most]]

    def locked(self, number: int, token: str, duration: Duration) -> None:
        letter = self.letters[number]
        letter.home, letter.state, letter.token = letter.state, MessageState.LOCKED, token
        letter.locked_until = self.now + duration
        letter.deliveries += 1

    def holder(self, token: str) -> Letter | None:
        """The message that the token still holds, its time not passed."""
        for letter in self.letters.values():
            if letter.token == token and letter.locked_until > self.now:
                return letter
        return None

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
            return "renewed"
        self._expire_token(token)
        return "lock-lost" if self.ended[token] == "lock_expired" else f"already {self.ended[token]}"

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

    def redrive(self) -> int:
        dead = [letter for letter in self.letters.values() if letter.state is MessageState.DEAD_LETTERED]
        for letter in dead:
            letter.state, letter.failures, letter.deliveries = MessageState.AVAILABLE, 0, 0
            letter.available_at, letter.expires_at = self.now, None
        return len(dead)

    def _end(self, token: str, outcome: str, effect: Callable[[Letter], None]) -> str:
        letter = self.holder(token)
        if letter is not None:
            self.ended[token] = outcome
            effect(letter)
            return outcome
        self._expire_token(token)
        if self.ended[token] == outcome:
            return f"{outcome} replayed"
        return "lock-lost" if self.ended[token] == "lock_expired" else f"already {self.ended[token]}"

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
