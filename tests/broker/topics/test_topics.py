"""Topics and subscriptions: their limits, changes that meet, and lookups in progress."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, cast

import pytest

from app.broker.topics import topics
from app.broker.topics.subscription_filter import check_filter
from app.broker.topics.topic_cache import _MAX_LOADS, FILTER_WEIGHT, LABEL_WEIGHT, TopicCache
from app.domain.message import MAX_FILTER_BYTES
from app.domain.queue import QueueSettings
from app.domain.refusals import InvalidRequest, StoreUnavailable, TooManySubscriptions, TooManyTopics
from app.domain.topic import MAX_SUBSCRIPTIONS, MAX_TOPICS, Route, SubscriptionSettings, Topic, TopicSettings
from app.domain.weight import MESSAGE_OVERHEAD_BYTES
from tests.brokers import ChangedStore, OpenBroker
from tests.virtual_clock import run_ready_tasks


async def test_no_topic_is_created_above_the_limit(broker: OpenBroker) -> None:
    all_topics = topics.all_topics(broker.topics)
    assert all_topics.limit == MAX_TOPICS
    await topics.put(all_topics, "one", TopicSettings())
    with pytest.raises(TooManyTopics, match="at most 1 topics"):
        await topics.put(replace(all_topics, limit=1), "two", TopicSettings())
    assert (await topics.put(replace(all_topics, limit=2), "two", TopicSettings()))[1]


async def test_no_subscription_is_created_above_the_limit(broker: OpenBroker) -> None:
    topic, _ = await topics.put(topics.all_topics(broker.topics), "events", TopicSettings())
    subscriptions = topics.subscriptions_of(broker.topics, topic)
    assert subscriptions.limit == MAX_SUBSCRIPTIONS
    for name in ("one", "two"):
        await broker.store.queues.create(name, QueueSettings())
    await topics.put(subscriptions, "one", SubscriptionSettings("one"))
    with pytest.raises(TooManySubscriptions, match="at most 1 subscriptions"):
        await topics.put(replace(subscriptions, limit=1), "two", SubscriptionSettings("two"))
    assert (await topics.put(replace(subscriptions, limit=2), "two", SubscriptionSettings("two")))[1]


class Outrun:
    """A collection of entities in which another request is always first."""

    def __init__(self, entity: Topic | None) -> None:
        self.entity = entity

    async def find(self, name: str) -> Topic | None:
        return self.entity

    async def create(self, name: str, settings: TopicSettings, limit: int | None = None) -> Topic | None:
        return None

    async def change(self, entity: Topic, settings: TopicSettings) -> Topic | None:
        return None

    async def delete(self, entity: Topic) -> bool:
        return False


async def test_a_change_that_is_always_outrun_is_refused(broker: OpenBroker) -> None:
    all_topics = topics.all_topics(broker.topics)
    topic, _ = await topics.put(all_topics, "events", TopicSettings())
    other = TopicSettings("Other.")
    of_absent = replace(all_topics, store=cast("Any", Outrun(None)))
    of_changed = replace(all_topics, store=cast("Any", Outrun(topic)))
    for attempt in (
        topics.put(of_absent, "events", other),
        topics.put(of_changed, "events", other),
        topics.change(of_changed, "events", lambda _: other),
        topics.delete(of_changed, "events"),
    ):
        with pytest.raises(StoreUnavailable):
            await attempt


async def test_a_change_returns_the_changed_entity(broker: OpenBroker) -> None:
    all_topics = topics.all_topics(broker.topics)
    await topics.put(all_topics, "events", TopicSettings())
    changed, is_created = await topics.put(all_topics, "events", TopicSettings("Events."))
    assert (changed.settings.description, changed.version, is_created) == ("Events.", 2, False)
    again = await topics.change(all_topics, "events", lambda _: TopicSettings("Others."))
    assert (again.settings.description, again.version) == ("Others.", 3)


def test_a_filter_of_a_subscription_has_at_most_the_bytes_of_any_filter() -> None:
    source = "message.priority > 3"
    check_filter(source + " " * (MAX_FILTER_BYTES - len(source)))
    with pytest.raises(InvalidRequest, match=f"at most {MAX_FILTER_BYTES} bytes"):
        check_filter(source + " " * (MAX_FILTER_BYTES - len(source) + 1))


async def test_closing_the_cache_ends_a_lookup_in_progress(broker: OpenBroker) -> None:
    async def never(_name: str) -> None:
        await asyncio.Event().wait()

    cache = TopicCache(cast("Any", ChangedStore(broker.store.topics, find=never)), broker.clock)
    looking = asyncio.ensure_future(cache.by_name("events"))
    await run_ready_tasks()
    await cache.close()
    await asyncio.wait({looking})
    assert looking.cancelled()


async def test_only_a_few_topics_are_read_at_a_time(broker: OpenBroker) -> None:
    """Each may have megabytes of subscriptions, and nothing counts them before they are read."""
    reading = most = 0
    goes_on = asyncio.Event()

    async def routes(_topic: Topic) -> list[Route]:
        nonlocal reading, most
        reading += 1
        most = max(most, reading)
        await goes_on.wait()
        reading -= 1
        return []

    names = [f"topic-{number}" for number in range(3 * _MAX_LOADS)]
    for name in names:
        await topics.put(topics.all_topics(broker.topics), name, TopicSettings())
    cache = TopicCache(cast("Any", ChangedStore(broker.store.topics, routes=routes)), broker.clock)
    lookups = [asyncio.ensure_future(cache.by_name(name)) for name in names]
    await run_ready_tasks()
    assert reading == _MAX_LOADS
    goes_on.set()
    assert [found.topic.name for found in await asyncio.gather(*lookups)] == names
    assert most == _MAX_LOADS
    await cache.close()


async def test_a_topic_weighs_what_its_subscriptions_and_their_queues_hold(broker: OpenBroker) -> None:
    topic, _ = await topics.put(topics.all_topics(broker.topics), "events", TopicSettings())
    await broker.store.queues.create("audit", QueueSettings(description="d" * 100))
    settings = SubscriptionSettings("audit", "message.priority > 3", b'{"a":1}', ("name",), {"team": "payments"})
    await topics.put(topics.subscriptions_of(broker.topics, topic), "audit", settings)
    found = await broker.topic_cache.by_name("events")
    assert found.weight == MESSAGE_OVERHEAD_BYTES + 20 * FILTER_WEIGHT + 7 + 4 + 100 + LABEL_WEIGHT + 12
