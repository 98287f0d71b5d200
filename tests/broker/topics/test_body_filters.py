"""The filters of subscriptions read the bodies of messages that are published."""

import asyncio
from typing import Any

import msgspec
import pytest

from app.broker.topics import topics
from app.broker.topics.publish import UNCOUNTED_BYTES, publish, route
from app.broker.topics.subscription_filter import check_filter, compiled, input_of
from app.domain.filter_body import MAX_READ_BODY_BYTES, MAX_READ_VALUES, decoded_weight
from app.domain.message import BodyKind, Envelope
from app.domain.queue import QueueSettings
from app.domain.refusals import InvalidRequest
from app.domain.sending import NewMessage
from app.domain.topic import SubscriptionSettings, TopicSettings
from tests.brokers import OpenBroker

ORDER = {
    "id": "o-17", "total": 99.5, "count": 3, "big": 10**30, "paid": True, "note": None, "tags": ["new", "eu", 7],
    "customer": {"name": "Zürich AG", "address": {"city": "Bern", "zip": "3000"}}, "odd name": {"'": 1}, "empty": "",
}  # fmt: skip


def json_message(body: Any, **envelope: Any) -> NewMessage:
    """Return a message with a JSON body."""
    return NewMessage(Envelope("", **envelope), msgspec.json.encode(body), BodyKind.JSON)


def text_message(body: bytes) -> NewMessage:
    """Return a message with a body of bytes."""
    return NewMessage(Envelope(""), body, BodyKind.BYTES)


def matches(source: str, message: NewMessage) -> bool:
    """Whether the filter of a subscription matches a message."""
    return compiled(source).matches(input_of(message))


# ---- what a filter can say -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "source",
    [
        "message.body.id == 'o-17'",
        "message.body.id in ['o-16', 'o-17']",
        "message.body.count in [1, 2, 3.0]",
        "message.body.paid == true && message.body.note == null",
        "message.body.id.startsWith('o-')",
        "message.body.id.endsWith('17') && message.body.id.contains('-')",
        "!(message.body.id in ['o-1', 'o-2'])",
        "!message.body.id.startsWith('x-')",
        "message.body.total > 99 && message.body.total <= 99.5",
        "message.body.count == 3.0 && message.body.total != 3",
        "message.body.big > 5",
        "has(message.body.customer.address.city)",
        "!has(message.body.customer.address.country)",
        "!has(message.body.absent.address.city) && !has(message.body.id.city) && !has(message.body.tags.city)",
        "has(message.body.customer) && has(message.body.customer.name)",
        "has(message.body.note) && has(message.body.empty)",
        "!(has(message.body.id) && has(message.body.id.city))",
        "'city' in message.body.customer.address && 'odd name' in message.body && !('x' in message.body)",
        "message.body.customer['address'].city == 'Bern'",
        "message.body['odd name'][\"'\"] == 1",
        "message.body.id == 'x' || message.body.customer.name == 'Zürich AG'",
        "message.body.absent == 1 || message.body.count == 3",
        "'eu' in message.body.tags && 7 in message.body.tags && size(message.body.tags) == 3",
        "message.body.tags in ['eu'] || 'eu' in message.body.tags",
        "message.body.total > 10 && message.properties.region == 'eu'",
        "message.body.customer == message.body.customer",
    ],
)
def test_a_filter_reads_members_of_the_body(source: str) -> None:
    check_filter(source)
    message = json_message(ORDER, properties=b'{"region":"eu"}')
    assert matches(source, message)
    assert not matches(f"!({source})", message), "and it is no accident"


