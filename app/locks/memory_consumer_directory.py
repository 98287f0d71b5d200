"""The consumer directory of a single process, which is the only server of its broker."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from app.domain.consumer import (
    MAX_CONSUMERS,
    MAX_CONSUMERS_OF_QUEUE,
    ConsumerReport,
    ConsumerState,
    ListedConsumer,
    TooManyConsumers,
    listed_after,
)
from app.domain.instant import Duration, from_seconds
from app.runtime.clock import Clock

Name = tuple[int, str, str]
"""The id of a queue, a consumer and its principal."""


class MemoryConsumerDirectory:
    """Implements `ConsumerDirectory`. A report ends by the monotonic clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._listed: dict[Name, ListedConsumer] = {}
        self._ends: dict[Name, Duration] = {}

    async def report(self, queue_id: int, report: ConsumerReport, ttl: Duration) -> None:
        """See `ConsumerDirectory`."""
        name = (queue_id, report.consumer, report.principal)
        before = self._live().get(name)
        if before is None:
            of_queue = sum(other == queue_id for other, *_ in self._listed)
            if len(self._listed) >= MAX_CONSUMERS or of_queue >= MAX_CONSUMERS_OF_QUEUE:
                raise TooManyConsumers
        self._listed[name] = listed_after(before, report, self._clock.now())
        self._ends[name] = self._now() + ttl

    async def remove(self, queue_id: int, principal: str, consumer: str) -> None:
        """See `ConsumerDirectory`."""
        self._drop([(queue_id, consumer, principal)])

    async def of_queue(self, queue_id: int) -> Sequence[ListedConsumer]:
        """See `ConsumerDirectory`."""
        return [listed for name, listed in sorted(self._live().items(), key=_by_name) if name[0] == queue_id]

    async def paused(self) -> Mapping[int, Sequence[ListedConsumer]]:
        """See `ConsumerDirectory`."""
        found: defaultdict[int, list[ListedConsumer]] = defaultdict(list)
        for (queue_id, *_), listed in sorted(self._live().items(), key=_by_name):
            if listed.report.state is ConsumerState.PAUSED:
                found[queue_id].append(listed)
        return found

    def _live(self) -> Mapping[Name, ListedConsumer]:
        """Return the consumers whose reports are valid, and drop all others."""
        now = self._now()
        self._drop([name for name, end in self._ends.items() if end <= now])
        return self._listed

    def _drop(self, names: Iterable[Name]) -> None:
        for name in names:
            self._listed.pop(name, None)
            self._ends.pop(name, None)

    def _now(self) -> Duration:
        return from_seconds(self._clock.monotonic())


def _by_name(entry: tuple[Name, ListedConsumer]) -> Name:
    return entry[0]
