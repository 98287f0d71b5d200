"""Callers wait in line under a key until a bell is rung for it, and no ring is lost on one who leaves."""

from collections.abc import Callable, Hashable
from itertools import count, islice
from types import TracebackType
from typing import Generic, Self, TypeVar

from app.runtime.clock import Clock, Signal

Key = TypeVar("Key", bound=Hashable)

NO_RING = 0
"""Stands for the ring of a waiter who has none; rings and places in the line are numbered from 1, in one row."""


class Waiter(Generic[Key]):
    """One caller's place in the line of a key, from entering the `with` block to leaving it.

    Enter first, then look for what is awaited: a ring that comes during the look is kept for the next
    `rung`. After the look say whether the ring is `used`, or `hand_on` what may be for others. A ring of which
    neither is known passes on to the next in line when the block ends, even by a cancellation.
    """

    __slots__ = ("_bell", "_heard", "_pending", "_signal", "key", "place")

    def __init__(self, bell: "Bell[Key]", key: Key, clock: Clock) -> None:
        self.key = key
        self.place = 0
        self._bell = bell
        self._signal = Signal(clock)
        self._pending = NO_RING
        self._heard = NO_RING

    def __enter__(self) -> Self:
        self._bell.join(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bell.leave(self)
        self._bell.ring(self.key, bool(self._pending) + bool(self._heard))

    async def rung(self, timeout_seconds: float) -> bool:
        """Wait to be rung: true at once if a ring is kept, false after the timeout or when the bell is closed.

        Asking again says that the ring before led to a look, so that ring counts as used.
        """
        self._heard = NO_RING
        if not self._pending and not self._bell.closed and timeout_seconds > 0:
            await self._signal.wait(timeout_seconds)
        if not self._pending or self._bell.closed:
            return False
        self._heard, self._pending = self._pending, NO_RING
        self._bell.join(self)
        return True

    def used(self) -> None:
        """The look after the last ring has left nothing for others; a ring that came later still passes on."""
        self._heard = NO_RING

    def hand_on(self) -> None:
        """The look after the last ring may have left something for others: the next in line hears the same ring."""
        if self._heard:
            self._bell.hand_on(self.key, self._heard)
            self._heard = NO_RING

    def ring(self, ring: int) -> None:
        """Called by the bell: keep this ring, and wake the caller if it sleeps."""
        self._pending = ring
        self._signal.give()

    def dismiss(self) -> None:
        """Called by the bell: wake the caller without a ring."""
        self._signal.give()


class Bell(Generic[Key]):
    """Knows who waits under which key. A waiter costs one future and one timer; nothing runs while all wait.

    A ring with nobody in line is forgotten, because whoever comes later looks first. Losing the line with the
    process is harmless for the same reason. `on_line` is told the key of each line that begins.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lines: dict[Key, dict[Waiter[Key], None]] = {}
        self._order = count(NO_RING + 1)
        self._closed = False
        self.on_line: Callable[[Key], object] = _unheard

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

    def has_line(self, key: Key) -> bool:
        """Whether a ring under this key would reach somebody."""
        return key in self._lines

    def ring(self, key: Key, count: int = 1) -> int:
        """Wake those who have waited longest under this key, as many as `count` and as there are; how many those were."""
        woken = list(islice(self._lines.get(key, ()), count))
        ring = next(self._order)
        for waiter in woken:
            self._wake(waiter, ring)
        return len(woken)

    def hand_on(self, key: Key, ring: int) -> None:
        """Called by a waiter: let the next in line hear a ring too, unless it has been once round.

        Whoever joined the line after the ring has looked since, or is about to.
        """
        first = next(iter(self._lines.get(key, ())), None)
        if first is not None and first.place < ring:
            self._wake(first, ring)

    def close(self) -> None:
        """Wake everybody with false, and let nobody wait from now on."""
        self._closed = True
        for line in self._lines.values():
            for waiter in line:
                waiter.dismiss()

    def join(self, waiter: Waiter[Key]) -> None:
        """Called by a waiter: stand at the end of the line, to be rung once."""
        waiter.place = next(self._order)
        line = self._lines.get(waiter.key)
        if line is None:
            line = self._lines[waiter.key] = {}
            self.on_line(waiter.key)
        line[waiter] = None

    def leave(self, waiter: Waiter[Key]) -> None:
        """Called by a waiter: step out of the line; harmless outside it."""
        line = self._lines.get(waiter.key)
        if line is not None:
            line.pop(waiter, None)
            if not line:
                del self._lines[waiter.key]

    def _wake(self, waiter: Waiter[Key], ring: int) -> None:
        self.leave(waiter)
        waiter.ring(ring)


def _unheard(_key: object) -> None:
    """Nobody has asked to hear of lines."""