@pytest.mark.parametrize(
    "source",
    [
        "message.body.absent == 1",
        "message.body.absent != 1",
        "message.body.customer.absent.more == 1",
        "message.body.id.more == 1",
        "message.body.id > 3",
        "message.body.tags.startsWith('n')",
        "'eu' in message.body.id",
        "message.body.total.contains('9')",
        "message.body.note > 1",
    ],
)
def test_a_missing_member_or_a_clash_of_types_does_not_match(source: str) -> None:
    message = json_message(ORDER)
    assert not matches(source, message)
    assert matches(f"{source} || message.body.count == 3", message)


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("message.body == 'x'", "A filter reads members of a body that is a JSON object"),
        ("has(message.body)", "A filter reads members of a body that is a JSON object"),
        ("size(message.body) > 1", "A filter reads members of a body that is a JSON object"),
        ("message.body.startsWith('x')", "A filter reads members of a body that is a JSON object"),
        ("message.body.tags[0] == 1", "[ is allowed only after in"),
        ("message.body[message.subject] == 1", "[ is allowed only after in"),
        ("message.body['\\x41'] == 1", "without escapes"),
        ("message.body[b'a'] == 1", "without escapes"),
        ("(message.body).a == 1", "only message has fields"),
        ("message.body.tags.exists(t, t == 'eu')", "A filter cannot call exists"),
        ("message.body" + ".a" * 129 + " == 1", "at most 128 operators, brackets, commas and names of members"),
    ],
)
def test_other_uses_of_the_body_are_refused(source: str, sentence: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check_filter(source)
    assert sentence in caught.value.detail


def test_a_path_has_as_many_names_as_a_filter_has_symbols() -> None:
    source = "message.body" + ".a" * 127 + " == 1"
    check_filter(source)
    body: Any = 1
    for _ in range(127):
        body = {"a": body}
    assert matches(source, json_message(body))


# ---- which bodies ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", [b"", b"text", b"[1]", b"5", b'"a"', b'{"a": 5', b'{"a": 5, "b": 1e999}', b"\xff\x00"])
def test_a_body_that_is_no_json_object_does_not_match(body: bytes) -> None:
    for source in ("message.body.a == 5", "message.body.a != 5", "!has(message.body.a)", "!('a' in message.body)"):
        assert not matches(source, text_message(body)), source
        assert matches(f"{source} || message.priority >= 0", text_message(body))


def test_text_and_bytes_that_are_a_json_object_are_read_like_json() -> None:
    assert matches("message.body.a == 5", text_message(b' {"a": 5}'))


def test_a_body_that_is_too_large_does_not_match() -> None:
    text = b'{"a": 5, "b": "' + b"x" * (MAX_READ_BODY_BYTES - 17) + b'"}'
    assert matches("message.body.a == 5", text_message(text))
    assert not matches("message.body.a == 5", text_message(text + b" "))


def test_an_array_that_is_too_long_does_not_match_where_it_is_read() -> None:
    source = "7 in message.body.n"
    assert matches(source, json_message({"n": list(range(MAX_READ_VALUES))}))
    long = json_message({"n": list(range(MAX_READ_VALUES + 1)), "a": 1})
    assert not matches(source, long)
    assert not matches(f"!({source})", long)
    assert matches("message.body.a == 1 && has(message.body.n)", long)


# ---- publishes -------------------------------------------------------------------------------------------------------


async def subscribed(broker: OpenBroker, **filters: str | None) -> None:
    """Make the topic `events` with these subscriptions, each with a queue of its name."""
    topic, _ = await topics.put(topics.all_topics(broker.topics), "events", TopicSettings())
    for name, source in filters.items():
        await broker.store.queues.create(name, QueueSettings())
        settings = SubscriptionSettings(name, source)
        await topics.put(topics.subscriptions_of(broker.topics, topic), name, settings)


async def matched(broker: OpenBroker, *messages: NewMessage) -> list[int]:
    """Publish messages; return how many subscriptions each matched."""
    return [one.matched for one in (await publish(broker.topics, "events", messages)).result]


async def test_a_publish_is_copied_to_the_subscriptions_whose_filters_match_its_body(broker: OpenBroker) -> None:
    await subscribed(broker, large="message.body.total > 100", small="message.body.total <= 100", audit=None)
    messages = [json_message({"total": 500}), text_message(b'{"total": 5}'), text_message(b"none")]
    assert await matched(broker, *messages) == [2, 2, 1]
    queues = {queue.name: queue for queue in await broker.store.queues.page("", 10)}
    totals = {name: await broker.store.queues.total(queue.id) for name, queue in queues.items()}
    assert totals == {"large": 1, "small": 1, "audit": 3}


async def held_bytes(broker: OpenBroker, *messages: NewMessage) -> int:
    """Return the bytes that a publish of these messages holds."""
    async with broker.topics.budget.reserve_more() as held:
        await route(broker.topics, [("events", message) for message in messages], held)
        return broker.topics.budget.held


async def test_the_memory_of_the_largest_body_is_held_while_filters_read_it(broker: OpenBroker) -> None:
    large, larger = [text_message(b'{"a": [' + b"1," * count + b"1]}") for count in (5000, 6000)]
    assert decoded_weight(large.body) > UNCOUNTED_BYTES
    await subscribed(broker, audit="message.priority > 9")
    assert await held_bytes(broker, large) == 0
    await subscribed(broker, billing="message.body.a == 1")
    assert await held_bytes(broker, large, larger, large) == decoded_weight(larger.body)
    assert await held_bytes(broker, text_message(b'{"a": 2}')) == 0
    assert broker.topics.budget.held == 0


async def test_bodies_are_decoded_once_and_only_where_a_filter_reads_them() -> None:
    decoded: list[bytes] = []

    class Recorded(bytes):
        """A body that notes when it is read."""

        def lstrip(self, chars: Any = None, /) -> bytes:
            decoded.append(self)
            return super().lstrip(chars)

    message = input_of(text_message(Recorded(b'{"a": 1}')))
    assert compiled("message.priority >= 0").matches(message)
    assert decoded == []
    assert compiled("message.body.a == 1").matches(message)
    assert not compiled("message.body.a == 2").matches(message)
    assert len(decoded) == 1


async def test_other_tasks_run_before_a_large_body_is_decoded(broker: OpenBroker) -> None:
    await subscribed(broker, audit="message.body.a == 1")
    large = [json_message({"a": 2, "b": "x" * 5000}) for _ in range(10)]
    small = [json_message({"a": 2}) for _ in range(10)]
    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    await held_bytes(broker, *large)
    other = asyncio.create_task(take_turns())
    await held_bytes(broker, *small)
    of_small = turns
    await held_bytes(broker, *large)
    other.cancel()
    assert turns - of_small >= of_small + 10
