"""Topics and subscriptions, and the messages that one send stores in several queues."""

import asyncio
from typing import Any, TypeVar

import pytest
from msgspec.structs import replace

from app.broker.ports.attempts import Attempt
from app.broker.ports.sending import QueueGone
from app.broker.ports.topics import EntityStore
from app.domain.instant import DAY, HOUR
from app.domain.message import Draft
from app.domain.queue import Queue, QueueSettings
from app.domain.refusals import (
    QueueIsTarget,
    QueueNotFound,
    TargetQueueTaken,
    TooManySubscriptions,
    TooManyTopics,
    TopicNotFound,
)
from app.domain.topic import SubscriptionSettings, Topic, TopicSettings
from tests.contract.store_fixture import ServerFixture, StoreFixture, bodies, draft

LABELS = {"sns:Tag": "\u00fcnicode with 'quotes', \\ and \U0001f980", "": ""}
EntityT = TypeVar("EntityT")
SettingsT = TypeVar("SettingsT")


async def created(store: EntityStore[EntityT, SettingsT], name: str, settings: SettingsT) -> EntityT:
    """Create an entity, which must not exist yet."""
    entity = await store.create(name, settings)
    assert entity is not None
    return entity


@pytest.fixture
async def topic(store_fixture: StoreFixture) -> Topic:
    """A topic without subscriptions."""
    return await created(store_fixture.store.topics, "orders", TopicSettings("Orders."))


def to_queue(queue: Queue, **fields: Any) -> SubscriptionSettings:
    """Settings of a subscription to this queue."""
    return SubscriptionSettings(queue.name, **fields)


# ---- topics ----------------------------------------------------------------------------------------------------------


async def test_a_topic_is_created_once_and_found_by_its_name(store_fixture: StoreFixture, topic: Topic) -> None:
    topics = store_fixture.store.topics
    assert (topic.name, topic.settings, topic.version) == ("orders", TopicSettings("Orders."), 1)
    assert await topics.find("orders") == topic
    assert await topics.create("orders", TopicSettings()) is None
    assert await topics.find("Orders") is None
    assert await topics.find("orders ") is None
    assert await topics.find("a\0b") is None


async def test_topics_are_listed_by_code_point(store_fixture: StoreFixture) -> None:
    topics = store_fixture.store.topics
    for name in ("b", "B", "a-1", "a"):
        await created(topics, name, TopicSettings())
    assert [found.name for found in await topics.page("", 3)] == ["B", "a", "a-1"]
    assert [found.name for found in await topics.page("a", 3)] == ["a-1", "b"]


async def test_a_topic_keeps_its_labels(store_fixture: StoreFixture) -> None:
    topics = store_fixture.store.topics
    topic = await created(topics, "orders", TopicSettings("Orders.", LABELS))
    assert topic.settings == TopicSettings("Orders.", LABELS)
    changed = await topics.change(topic, TopicSettings("Orders.", {"team": "payments"}))
    assert changed is not None
    assert await topics.find("orders") == changed
    assert changed.settings.labels == {"team": "payments"}
    without = await topics.change(changed, TopicSettings("Orders."))
    assert without is not None
    assert without.settings.labels == {}


async def test_a_server_that_knows_no_labels_leaves_them_as_they_are(store_fixture: StoreFixture) -> None:
    store, now = store_fixture.store, await store_fixture.store.now()
    topic = await created(store.topics, "orders", TopicSettings("Orders.", LABELS))
    subscriptions, queue = store.topics.subscriptions(topic), await store_fixture.queue()
    subscription = await created(subscriptions, "s", to_queue(queue, labels=LABELS))
    await store_fixture.execute(
        f"UPDATE topic SET description = 'Changed.', version = version + 1, updated_at = {now} WHERE id = {topic.id}"
    )
    await store_fixture.execute(
        f"UPDATE subscription SET filter = 'true', version = version + 1 WHERE id = {subscription.id}"
    )
    await store_fixture.execute(
        f"INSERT INTO topic (name, description, version, created_at, updated_at) VALUES ('older', '', 1, {now}, {now})"
    )
    found = [await store.topics.find(name) for name in ("orders", "older")]
    assert [one and one.settings for one in found] == [TopicSettings("Changed.", LABELS), TopicSettings()]
    (changed,) = await subscriptions.page("", 2)
    assert changed.settings == to_queue(queue, filter="true", labels=LABELS)


