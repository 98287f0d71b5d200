"""How long messages wait for their delivery, and how long receivers take for them, on average within each sample.

The time of a receiver is known if the same process has delivered the message and takes its settlement.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypeAlias

from app.domain.instant import Duration, from_seconds, to_seconds
from app.domain.message import Message
from app.domain.settlement import Settlement
from app.runtime.clock import Clock

MAX_DELIVERIES = 10_000
"""Deliveries whose end is awaited, each with the number and the token of its lock. The oldest are forgotten first."""

Kind: TypeAlias = Literal["waiting", "processing"]
KINDS: Sequence[Kind] = ("waiting", "processing")
NOT_KNOWN = -1.0
"""The value of a sample without a delivery."""


class Latencies:
    """The times since they were last taken, by queue: for each kind the number of times, and their sum in microseconds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._delivered_at: dict[tuple[int, bytes], float] = {}
        self._sums = _no_sums()

    def time_deliveries(self, messages: Sequence[Message]) -> None:
        """See `Counters`."""
        now, waiting = self._clock.monotonic(), self._sums["waiting"]
        for message in messages:
            delivered_at = message.last_delivered_at or message.read_at
            waiting[message.queue_id].add(max(0, delivered_at - message.available_at))
            if message.lock_token is not None:
                self._delivered_at[message.sequence_number, message.lock_token] = now
        while len(self._delivered_at) > MAX_DELIVERIES:
            del self._delivered_at[next(iter(self._delivered_at))]

    def time_settlements(self, settlements: Iterable[Settlement]) -> None:
        """See `Counters`."""
        now, processing = self._clock.monotonic(), self._sums["processing"]
        for settlement in settlements:
            token = settlement.token
            delivered_at = self._delivered_at.pop((token.sequence_number, token.secret), None)
            if delivered_at is not None:
                processing[settlement.queue_id].add(from_seconds(now - delivered_at))

    def take(self) -> Mapping[int, Mapping[str, int]]:
        """Return the sums by queue, and begin again."""
        sums, self._sums = self._sums, _no_sums()
        taken: defaultdict[int, dict[str, int]] = defaultdict(dict)
        for kind, by_queue in sums.items():
            for queue_id, sum_of_queue in by_queue.items():
                taken[queue_id] |= {f"{kind}_times": sum_of_queue.times, f"{kind}_micros": sum_of_queue.micros}
        return taken


class _Sum:
    """A number of times, and their sum in microseconds."""

    __slots__ = ("micros", "times")

    def __init__(self) -> None:
        self.times = self.micros = 0

    def add(self, duration: Duration) -> None:
        self.times += 1
        self.micros += duration


def _no_sums() -> dict[Kind, defaultdict[int, _Sum]]:
    return {kind: defaultdict(_Sum) for kind in KINDS}


def averages(sums: Mapping[str, int]) -> Mapping[Kind, float]:
    """Return the average seconds of each kind that has times."""
    return {
        kind: to_seconds(sums.get(f"{kind}_micros", 0)) / times
        for kind in KINDS
        if (times := sums.get(f"{kind}_times", 0))
    }
