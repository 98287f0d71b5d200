"""How long messages wait for their delivery, and how long receivers take for them, on average within each sample.

The time of a receiver is known if the same process has delivered the message and takes its settlement.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypeAlias

from app.domain.instant import from_seconds, to_seconds
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
        now = self._clock.monotonic()
        for message in messages:
            delivered_at = message.last_delivered_at or message.read_at
            sums = self._sums[message.queue_id]
            sums["waiting_times"] += 1
            sums["waiting_micros"] += max(0, delivered_at - message.available_at)
            if message.lock_token is not None:
                self._delivered_at[message.sequence_number, message.lock_token] = now
        while len(self._delivered_at) > MAX_DELIVERIES:
            del self._delivered_at[next(iter(self._delivered_at))]

    def time_settlements(self, settlements: Iterable[Settlement]) -> None:
        """See `Counters`."""
        now = self._clock.monotonic()
        for settlement in settlements:
            token = settlement.token
            delivered_at = self._delivered_at.pop((token.sequence_number, token.secret), None)
            if delivered_at is not None:
                sums = self._sums[settlement.queue_id]
                sums["processing_times"] += 1
                sums["processing_micros"] += from_seconds(now - delivered_at)

    def take(self) -> Mapping[int, Mapping[str, int]]:
        """Return the sums by queue, and begin again."""
        sums, self._sums = self._sums, _no_sums()
        return sums


def _no_sums() -> defaultdict[int, defaultdict[str, int]]:
    return defaultdict(lambda: defaultdict(int))


def averages(sums: Mapping[str, int]) -> Mapping[Kind, float]:
    """Return the average seconds of each kind that has times."""
    return {
        kind: to_seconds(sums.get(f"{kind}_micros", 0)) / times
        for kind in KINDS
        if (times := sums.get(f"{kind}_times", 0))
    }