async def test_a_change_of_a_subscription_replaces_its_labels(store_fixture: StoreFixture, topic: Topic) -> None:
    subscriptions = store_fixture.store.topics.subscriptions(topic)
    queue = await store_fixture.queue()
    first = await created(subscriptions, "s", to_queue(queue, labels=LABELS))
    changed = await subscriptions.change(first, to_queue(queue, labels={"team": "payments"}))
    assert changed is not None
    assert (await subscriptions.page("", 2)) == [changed]
    assert changed.settings.labels == {"team": "payments"}


@pytest.mark.fence("version")
async def test_a_change_or_deletion_of_an_outdated_topic_has_no_effect(store_fixture: StoreFixture) -> None:
    topics = store_fixture.store.topics
    topic = await created(topics, "orders", TopicSettings("Orders."))
    changed = await topics.change(topic, TopicSettings("Changed."))
    assert changed is not None
    assert (changed.settings.description, changed.version) == ("Changed.", 2)
    assert await topics.change(topic, TopicSettings("Late.")) is None
    assert not await topics.delete(topic)
    assert await topics.find("orders") == changed
    assert await topics.delete(changed)
    assert await topics.find("orders") is None


async def test_a_topic_that_is_made_again_has_another_etag(store_fixture: StoreFixture, topic: Topic) -> None:
    topics = store_fixture.store.topics
    assert await topics.delete(topic)
    assert (await created(topics, "orders", TopicSettings())).etag != topic.etag


async def test_concurrent_creations_do_not_exceed_the_limits(store_fixture: StoreFixture) -> None:
    topics = store_fixture.store.topics
    answers = await asyncio.gather(
        *(topics.create(f"topic-{number}", TopicSettings(), limit=2) for number in range(5)), return_exceptions=True
    )
    assert sum(isinstance(answer, TooManyTopics) for answer in answers) == 3
    (topic, _) = await topics.page("", 10)
    subscriptions = topics.subscriptions(topic)
    queues = [await store_fixture.queue() for _ in range(5)]
    answers = await asyncio.gather(
        *(subscriptions.create(f"s{number}", to_queue(queue), limit=2) for number, queue in enumerate(queues)),
        return_exceptions=True,
    )
    assert sum(isinstance(answer, TooManySubscriptions) for answer in answers) == 3
    assert len(await topics.routes(topic)) == 2


# ---- subscriptions ---------------------------------------------------------------------------------------------------


async def test_a_subscription_keeps_all_of_its_settings(store_fixture: StoreFixture, topic: Topic) -> None:
    store = store_fixture.store
    queue = await store_fixture.queue(QueueSettings(max_messages=7))
    settings = to_queue(
        queue,
        filter="message.subject == '\u00e4 \U0001f600'",
        set_properties='{"b":"\u00e9"}'.encode(),
        remove_properties=("a", "b c"),
        labels=LABELS,
    )
    subscription = await created(store.topics.subscriptions(topic), "eu", settings)
    assert (subscription.topic_id, subscription.name, subscription.settings) == (topic.id, "eu", settings)
    assert await store.topics.subscriptions(topic).find("eu") == subscription
    (route,) = await store.topics.routes(topic)
    assert (route.subscription, route.queue) == (subscription, await store.queues.by_id(queue.id))
    assert route.queue is not None
    assert (route.queue.id, route.queue.settings) == (queue.id, queue.settings)


async def test_subscriptions_belong_to_one_topic(store_fixture: StoreFixture, topic: Topic) -> None:
    topics = store_fixture.store.topics
    other = await created(topics, "other", TopicSettings())
    queue = await store_fixture.queue()
    await created(topics.subscriptions(topic), "s", to_queue(queue))
    assert await topics.subscriptions(other).find("s") is None
    assert await topics.routes(other) == []
    await created(topics.subscriptions(other), "s", to_queue(queue))
    assert await topics.delete(other)
    assert len(await topics.routes(topic)) == 1
    assert await topics.routes(other) == []
    assert [await topics.count_subscriptions(one) for one in (topic, other)] == [1, 0]


