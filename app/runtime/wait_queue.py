"""A wait queue: callers wait under a key until a wake-up reaches them; a waiter that leaves passes its wake-up on."""

from collections.abc import Callable, Hashable
from itertools import count, islice
from types import TracebackType
from typing import Generic, Self, TypeVar

from app.runtime.clock import Clock, Signal

Key = TypeVar("Key", bound=Hashable)

NO_WAKE_UP = 0
"""The value of a waiter that has no wake-up. Wake-ups and joins share one sequence of numbers, which starts at 1."""


class Waiter(Generic[Key]):
    """One caller that waits under a key, from entering the `with` block to leaving it.

    Enter first, then read: a wake-up that arrives during the read is kept for the next `woken`. After the read, call
    `consume` if the wake-up is used up, or `pass_on` if others may need it. When the block ends, even by a cancellation,
    a wake-up with neither passes to the next waiter.
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
        """Wait for a wake-up. Return true at once if one is kept, false after the timeout or once the queue is closed.

        A second call means that the caller has read since the last wake-up, so that wake-up counts as used.
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
        """The read after the last wake-up left nothing for others. A later wake-up still passes on."""
        self._received = NO_WAKE_UP

    def pass_on(self) -> None:
        """The read after the last wake-up may have left something: the next waiter gets the same wake-up."""
        if self._received:
            self._queue.pass_on(self.key, self._received)
            self._received = NO_WAKE_UP

    def wake(self, wake_up: int) -> None:
        """Called by the wait queue: keep this wake-up, and resume the caller if it waits."""
        self._pending = wake_up
        self._signal.fire()

    def cancel(self) -> None:
        """Called by the wait queue: resume the caller without a wake-up."""
        self._signal.fire()


class WaitQueue(Generic[Key]):
    """The waiters of each key. A waiter costs one future and one timer; nothing runs while all wait.

    A wake-up without a waiter is forgotten, because a later caller reads before it waits. For the same reason it is
    harmless that waiters are lost with the process. `on_first_waiter` is called with a key when its first waiter joins.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiters: dict[Key, dict[Waiter[Key], None]] = {}
        self._sequence = count(NO_WAKE_UP + 1)
        self._closed = False
        self.on_first_waiter: Callable[[Key], object] = _do_nothing

    @property
    def closed(self) -> bool:
        """Whether the queue is closed. Callers then answer with what they have."""
        return self._closed

    def waiter(self, key: Key) -> Waiter[Key]:
        """Return a waiter of this key. Enter it with `with`."""
        return Waiter(self, key, self._clock)

    def wait_keys(self) -> list[Key]:
        """Return the keys that have a waiter."""
        return list(self._waiters)

    def has_waiters(self, key: Key) -> bool:
        """Whether a wake-up under this key would reach a waiter."""
        return key in self._waiters

    def waiter_count(self, key: Key) -> int:
        """Return how many callers wait under this key."""
        return len(self._waiters.get(key, ()))

    def wake(self, key: Key, count: int = 1) -> int:
        """Wake up to `count` waiters of this key, in the order in which they joined. Return how many were woken."""
        waiters = self._waiters.get(key)
        if waiters is None:
            return 0
        woken = list(islice(waiters, count))
        wake_up = next(self._sequence)
        for waiter in woken:
            self._wake(waiter, wake_up)
        return len(woken)

    def pass_on(self, key: Key, wake_up: int) -> None:
        """Called by a waiter: give a wake-up to the next waiter, unless it has visited all of them once.

        A waiter that joined after the wake-up has read since then, or is about to read.
        """
        first = next(iter(self._waiters.get(key, ())), None)
        if first is not None and first.order < wake_up:
            self._wake(first, wake_up)

    def close(self) -> None:
        """End all waiting with false, now and in future."""
        self._closed = True
        for waiters in self._waiters.values():
            for waiter in waiters:
                waiter.cancel()

    def join(self, waiter: Waiter[Key]) -> None:
        """Called by a waiter: become the last in order, for one wake-up."""
        waiter.order = next(self._sequence)
        waiters = self._waiters.get(waiter.key)
        if waiters is None:
            waiters = self._waiters[waiter.key] = {}
            self.on_first_waiter(waiter.key)
        waiters[waiter] = None

    def leave(self, waiter: Waiter[Key]) -> None:
        """Called by a waiter: wait no more; harmless for one that does not wait."""
        waiters = self._waiters.get(waiter.key)
        if waiters is not None:
            waiters.pop(waiter, None)
            if not waiters:
                del self._waiters[waiter.key]

    def _wake(self, waiter: Waiter[Key], wake_up: int) -> None:
        self.leave(waiter)
        waiter.wake(wake_up)


def _do_nothing(_key: object) -> None:
    """The default of `on_first_waiter`."""
