"""Callers wait in line under a key until a bell is rung for it, and no ring is lost on one who leaves."""

from collections.abc import Callable, Hashable
from itertools import count, islice
from types import TracebackType
from typing import Generic, Self, TypeVar

from app.runtime.clock import Clock, Signal

Key = TypeVar("Key", bound=Hashable)

NO_WAKE_UP = 0
"""Stands for the ring of a waiter who has none; rings and places in the line are numbered from 1, in one row."""


class Waiter(Generic[Key]):
    """One caller's place in the line of a key, from entering the `with` block to leaving it.

    Enter first, then look for what is awaited: a ring that comes during the look is kept for the next
    `rung`. After the look say whether the ring is `used`, or `hand_on` what may be for others. A ring of which
    neither is known passes on to the next in line when the block ends, even by a cancellation.
    """

    __slots__ = ("_pending", "_queue", "_received", "_signal", "key", "order")

    def __init__(self, queue: "WaitQueue[Key]", key: Key, clock: Clock) -> None:
        self.key = key
        self.order = 0
        self._queue = queue
        self._signal = Signal(clock)
        self._pending = NO_WAKE_UP
        self._received = NO_WAKE_UP

    def __enter__(self) -> Self:
        self._queue.join(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._queue.leave(self)
        self._queue.wake(self.key, bool(self._pending) + bool(self._received))

    async def woken(self, timeout_seconds: float) -> bool:
        """Wait to be rung: true at once if a ring is kept, false after the timeout or when the bell is closed.

        Asking again says that the ring before led to a look, so that ring counts as used.
        """
        self._received = NO_WAKE_UP
        if not self._pending and not self._queue.closed and timeout_seconds > 0:
            await self._signal.wait(timeout_seconds)
        if not self._pending or self._queue.closed:
            return False
        self._received, self._pending = self._pending, NO_WAKE_UP
        self._queue.join(self)
        return True

    def consume(self) -> None:
        """The look after the last ring has left nothing for others; a ring that came later still passes on."""
        self._received = NO_WAKE_UP

    def pass_on(self) -> None:
        """The look after the last ring may have left something for others: the next in line hears the same ring."""
        if self._received:
            self._queue.pass_on(self.key, self._received)
            self._received = NO_WAKE_UP

    def wake(self, wake_up: int) -> None:
        """Called by the bell: keep this ring, and wake the caller if it sleeps."""
        self._pending = wake_up
        self._signal.fire()

    def cancel(self) -> None:
        """Called by the bell: wake the caller without a ring."""
        self._signal.fire()


class WaitQueue(Generic[Key]):
    """Knows who waits under which key. A waiter costs one future and one timer; nothing runs while all wait.

    A ring with nobody in line is forgotten, because whoever comes later looks first. Losing the line with the
    process is harmless for the same reason. `on_first_waiter` is told the key of each line that begins.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiters: dict[Key, dict[Waiter[Key], None]] = {}
        self._sequence = count(NO_WAKE_UP + 1)
        self._closed = False
        self.on_first_waiter: Callable[[Key], object] = _do_nothing

    @property
    def closed(self) -> bool:
        """Whether waiting is over for good; callers answer with what they have."""
        return self._closed

    def waiter(self, key: Key) -> Waiter[Key]:
        """A place in the line of this key, to be entered with `with`."""
        return Waiter(self, key, self._clock)

    def wait_keys(self) -> list[Key]:
        """The keys under which a ring would reach somebody."""
        return list(self._waiters)

    def has_waiters(self, key: Key) -> bool:
        """Whether a ring under this key would reach somebody."""
        return key in self._waiters

    def wake(self, key: Key, count: int = 1) -> int:
        """Wake those who have waited longest under this key, as many as `count` and as there are; how many those were."""
        woken = list(islice(self._waiters.get(key, ()), count))
        wake_up = next(self._sequence)
        for waiter in woken:
            self._wake(waiter, wake_up)
        return len(woken)

    def pass_on(self, key: Key, wake_up: int) -> None:
        """Called by a waiter: let the next in line hear a ring too, unless it has been once round.

        Whoever joined the line after the ring has looked since, or is about to.
        """
        first = next(iter(self._waiters.get(key, ())), None)
        if first is not None and first.order < wake_up:
            self._wake(first, wake_up)

    def close(self) -> None:
        """Wake everybody with false, and let nobody wait from now on."""
        self._closed = True
        for waiters in self._waiters.values():
            for waiter in waiters:
                waiter.cancel()

    def join(self, waiter: Waiter[Key]) -> None:
        """Called by a waiter: stand at the end of the line, to be rung once."""
        waiter.order = next(self._sequence)
        waiters = self._waiters.get(waiter.key)
        if waiters is None:
            waiters = self._waiters[waiter.key] = {}
            self.on_first_waiter(waiter.key)
        waiters[waiter] = None

    def leave(self, waiter: Waiter[Key]) -> None:
        """Called by a waiter: step out of the line; harmless outside it."""
        waiters = self._waiters.get(waiter.key)
        if waiters is not None:
            waiters.pop(waiter, None)
            if not waiters:
                del self._waiters[waiter.key]

    def _wake(self, waiter: Waiter[Key], wake_up: int) -> None:
        self.leave(waiter)
        waiter.wake(wake_up)


def _do_nothing(_key: object) -> None:
    """Nobody has asked to hear of lines."""