@pytest.mark.fence("version")
async def test_a_change_or_deletion_of_an_outdated_subscription_has_no_effect(store_fixture: StoreFixture) -> None:
    topic = await created(store_fixture.store.topics, "orders", TopicSettings())
    subscriptions = store_fixture.store.topics.subscriptions(topic)
    queue = await store_fixture.queue()
    first = await created(subscriptions, "s", to_queue(queue))
    changed = await subscriptions.change(first, to_queue(queue, filter="message.priority > 4"))
    assert changed is not None
    assert await subscriptions.change(first, to_queue(queue)) is None
    assert not await subscriptions.delete(first)
    assert await subscriptions.find("s") == changed
    assert await subscriptions.delete(changed)
    assert await subscriptions.find("s") is None


async def test_an_outdated_change_of_a_subscription_leaves_its_target_to_older_servers(
    store_fixture: StoreFixture, topic: Topic
) -> None:
    subscriptions = store_fixture.store.topics.subscriptions(topic)
    queue, target = await store_fixture.queue(), await store_fixture.queue()
    outdated = await created(subscriptions, "s", to_queue(queue))
    assert await subscriptions.change(outdated, to_queue(queue, filter="true")) is not None
    assert await subscriptions.change(outdated, to_queue(target)) is None
    assert await store_fixture.store.queues.by_id(target.id) == target


async def test_two_subscriptions_of_a_topic_have_different_queues(store_fixture: StoreFixture, topic: Topic) -> None:
    subscriptions = store_fixture.store.topics.subscriptions(topic)
    queue, other_queue = await store_fixture.queue(), await store_fixture.queue()
    await created(subscriptions, "first", to_queue(queue))
    with pytest.raises(TargetQueueTaken, match="first"):
        await subscriptions.create("second", to_queue(queue))
    second = await created(subscriptions, "second", to_queue(other_queue))
    with pytest.raises(TargetQueueTaken):
        await subscriptions.change(second, to_queue(queue))
    assert await subscriptions.find("second") == second


async def test_a_subscription_needs_its_topic_and_its_queue(store_fixture: StoreFixture, topic: Topic) -> None:
    topics = store_fixture.store.topics
    queue = await store_fixture.queue()
    with pytest.raises(QueueNotFound, match="absent"):
        await topics.subscriptions(topic).create("s", SubscriptionSettings("absent"))
    subscription = await created(topics.subscriptions(topic), "s", to_queue(queue))
    with pytest.raises(QueueNotFound):
        await topics.subscriptions(topic).change(subscription, SubscriptionSettings("absent"))
    assert await topics.delete(topic)
    with pytest.raises(TopicNotFound):
        await topics.subscriptions(topic).create("late", to_queue(queue))
    with pytest.raises(TopicNotFound):
        await topics.subscriptions(topic).change(subscription, to_queue(queue, filter="true"))


async def test_the_queue_of_a_subscription_is_not_deleted(store_fixture: StoreFixture, topic: Topic) -> None:
    store = store_fixture.store
    subscriptions = store.topics.subscriptions(topic)
    queue = await store_fixture.queue()
    subscription = await created(subscriptions, "s", to_queue(queue))
    with pytest.raises(QueueIsTarget, match="Subscription s of topic orders"):
        await store.queues.delete(queue)
    assert await store.queues.by_name(queue.name) is not None
    assert await subscriptions.delete(subscription)
    assert await store.queues.delete(queue)


async def test_no_subscription_begins_while_its_queue_is_deleted(store_fixture: StoreFixture, topic: Topic) -> None:
    store = store_fixture.store
    subscriptions = store.topics.subscriptions(topic)
    for number in range(10):
        queue = await store_fixture.queue()
        await asyncio.gather(
            store.queues.delete(queue), subscriptions.create(f"s{number}", to_queue(queue)), return_exceptions=True
        )
    for route in await store.topics.routes(topic):
        assert route.queue is not None


