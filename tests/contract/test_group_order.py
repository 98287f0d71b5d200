"""The messages of a group are delivered in the order of acceptance, whether they were sent, published or committed."""

from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.broker.receiving.receive import ReceiveRequest, receive
from app.broker.sending.send import send
from app.broker.settling.outcomes import complete
from app.broker.settling.settle import settle_one
from app.broker.topics.publish import publish
from app.broker.topics.topics import all_topics, put, subscriptions_of
from app.broker.transactions.join import join_publishes, join_sends
from app.broker.transactions.open_transactions import commit, open_transaction
from app.domain.instant import MINUTE
from app.domain.message import BodyKind, Envelope
from app.domain.queue import Queue, QueueSettings
from app.domain.sending import NewMessage
from app.domain.settlement import token_of
from app.domain.topic import SubscriptionSettings, TopicSettings
from app.domain.transaction import TransactionKey
from tests.bounds import bounded
from tests.brokers import OpenBroker, build_broker
from tests.contract.store_fixture import StoreFixture

TOPIC = "events"
STEPS = st.tuples(
    st.sampled_from(["send", "publish", "transaction", "late transaction"]),
    st.lists(st.sampled_from(["a", "b"]), min_size=1, max_size=4),
)
"""A way, and the groups of the messages that take it together. A late transaction is committed after the next step."""


@asynccontextmanager
async def open_broker(store_fixture: StoreFixture, queue: Queue) -> AsyncIterator[OpenBroker]:
    """Yield a broker with a topic that copies everything to the queue."""
    broker = build_broker(store_fixture.store, store_fixture.clock)
    topic, _ = await put(all_topics(broker.topics), TOPIC, TopicSettings())
    await put(subscriptions_of(broker.topics, topic), "all", SubscriptionSettings(queue.name))
    try:
        yield broker
    finally:
        await broker.volatile_buffer.close()
        await broker.topic_cache.close()
        await broker.queue_cache.close()


@pytest.mark.behaviour("S1.83")
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(STEPS, min_size=1, max_size=6))
async def test_a_group_is_delivered_in_the_order_of_acceptance(
    store_fixture: StoreFixture, steps: list[tuple[str, list[str]]]
) -> None:
    await store_fixture.delete_all_rows()
    queue = await store_fixture.queue(QueueSettings(group_in_flight=1))
    async with open_broker(store_fixture, queue) as broker:
        expected = await accept(broker, queue, steps)
        delivered: dict[str | None, list[bytes]] = defaultdict(list)
        for _ in bounded("no message is left"):
            messages = (await receive(broker.receiving, queue, ReceiveRequest(max_messages=3))).result
            if not messages:
                break
            for message in messages:
                delivered[message.envelope.group_id].append(message.body)
                await settle_one(broker.settling, queue, complete(queue, token_of(message)))
        assert delivered == expected


async def accept(broker: OpenBroker, queue: Queue, steps: list[tuple[str, list[str]]]) -> dict[str, list[bytes]]:
    """Send messages, and return the bodies of each group in the order of acceptance."""
    expected: dict[str, list[bytes]] = defaultdict(list)
    late: list[tuple[TransactionKey, list[NewMessage]]] = []
    numbers = count()
    for way, groups in steps:
        due, late = late, []
        new_messages = [
            NewMessage(Envelope("", group_id=group), b"%d" % next(numbers), BodyKind.BYTES) for group in groups
        ]
        if way == "send":
            await send(broker.sending, queue.name, new_messages)
        elif way == "publish":
            await publish(broker.topics, TOPIC, new_messages)
        else:
            key = await joined(broker, queue, new_messages)
            (late if way == "late transaction" else due).append((key, new_messages))
            new_messages = []
        note(expected, new_messages)
        for key, members in due:
            await commit(broker.transactions, key)
            note(expected, members)
    for key, members in late:
        await commit(broker.transactions, key)
        note(expected, members)
    return expected


async def joined(broker: OpenBroker, queue: Queue, new_messages: list[NewMessage]) -> TransactionKey:
    """Let messages join a transaction one after the other, every second one as a publish."""
    key = TransactionKey((await open_transaction(broker.transactions, "client", MINUTE)).id, "client")
    for place, new_message in enumerate(new_messages):
        if place % 2:
            await join_publishes(broker.transactions, key, TOPIC, [new_message])
        else:
            await join_sends(broker.transactions, key, queue.name, [new_message])
    return key


def note(expected: dict[str, list[bytes]], new_messages: list[NewMessage]) -> None:
    """Note that these messages were accepted now."""
    for new_message in new_messages:
        expected[new_message.envelope.group_id or ""].append(new_message.body)
