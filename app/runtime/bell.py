"""Callers wait in line under a key until a bell is rung for it, and no ring is lost on one who leaves."""

from collections.abc import Hashable
from itertools import islice
from types import TracebackType
from typing import Generic, Self, TypeVar

from app.runtime.clock import Clock, Signal

Key = TypeVar("Key", bound=Hashable)


class Waiter(Generic[Key]):
    """One caller's place in the line of a key, from entering the `with` block to leaving it.

    Enter first, then look for what is awaited: a ring that comes during the look is kept for the next
    `rung`. A ring not known to be used passes on to the next in line when the block ends, even by a
    cancellation.
    """

    __slots__ = ("_bell", "_heard", "_pending", "_signal", "key")

    def __init__(self, bell: "Bell[Key]", key: Key, clock: Clock) -> None:
        self.key = key
        self._bell = bell
        self._signal = Signal(clock)
        self._pending = False
        self._heard = False

    def __enter__(self) -> Self:
        self._bell.join(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bell.leave(self)
        self._bell.ring(self.key, self._pending + self._heard)

    async def rung(self, timeout_seconds: float) -> bool:
        """Wait to be rung: true at once if a ring is kept, false after the timeout or when the bell is closed.

        Asking again says that the ring before led to a look, so that ring counts as used.
        """
        self._heard = False
        if not self._pending and not self._bell.closed and timeout_seconds > 0:
            await self._signal.wait(timeout_seconds)
        if not self._pending or self._bell.closed:
            return False
        self._pending = False
        self._heard = True
        self._bell.join(self)
        return True

    def used(self) -> None:
        """The look after the last ring found something; a ring that came later still passes on."""
        self._heard = False

    def ring(self) -> None:
        """Called by the bell: keep this ring, and wake the caller if it sleeps."""
        self._pending = True
        self._signal.give()

    def dismiss(self) -> None:
        """Called by the bell: wake the caller without a ring."""
        self._signal.give()


class Bell(Generic[Key]):
    """Knows who waits under which key. A waiter costs one future and one timer; nothing runs while all wait.

    A ring with nobody in line is forgotten, because whoever comes later looks first. Losing the line with the
    process is harmless for the same reason.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lines: dict[Key, dict[Waiter[Key], None]] = {}
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether waiting is over for good; callers answer with what they have."""
        return self._closed

    def waiter(self, key: Key) -> Waiter[Key]:
        """A place in the line of this key, to be entered with `with`."""
        return Waiter(self, key, self._clock)

    def waiting(self) -> list[Key]:
        """The keys under which a ring would reach somebody."""
        return list(self._lines)

    def ring(self, key: Key, count: int = 1) -> int:
        """Wake those who have waited longest under this key, as many as `count` and as there are; how many those were."""
        woken = list(islice(self._lines.get(key, ()), count))
        for waiter in woken:
            self.leave(waiter)
            waiter.ring()
        return len(woken)

    def close(self) -> None:
        """Wake everybody with false, and let nobody wait from now on."""
        self._closed = True
        for line in self._lines.values():
            for waiter in line:
                waiter.dismiss()

    def join(self, waiter: Waiter[Key]) -> None:
        """Called by a waiter: stand at the end of the line, to be rung once."""
        self._lines.setdefault(waiter.key, {})[waiter] = None

    def leave(self, waiter: Waiter[Key]) -> None:
        """Called by a waiter: step out of the line; harmless outside it."""
        line = self._lines.get(waiter.key)
        if line is not None:
            line.pop(waiter, None)
            if not line:
                del self._lines[waiter.key]