async def test_a_deletion_waits_for_a_subscription_to_begin(store_fixture: StoreFixture, topic: Topic) -> None:
    if not isinstance(store_fixture, ServerFixture):
        pytest.skip("one writer runs at a time")
    store = store_fixture.store
    queue = await store_fixture.queue()
    add = (
        "INSERT INTO subscription (topic_id, name, target_queue, set_properties, remove_properties, version, created_at,"
        f" updated_at) VALUES ({topic.id}, 's', '{queue.name}', '', '[]', 1, 0, 0)"
    )
    lock = f"SELECT id FROM queue WHERE id = {queue.id} FOR UPDATE"
    async with store_fixture.open_transaction(lock, add, commits=True):
        deletion = asyncio.create_task(store.queues.delete(queue))
        await store_fixture.wait_until_blocked()
    with pytest.raises(QueueIsTarget):
        await deletion


# ---- one send to several queues --------------------------------------------------------------------------------------


def copies(queues: list[Queue], message_id: str, body: bytes = b"body", **fields: Any) -> list[Draft]:
    """A draft with one message id for each queue."""
    drafts = [draft(queue, body, **fields) for queue in queues]
    return [replace(one, envelope=replace(one.envelope, message_id=message_id)) for one in drafts]


async def test_copies_for_many_queues_are_stored_in_order(store_fixture: StoreFixture) -> None:
    queues = [await store_fixture.queue() for _ in range(5)]
    drafts = [*copies(queues, "first", b"1"), *copies(queues, "second", b"2")]
    receipts = await store_fixture.store.send(drafts)
    assert [receipt.message_id for receipt in receipts] == ["first"] * 5 + ["second"] * 5
    assert [receipt.sequence_number for receipt in receipts] == sorted(receipt.sequence_number for receipt in receipts)
    for queue in queues:
        assert bodies(await store_fixture.claim(queue)) == [b"1", b"2"]


async def test_no_copy_is_stored_if_one_queue_is_gone(store_fixture: StoreFixture) -> None:
    queues = [await store_fixture.queue() for _ in range(5)]
    assert await store_fixture.store.queues.delete(queues[3])
    with pytest.raises(QueueGone):
        await store_fixture.store.send(copies(queues, "m"))
    with pytest.raises(QueueGone):
        await store_fixture.store.send(copies(queues, "m", duplicate_window=HOUR))
    counts = await store_fixture.store.queues.counts([queue.id for queue in queues])
    assert sum(counted.total for counted in counts.values()) == 0


async def test_each_queue_recognises_its_own_duplicates(store_fixture: StoreFixture) -> None:
    detecting, plain = await store_fixture.queue(), await store_fixture.queue()
    drafts = [*copies([detecting], "m", duplicate_window=HOUR), *copies([plain], "m")]
    first = await store_fixture.store.send(drafts)
    second = await store_fixture.store.send(drafts)
    assert [receipt.duplicate for receipt in (*first, *second)] == [False, False, True, False]
    assert second[0].sequence_number == first[0].sequence_number


async def test_an_attempt_without_drafts_is_answered_again(store_fixture: StoreFixture) -> None:
    store, queue = store_fixture.store, await store_fixture.queue()
    attempt = Attempt(b"k" * 32, b"f" * 32, DAY)
    first = await store.send_or_replay([], attempt)
    assert (first.result, first.replayed) == ([], False)
    repeated = await store.send_or_replay(copies([queue], "m"), attempt)
    assert (repeated.result, repeated.replayed) == ([], True)
    assert await store.find_send_result(attempt) == []
    assert await store_fixture.claim(queue) == []


async def test_a_thousand_queues_get_a_copy_in_one_send(store_fixture: StoreFixture) -> None:
    queues = [await store_fixture.queue() for _ in range(1000)]
    receipts = await store_fixture.store.send(copies(queues, "m"))
    assert len({receipt.sequence_number for receipt in receipts}) == 1000
    counts = await store_fixture.store.queues.counts([queue.id for queue in queues])
    assert all(counted.available == 1 for counted in counts.values())
