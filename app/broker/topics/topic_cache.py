"""The topics by name with their subscriptions, cached briefly so that not every publish reads them from the store."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from app.broker.ports.store import TopicStore
from app.broker.queue_cache import CACHE_SECONDS
from app.broker.topics.subscription_filter import SubscriptionFilter, compiled
from app.domain.queue import Queue, check_known
from app.domain.refusals import QueueNotFound, TopicNotFound
from app.domain.topic import FilterCounts, Route, Subscription, SubscriptionSettings, Topic
from app.domain.weight import MESSAGE_OVERHEAD_BYTES
from app.runtime.cache import Cache
from app.runtime.clock import Clock

_MAX_ENTRIES = 1_000

_MAX_CACHED_BYTES = 64 << 20
"""Bytes of all cached topics together. One with the most subscriptions, each as large as it can be, has 48 MiB."""

_MAX_LOADS = 4
"""Topics that are read at a time, because each may have as many bytes."""

LABEL_WEIGHT = 100
"""Bytes that a label takes besides its characters."""

FILTER_WEIGHT = 16
"""Bytes that a compiled filter takes for each of its characters."""

COMPILE_BATCH = 5
"""Filters that are compiled before other requests run. Each takes 60 µs, and up to 4 ms."""


@dataclass(frozen=True, slots=True)
class ActiveRoute:
    """A subscription with its compiled filter and its target queue."""

    subscription: Subscription
    filter: SubscriptionFilter
    target: Queue | None

    @property
    def queue(self) -> Queue:
        """The target queue. Refuses with `QueueNotFound` once it is deleted, and with `NewerQueue`."""
        if self.target is None:
            settings = self.subscription.settings
            raise QueueNotFound(
                f"Subscription {self.subscription.name} sends to queue {settings.target_queue}, which does not exist."
            )
        check_known(self.target)
        return self.target


@dataclass(frozen=True, slots=True)
class TopicRoutes:
    """A topic and its subscriptions, by name. `filter_counts` counts those that have a filter."""

    topic: Topic
    routes: Sequence[ActiveRoute]
    filter_counts: FilterCounts

    @property
    def weight(self) -> int:
        """About how many bytes of memory it takes."""
        return sum([_weight(active.subscription.settings, active.target) for active in self.routes])


class TopicCache:
    """Finds topics by name, with compiled filters."""

    def __init__(self, topics: TopicStore, clock: Clock) -> None:
        self._topics = topics
        self._loads = asyncio.Semaphore(_MAX_LOADS)
        self._by_name = Cache(
            self._load,
            clock,
            ttl_seconds=CACHE_SECONDS,
            max_size=_MAX_ENTRIES,
            weigh=_weight_of_topic,
            max_weight=_MAX_CACHED_BYTES,
        )

    async def by_name(self, name: str) -> TopicRoutes:
        """Return the topic of this name. Refuses with `TopicNotFound`."""
        found = await self._by_name.get(name)
        if found is None:
            raise self.not_found(name)
        return found

    def not_found(self, name: str) -> TopicNotFound:
        """Build the refusal for a name without a topic, and remove the name from the cache."""
        self.forget(name)
        return TopicNotFound(f"There is no topic named {name}.")

    def forget(self, name: str) -> None:
        """Remove the topic of this name from the cache."""
        self._by_name.forget(name)

    def clear(self) -> None:
        """Clear the cache after another process has changed a topic or a queue."""
        self._by_name.clear()

    async def close(self) -> None:
        """Stop the lookups in progress."""
        await self._by_name.close()

    async def _load(self, name: str) -> TopicRoutes | None:
        topic = await self._topics.find(name)
        if topic is None:
            return None
        async with self._loads:
            return await self._load_routes(topic)

    async def _load_routes(self, topic: Topic) -> TopicRoutes:
        routes: list[ActiveRoute] = []
        for index, route in enumerate(await self._topics.routes(topic)):
            if index % COMPILE_BATCH == 0:
                await asyncio.sleep(0)
            routes.append(_active(route))
        filter_counts = FilterCounts(
            sum(route.subscription.settings.filter is not None for route in routes),
            sum(route.filter.reads_body for route in routes),
        )
        return TopicRoutes(topic, routes, filter_counts)


def _weight_of_topic(found: TopicRoutes | None) -> int:
    return 0 if found is None else found.weight


def _weight(settings: SubscriptionSettings, target: Queue | None) -> int:
    names = sum([len(name) for name in settings.remove_properties])
    description = 0 if target is None else len(target.settings.description)
    labels = sum([LABEL_WEIGHT + len(name) + len(text) for name, text in settings.labels.items()])
    texts = len(settings.filter or "") * FILTER_WEIGHT + len(settings.set_properties) + names + description + labels
    return MESSAGE_OVERHEAD_BYTES + texts


def _active(route: Route) -> ActiveRoute:
    return ActiveRoute(route.subscription, compiled(route.subscription.settings.filter), route.queue)
