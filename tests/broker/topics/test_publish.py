"""A publish is refused as sends to its target queues would be, wakes their receivers, and follows changes of its topic."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from app.broker.administration.queues import change_queue
from app.broker.ports.attempts import Attempt, AttemptResult
from app.broker.ports.sending import QueueGone
from app.broker.receiving.receive import ReceiveRequest, receive
from app.broker.topics import topics
from app.broker.topics.ports import TopicPorts
from app.broker.topics.publish import (
    _MAX_TRIES,
    EVALUATION_BATCH_SIZE,
    RoutedMessage,
    publish,
    route,
)
from app.domain.instant import HOUR
from app.domain.message import BodyKind, Draft, Envelope, Receipt
from app.domain.queue import Queue, QueueSettings, QueueStatus
from app.domain.refusals import (
    InvalidRequest,
    MessageTooLarge,
    QueueFull,
    SendDisabled,
    StoreUnavailable,
    TopicNotFound,
)
from app.domain.sending import NewMessage
from app.domain.topic import MAX_PUBLISHED_BYTES, Published, SubscriptionSettings, TopicSettings
from app.domain.weight import weight_of
from tests.broker.recorders import RecordingNotifier
from tests.brokers import ChangedStore, OpenBroker, result_of
from tests.virtual_clock import run_ready_tasks

ATTEMPT = Attempt(b"k" * 32, b"f" * 32, HOUR)
MESSAGE = NewMessage(Envelope("one"))


@pytest.fixture
async def targets(broker: OpenBroker) -> list[Queue]:
    """The queues of the two subscriptions of the topic `events`."""
    topic, _ = await topics.put(topics.all_topics(broker.topics), "events", TopicSettings())
    subscriptions = topics.subscriptions_of(broker.topics, topic)
    queues: list[Queue] = []
    for name in ("audit", "billing"):
        queue, _ = await broker.store.queues.create(name, QueueSettings())
        await topics.put(subscriptions, name, SubscriptionSettings(name))
        queues.append(queue)
    return queues


def with_body(size: int) -> NewMessage:
    """Return a message with a body of this size."""
    return NewMessage(Envelope(""), b"b" * size, BodyKind.BYTES)


async def totals(broker: OpenBroker, queues: Sequence[Queue]) -> list[int]:
    """Return the number of messages in each queue."""
    return [await broker.store.queues.total(queue.id) for queue in queues]


async def routed(ports: TopicPorts, publishes: Sequence[tuple[str, NewMessage]]) -> list[RoutedMessage]:
    """Return the copies of these messages."""
    async with ports.budget.reserve_more() as held:
        return await route(ports, publishes, held)


async def configure(broker: OpenBroker, queue: Queue, **settings: Any) -> None:
    """Change settings of a queue, as an administrator does."""
    await change_queue(broker.administration, queue, lambda before: replace(before, **settings))


@pytest.mark.behaviour("S1.41")
@pytest.mark.parametrize("is_repeatable", [False, True])
async def test_a_publish_wakes_the_receivers_of_all_its_copies(
    broker: OpenBroker, targets: list[Queue], is_repeatable: bool
) -> None:
    waiting = [
        asyncio.create_task(result_of(receive(broker.receiving, queue, ReceiveRequest(wait_seconds=5))))
        for queue in targets
    ]
    await run_ready_tasks()
    if is_repeatable:
        await publish(broker.topics, "events", [MESSAGE], ATTEMPT)
    else:
        assert (await publish(broker.topics, "events", [MESSAGE])).result == [Published("one", 2, 0)]
    await run_ready_tasks()
    assert [task.done() for task in waiting] == [True, True]
    assert [(await task)[0].envelope.message_id for task in waiting] == ["one", "one"]


@pytest.mark.parametrize(
    ("settings", "refusal"),
    [({"status": QueueStatus.SEND_DISABLED}, SendDisabled), ({"max_messages": 1}, QueueFull)],
)
async def test_one_queue_that_refuses_its_copy_refuses_the_publish(
    broker: OpenBroker, targets: list[Queue], settings: dict[str, Any], refusal: type[Exception]
) -> None:
    await configure(broker, targets[1], **settings)
    with pytest.raises(refusal):
        await publish(broker.topics, "events", [MESSAGE, NewMessage(Envelope("two"))])
    assert await totals(broker, targets) == [0, 0]


async def test_a_queue_without_room_for_all_messages_of_a_publish_gets_none(
    broker: OpenBroker, targets: list[Queue]
) -> None:
    await configure(broker, targets[0], max_messages=2)
    messages = [NewMessage(Envelope(str(number))) for number in range(3)]
    with pytest.raises(QueueFull):
        await publish(broker.topics, "events", messages)
    await publish(broker.topics, "events", messages[:2])
    assert await totals(broker, targets) == [2, 2]


async def test_copies_may_have_exactly_the_bytes_that_a_statement_stores(
    broker: OpenBroker, targets: list[Queue]
) -> None:
    for queue in targets:
        await configure(broker, queue, max_message_bytes=MAX_PUBLISHED_BYTES)
    empty = [with_body(0), with_body(0)]
    size = (MAX_PUBLISHED_BYTES - 4 * weight_of(empty[0])) // 4
    with pytest.raises(MessageTooLarge):
        await publish(broker.topics, "events", [with_body(size), with_body(size + 1)])
    await publish(broker.topics, "events", [with_body(size), with_body(size)])
    assert await totals(broker, targets) == [2, 2]


async def test_two_messages_of_a_publish_have_different_ids(broker: OpenBroker, targets: list[Queue]) -> None:
    with pytest.raises(InvalidRequest):
        await publish(broker.topics, "events", [MESSAGE, MESSAGE])
    published = (await publish(broker.topics, "events", [NewMessage(Envelope("")), NewMessage(Envelope(""))])).result
    assert len({result.message_id for result in published}) == 2


async def test_a_repeat_gets_the_first_result_also_when_it_would_be_refused_now(
    broker: OpenBroker, targets: list[Queue]
) -> None:
    unnamed = [NewMessage(Envelope("")), NewMessage(Envelope(""))]
    first = await publish(broker.topics, "events", unnamed, ATTEMPT)
    assert not first.replayed
    assert await publish(broker.topics, "events", unnamed, ATTEMPT) == AttemptResult(first.result, True)
    await configure(broker, targets[0], status=QueueStatus.SEND_DISABLED)
    broker.queue_cache.clear()
    broker.topic_cache.clear()
    assert await publish(broker.topics, "events", unnamed, ATTEMPT) == AttemptResult(first.result, True)
    with pytest.raises(SendDisabled):
        await publish(broker.topics, "events", unnamed, replace(ATTEMPT, key=b"other" + b"k" * 27))
    assert await totals(broker, targets) == [2, 2]


async def test_a_publish_whose_queues_are_deleted_again_and_again_has_no_effect(
    broker: OpenBroker, targets: list[Queue]
) -> None:
    tries = 0

    async def send(_drafts: Sequence[Draft]) -> list[Receipt]:
        nonlocal tries
        tries += 1
        raise QueueGone

    store: Any = ChangedStore(broker.store, send=send)
    with pytest.raises(StoreUnavailable):
        await publish(replace(broker, store=store).topics, "events", [MESSAGE])
    assert tries == _MAX_TRIES


async def test_a_topic_that_was_not_found_is_read_again(broker: OpenBroker) -> None:
    with pytest.raises(TopicNotFound):
        await publish(broker.topics, "events", [MESSAGE])
    await broker.store.topics.create("events", TopicSettings())  # by another server, whose notification is late
    assert (await publish(broker.topics, "events", [MESSAGE])).result == [Published("one", 0, 0)]


async def test_each_change_of_a_topic_is_reported_to_other_servers(broker: OpenBroker) -> None:
    processes: Any = RecordingNotifier()
    ports = replace(broker, notifier=processes).topics
    topic, _ = await topics.put(topics.all_topics(ports), "events", TopicSettings())
    assert processes.changes_of_queues == 1
    subscriptions = topics.subscriptions_of(ports, topic)
    await broker.store.queues.create("audit", QueueSettings())
    await topics.put(subscriptions, "audit", SubscriptionSettings("audit"))
    await topics.change(subscriptions, "audit", lambda before: replace(before.settings, filter="priority > 3"))
    await topics.delete(subscriptions, "audit")
    assert processes.changes_of_queues == 4


async def test_messages_that_no_subscription_matches_are_counted(broker: OpenBroker, targets: list[Queue]) -> None:
    await publish(broker.topics, "events", [MESSAGE, with_body(3)])
    assert broker.counters["messages_unmatched"] == 0
    await topics.put(topics.all_topics(broker.topics), "unused", TopicSettings())
    await publish(broker.topics, "unused", [MESSAGE, with_body(3)])
    assert broker.counters["messages_unmatched"] == 2


@pytest.mark.usefixtures("targets")
async def test_other_tasks_run_while_many_filters_are_evaluated(broker: OpenBroker) -> None:
    publishes = [("events", NewMessage(Envelope(str(number)))) for number in range(3 * EVALUATION_BATCH_SIZE)]
    await routed(broker.topics, publishes)
    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(take_turns())
    await routed(broker.topics, publishes)
    other.cancel()
    assert turns >= 3


@pytest.mark.usefixtures("targets")
async def test_other_tasks_run_between_the_filters_of_many_publishes(broker: OpenBroker) -> None:
    publishes = [("events", NewMessage(Envelope(str(number)))) for number in range(3 * EVALUATION_BATCH_SIZE)]
    ports = broker.topics
    await routed(ports, publishes)
    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(take_turns())
    await asyncio.gather(*(routed(ports, publishes) for _ in range(10)))
    other.cancel()
    assert turns >= 30, "not all publishes evaluate filters in one turn"
