"""How a worker pushes the messages of queues to a target."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from peeklock_client.push.errors import InvalidPush
from peeklock_client.push.target import TimeLimits

MAX_CONCURRENCY = 1000
MAX_BATCH_EVENTS = 1000
MAX_QUEUES = 100


@dataclass(frozen=True, slots=True)
class PushOptions:
    """The options of one target.

    At most `concurrency` requests are under way at a time, and at most `rate` of them begin per second, for all queues of
    the process together. With `batch`, a request carries up to this number of messages of one queue. After `open_after`
    failures in a row, the worker stops receiving until the target works again. `filter` and `receiver_id` are those of
    `SubscriberOptions`. Raises `InvalidPush`.
    """

    url: str
    queues: tuple[str, ...]
    secrets: tuple[bytes, ...] = field(repr=False)
    concurrency: int = 10
    rate: float | None = None
    batch: int | None = None
    open_after: int = 5
    allow_private: bool = False
    limits: TimeLimits = field(default_factory=TimeLimits)
    filter: str | None = None
    receiver_id: str | None = None

    def __post_init__(self) -> None:
        limits = self.limits
        needs = {
            f"1 to {MAX_QUEUES} different queues": 1 <= len(self.queues) == len({*self.queues}) <= MAX_QUEUES,
            "queues with names": all(self.queues),
            f"a concurrency from 1 to {MAX_CONCURRENCY}": 1 <= self.concurrency <= MAX_CONCURRENCY,
            "a finite rate > 0": self.rate is None or 0 < self.rate < math.inf,
            f"a batch from 1 to {MAX_BATCH_EVENTS}": self.batch is None or 1 <= self.batch <= MAX_BATCH_EVENTS,
            "a number of failures >= 1 that opens the circuit": self.open_after >= 1,
            "finite time limits > 0": all(
                0 < seconds < math.inf for seconds in (limits.connect, limits.send, limits.answer, limits.total)
            ),
            "a receiver_id that is not empty": self.receiver_id != "",
        }
        for need, is_met in needs.items():
            if not is_met:
                raise InvalidPush(f"A push needs {need}.")

    @property
    def max_workers(self) -> int:
        """How many messages may be on their way to the target."""
        return self.concurrency * (self.batch or 1)
