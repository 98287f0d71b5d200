"""How long messages wait for their delivery, and how long receivers take for them, on average within each sample.

Taken from the deliveries of this process. The time of a receiver is known if the same process has delivered the message and
takes its settlement.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypeAlias

from app.domain.instant import to_seconds
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
    """The times of the current sample, by queue."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._delivered_at: dict[tuple[int, bytes], float] = {}
        self._times: dict[Kind, defaultdict[int, _Average]] = {}
        self.next_sample()

    def time_deliveries(self, messages: Sequence[Message]) -> None:
        """See `Counters`."""
        now, waiting = self._clock.monotonic(), self._times["waiting"]
        for message in messages:
            delivered_at = message.last_delivered_at or message.read_at
            waiting[message.queue_id].add(max(0.0, to_seconds(delivered_at - message.available_at)))
            if message.lock_token is not None:
                self._delivered_at[message.sequence_number, message.lock_token] = now
        while len(self._delivered_at) > MAX_DELIVERIES:
            del self._delivered_at[next(iter(self._delivered_at))]

    def time_settlements(self, settlements: Iterable[Settlement]) -> None:
        """See `Counters`."""
        now, processing = self._clock.monotonic(), self._times["processing"]
        for settlement in settlements:
            token = settlement.token
            delivered_at = self._delivered_at.pop((token.sequence_number, token.secret), None)
            if delivered_at is not None:
                processing[settlement.queue_id].add(now - delivered_at)

    def averages(self, queue_id: int) -> Mapping[Kind, float]:
        """Return the average seconds of the current sample, as far as any is known."""
        return {kind: times[queue_id].seconds for kind, times in self._times.items() if queue_id in times}

    def next_sample(self) -> None:
        """Begin a sample."""
        self._times = {kind: defaultdict(_Average) for kind in KINDS}


class _Average:
    """The average of times in seconds."""

    __slots__ = ("_count", "_sum")

    def __init__(self) -> None:
        self._sum, self._count = 0.0, 0

    def add(self, seconds: float) -> None:
        self._sum += seconds
        self._count += 1

    @property
    def seconds(self) -> float:
        return self._sum / self._count
