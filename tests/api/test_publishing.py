"""Messages that are published to topics over HTTP."""

import asyncio
from typing import Any

import pytest

from app.domain.topic import MAX_EVALUATED_BYTES, MAX_EVALUATIONS, MAX_PUBLISHED_BYTES
from app.store.sqlite.store import SqliteStore
from tests.api.api_server import ApiServer, pointers, problem
from tests.api.topic_requests import publish, received, subscribe
from tests.brokers import need_newer_server

KEY = {"Idempotency-Key": "k"}


@pytest.fixture(autouse=True)
async def topic(api: ApiServer) -> None:
    """The topic `orders` without subscriptions."""
    await api.request_json("PUT", "/topics/orders", {})


# ---- publish ---------------------------------------------------------------------------------------------------------


async def test_an_empty_publish_is_refused(api: ApiServer) -> None:
    await api.request_json("PUT", "/topics/orders", {})
    for content in ("", "null"):
        assert pointers(await api.request("POST", "/topics/orders/messages", content=content)) == [""]


async def test_a_message_is_copied_to_every_subscription_that_matches(api: ApiServer) -> None:
    await subscribe(api, "all")
    await subscribe(api, "eu", filter="message.properties.region == 'eu'")
    await subscribe(api, "urgent", filter="message.priority > 5")
    sent = await api.request("POST", "/topics/orders/messages", {"body": 1, "properties": {"region": "eu"}})
    assert sent.status_code == 201
    assert sent.json() == {"message_id": sent.json()["message_id"], "matched": 2, "duplicates": 0, "stored": True}
    (copy,) = await api.receive("orders.all")
    (other,) = await api.receive("orders.eu")
    assert copy["message_id"] == other["message_id"] == sent.json()["message_id"]
    assert await api.counts("orders.urgent") == {}


@pytest.mark.behaviour("S1.42")
async def test_a_queue_and_a_topic_say_what_becomes_of_undeliverable_messages(api: ApiServer) -> None:
    await api.request_json("PUT", "/queues/waiting")
    for path, answer in {"queues/waiting": "stored", "topics/orders": "discarded"}.items():
        described = [
            await api.request_json("PUT", f"/{path}", {}),
            await api.request_json("PATCH", f"/{path}", {"description": "Changed."}),
            await api.request_json("GET", f"/{path}"),
            *(await api.request_json("GET", f"/{path.partition('/')[0]}"))["items"],
        ]
        assert [entity["undeliverable"] for entity in described] == [answer] * len(described)
    await api.send("waiting")
    assert await api.counts("waiting") == {"available": 1}
    assert (await api.request("POST", "/topics/orders/messages", {"body": 1})).json()["stored"] is False


@pytest.mark.behaviour("S1.41")
async def test_a_message_without_a_match_is_accepted_and_not_stored(api: ApiServer) -> None:
    await subscribe(api, "none", filter="false")
    answer = await api.request("POST", "/topics/orders/messages", {"message_id": "m"})
    assert (answer.status_code, answer.json()) == (
        200,
        {"message_id": "m", "matched": 0, "duplicates": 0, "stored": False},
    )
    assert (await api.send("orders.none", message_id="m"))["state"] == "available"


@pytest.mark.behaviour("S1.39")
async def test_a_message_has_ended_when_all_its_receivers_have_completed_it(api: ApiServer) -> None:
    await subscribe(api, "a")
    await subscribe(api, "b")
    await publish(api)
    (first,), (second,) = await api.receive("orders.a"), await api.receive("orders.b")
    await api.settle(first, "complete", "orders.a")
    assert (await api.counts("orders.a"), await api.counts("orders.b")) == ({}, {"locked": 1})
    await api.settle(second, "complete", "orders.b")
    assert (await api.counts("orders.a"), await api.counts("orders.b")) == ({}, {})


@pytest.mark.behaviour("S1.44")
async def test_the_receivers_that_owe_a_settlement_are_known(api: ApiServer) -> None:
    receivers = {"orders.a": "clerk", "orders.b": "robot", "orders.c": "auditor"}
    for name in "abc":
        await subscribe(api, name)
    await publish(api)
    taken = {queue: (await api.receive(queue, receiver_id=receiver))[0] for queue, receiver in receivers.items()}

    async def owing() -> set[str]:
        pages = [await api.request_json("GET", f"/queues/{queue}/messages?state=locked") for queue in receivers]
        return {message["receiver_id"] for page in pages for message in page["items"]}

    assert await owing() == {"clerk", "robot", "auditor"}
    await api.settle(taken["orders.b"], "complete", "orders.b")
    await api.settle(taken["orders.c"], "abandon", "orders.c")
    assert await owing() == {"clerk"}


@pytest.mark.parametrize(
    "source",
    [
        "message.properties.a > 1",
        "message.properties.a + 1 > 1",
        "int(message.properties.a) > 1",
        "1 / 0 > message.priority",
    ],
)
async def test_a_type_that_a_filter_does_not_expect_does_not_match(api: ApiServer, source: str) -> None:
    await subscribe(api, "clash", filter=source)
    await subscribe(api, "all")
    assert (await publish(api, properties={"a": "text"}))["matched"] == 1
    assert (await publish(api))["matched"] == 1


async def test_a_subscription_changes_properties_of_its_copies_alone(api: ApiServer) -> None:
    await subscribe(api, "plain")
    await subscribe(api, "changed", set_properties={"from": "orders", "n": 2.5}, remove_properties=["secret", "from"])
    await publish(api, properties={"secret": "x", "kept": True, "from": "sender"})
    (plain,) = await api.receive("orders.plain")
    (changed,) = await api.receive("orders.changed")
    assert plain["properties"] == {"secret": "x", "kept": True, "from": "sender"}
    assert changed["properties"] == {"kept": True, "from": "orders", "n": 2.5}


async def test_a_copy_with_too_many_properties_refuses_the_publish(api: ApiServer) -> None:
    await subscribe(api, "a-plain")
    await subscribe(api, "more", set_properties={"one": 1})
    message = {"properties": {f"p{number}": number for number in range(64)}}
    refused = problem(await api.request("POST", "/topics/orders/messages", message), 422, "invalid-request")
    assert "subscription more" in refused["errors"][0]["detail"]
    assert await api.counts("orders.a-plain") == {}


@pytest.mark.parametrize(
    ("settings", "status", "code"),
    [
        ({"status": "send_disabled"}, 403, "send-disabled"),
        ({"max_messages": 1}, 507, "queue-full"),
        ({"max_message_bytes": 3}, 413, "message-too-large"),
    ],
)
async def test_one_queue_that_refuses_keeps_the_message_from_all(
    api: ApiServer, settings: dict[str, Any], status: int, code: str
) -> None:
    await subscribe(api, "free")
    await subscribe(api, "limited")
    await api.send("orders.limited", body=1)
    await api.request_json("PUT", "/queues/orders.limited", settings)
    refused = await api.request("POST", "/topics/orders/messages", {"body": "long"})
    assert "orders.limited" in problem(refused, status, code)["detail"]
    assert await api.counts("orders.free") == {}


async def test_each_queue_applies_its_own_settings(api: ApiServer) -> None:
    await subscribe(api, "short")
    await subscribe(api, "once")
    await subscribe(api, "fifo")
    await api.request_json("PUT", "/queues/orders.short", {"default_ttl_seconds": 60})
    await api.request_json("PUT", "/queues/orders.once", {"duplicate_detection_window_seconds": 60})
    await api.request_json("PUT", "/queues/orders.fifo", {"group_in_flight": 1})
    assert (await publish(api, message_id="m", group_id="g"))["duplicates"] == 0
    assert (await publish(api, message_id="m", group_id="g"))["duplicates"] == 1
    assert await api.counts("orders.once") == {"available": 1}
    assert await api.counts("orders.fifo") == {"available": 1, "blocked": 1}
    assert await api.counts("orders.short") == {"available": 2}
    await api.advance_time(61)
    assert await api.counts("orders.short") == {}
    refused = await api.request("POST", "/topics/orders/messages", {"group_id": "g "})
    assert problem(refused, 422, "invalid-request")["errors"][0]["pointer"] == "#/body/group_id"


async def test_a_scheduled_publish_is_due_in_every_queue(api: ApiServer) -> None:
    await subscribe(api, "a")
    await subscribe(api, "b")
    await publish(api, delay_seconds=10)
    assert await api.counts("orders.a") == await api.counts("orders.b") == {"scheduled": 1}
    await api.advance_time(11)
    assert await api.counts("orders.a") == await api.counts("orders.b") == {"available": 1}


@pytest.mark.behaviour("S1.79", "S1.80")
async def test_publishes_keep_their_order_in_every_queue(api: ApiServer) -> None:
    await subscribe(api, "a")
    await subscribe(api, "b")
    for number in range(5):
        await publish(api, body=number)
    batch = {"messages": [{"body": number} for number in range(5, 10)]}
    await api.request_json("POST", "/topics/orders/messages/batch", batch)
    assert await received(api, "orders.a") == await received(api, "orders.b") == list(range(10))


async def test_a_batch_answers_for_each_message(api: ApiServer) -> None:
    await subscribe(api, "eu", filter="message.subject == 'eu'")
    await subscribe(api, "all", filter="message.subject != 'none'")
    batch = {"messages": [{"subject": "eu"}, {"subject": "none"}, {"subject": "us"}]}
    answer = await api.request("POST", "/topics/orders/messages/batch", batch)
    assert answer.status_code == 201
    assert [(one["matched"], one["stored"]) for one in answer.json()["results"]] == [(2, True), (0, False), (1, True)]
    answer = await api.request("POST", "/topics/orders/messages/batch", {"messages": [{"subject": "none"}]})
    assert answer.status_code == 200


@pytest.mark.parametrize(
    ("messages", "pointer"),
    [
        ([{"message_id": "a"}, {"message_id": "a"}], "/messages/1/message_id"),
        ([{}, {"priority": 99}], "/messages/1/priority"),
        ([{"durability": "volatile"}], "/messages/0/durability"),
        ([], "/messages"),
    ],
)
async def test_a_bad_batch_is_refused_whole(api: ApiServer, messages: list[Any], pointer: str) -> None:
    await subscribe(api, "all")
    refused = await api.request("POST", "/topics/orders/messages/batch", {"messages": messages})
    assert problem(refused, 422, "invalid-request")["errors"][0]["pointer"] == f"#/body{pointer}"
    assert await api.counts("orders.all") == {}


async def test_a_volatile_publish_is_refused(api: ApiServer) -> None:
    refused = await api.request("POST", "/topics/orders/messages", {"durability": "volatile"})
    assert problem(refused, 422, "invalid-request")["errors"][0]["pointer"] == "#/body/durability"


async def test_a_raw_publish_keeps_its_bytes_and_headers(api: ApiServer) -> None:
    await subscribe(api, "all", filter="message.content_type == 'text/plain' && message.body_bytes == 5")
    headers = {"content-type": "text/plain", "peeklock-property-region": "eu", "peeklock-message-id": "m"}
    answer = await api.request("POST", "/topics/orders/messages/raw", content=b"\x00\x01\x02\x03\xff", headers=headers)
    assert answer.json()["matched"] == 1
    (copy,) = await api.receive("orders.all")
    assert (copy["message_id"], copy["properties"], copy["body_base64"]) == ("m", {"region": "eu"}, "AAECA/8=")


async def test_the_copies_of_a_publish_are_bounded_in_bytes(api: ApiServer) -> None:
    for number in range(5):
        await subscribe(api, f"s{number}")
        await api.request_json("PUT", f"/queues/orders.s{number}", {"max_message_bytes": MAX_PUBLISHED_BYTES})
    quarter = b"x" * (MAX_PUBLISHED_BYTES // 4)
    headers = {"content-type": "text/plain"}
    refused = await api.request("POST", "/topics/orders/messages/raw", content=quarter, headers=headers)
    problem(refused, 413, "message-too-large")
    accepted = await api.request(
        "POST", "/topics/orders/messages/raw", content=quarter[: len(quarter) // 2], headers=headers
    )
    assert accepted.json()["matched"] == 5


async def test_the_filters_that_a_publish_evaluates_are_bounded_in_number(api: ApiServer) -> None:
    for number in range(MAX_EVALUATIONS // 1000 + 1):
        await subscribe(api, f"s{number}", filter="false")
    batch = {"messages": [{}] * 1000}
    problem(await api.request("POST", "/topics/orders/messages/batch", batch), 413, "message-too-large")
    batch["messages"] = batch["messages"][:10]
    assert (await api.request("POST", "/topics/orders/messages/batch", batch)).status_code == 200


async def test_the_properties_that_filters_read_are_bounded_in_bytes(api: ApiServer) -> None:
    properties = {f"p{number}": "x" * 1000 for number in range(32)}
    count = MAX_EVALUATED_BYTES // (100 * 32 * 1000)
    for number in range(count + 1):
        await subscribe(api, f"s{number}", filter="false")
    batch = {"messages": [{"properties": properties}] * 100}
    problem(await api.request("POST", "/topics/orders/messages/batch", batch), 413, "message-too-large")
    unit = {"publishes": [{"topic": "orders", "properties": properties}] * 100}
    problem(await api.request("POST", "/transactions/execute", unit), 413, "message-too-large")
    batch["messages"] = batch["messages"][:50]
    assert (await api.request("POST", "/topics/orders/messages/batch", batch)).status_code == 200


async def test_a_publish_to_an_unknown_topic_is_refused(api: ApiServer) -> None:
    problem(await api.request("POST", "/topics/absent/messages", {}), 404, "topic-not-found")


# ---- repeats ---------------------------------------------------------------------------------------------------------


async def test_a_repeated_publish_answers_the_same_and_stores_nothing(api: ApiServer) -> None:
    await subscribe(api, "first")
    path, message = "/topics/orders/messages", {"body": 1}
    first = await api.request("POST", path, message, headers=KEY)
    await subscribe(api, "second")
    again = await api.request("POST", path, message, headers=KEY)
    assert (again.status_code, again.json()) == (201, first.json())
    assert again.headers["idempotency-replayed"] == "true"
    assert await api.counts("orders.first") == {"available": 1}
    assert await api.counts("orders.second") == {}
    problem(await api.request("POST", path, {"body": 2}, headers=KEY), 422, "idempotency-key-reused")


async def test_a_repeat_of_a_publish_without_a_match_matches_nothing(api: ApiServer) -> None:
    path, message = "/topics/orders/messages", {"body": 1}
    first = await api.request("POST", path, message, headers=KEY)
    await subscribe(api, "late")
    again = await api.request("POST", path, message, headers=KEY)
    assert (again.status_code, again.json()) == (200, first.json())
    assert await api.counts("orders.late") == {}


async def test_a_repeated_batch_answers_for_each_message_as_before(api: ApiServer) -> None:
    await subscribe(api, "eu", filter="message.subject == 'eu'")
    await subscribe(api, "all")
    path, batch = "/topics/orders/messages/batch", {"messages": [{"subject": "eu"}, {}, {"subject": "eu"}]}
    first = await api.request("POST", path, batch, headers=KEY)
    assert [one["matched"] for one in first.json()["results"]] == [2, 1, 2]
    await api.request("DELETE", "/topics/orders")
    again = await api.request("POST", path, batch, headers=KEY)
    assert (again.status_code, again.json()) == (201, first.json())
    assert await api.counts("orders.all") == {"available": 3}


# ---- changes meanwhile -----------------------------------------------------------------------------------------------


async def test_a_change_of_a_queue_takes_effect_on_the_next_publish(api: ApiServer) -> None:
    await subscribe(api, "s")
    await publish(api)
    await api.request_json("PATCH", "/queues/orders.s", {"status": "send_disabled"})
    problem(await api.request("POST", "/topics/orders/messages", {}), 403, "send-disabled")
    await api.request_json("PATCH", "/queues/orders.s", {"status": "active"})
    assert (await publish(api))["matched"] == 1


async def test_a_publish_reads_a_topic_again_if_a_queue_is_gone(api: ApiServer) -> None:
    await subscribe(api, "kept")
    await subscribe(api, "gone")
    await publish(api)
    # Another process deletes the subscription and its queue.
    topics, queues = api.broker.store.topics, api.broker.store.queues
    topic = await topics.find("orders")
    assert topic is not None
    subscription = await topics.subscriptions(topic).find("gone")
    queue = await queues.by_name("orders.gone")
    assert subscription is not None
    assert queue is not None
    assert await topics.subscriptions(topic).delete(subscription)
    assert await queues.delete(queue)
    assert (await publish(api))["matched"] == 1
    assert await api.counts("orders.kept") == {"available": 2}


async def test_a_target_that_an_older_server_deleted_refuses_publishes(api: ApiServer) -> None:
    await subscribe(api, "kept")
    await subscribe(api, "broken")
    assert isinstance(api.broker.store, SqliteStore)
    await api.broker.store.database.call_on_writer(
        lambda connection: connection.execute("DELETE FROM queue WHERE name = 'orders.broken'")
    )
    api.broker.queue_cache.clear()
    refused = await api.request("POST", "/topics/orders/messages", {})
    assert "Subscription broken sends to queue orders.broken" in problem(refused, 404, "queue-not-found")["detail"]
    assert await api.counts("orders.kept") == {}
    await subscribe(api, "broken")
    assert (await publish(api))["matched"] == 2


async def test_a_queue_that_needs_a_newer_server_refuses_publishes(api: ApiServer) -> None:
    await subscribe(api, "kept")
    await subscribe(api, "newer")
    await need_newer_server(api.broker, "orders.newer")
    problem(await api.request("POST", "/topics/orders/messages", {}), 503, "queue-needs-newer-server")
    assert await api.counts("orders.kept") == {}


async def test_publishes_while_subscriptions_change_are_all_or_none(api: ApiServer) -> None:
    await subscribe(api, "a")

    async def change() -> None:
        for number in range(10):
            await subscribe(api, f"s{number % 2}")
            await api.request("DELETE", f"/topics/orders/subscriptions/s{number % 2}")

    async def publish_some(first: int) -> int:
        return sum([(await publish(api, body=first + number))["matched"] for number in range(10)])

    matched, *_ = await asyncio.gather(publish_some(0), change())
    queues = ("orders.a", "orders.s0", "orders.s1")
    assert sum([len(await received(api, queue)) for queue in queues]) == matched


# ---- filters of bodies -----------------------------------------------------------------------------------------------


async def test_filters_read_bodies_in_json_and_in_text(api: ApiServer) -> None:
    await subscribe(api, "large", filter="message.body.order.total > 10")
    await subscribe(api, "eu", filter="message.body['region'] in ['eu', 'ch'] && !has(message.body.order.test)")
    await publish(api, body={"order": {"total": 11}, "region": "eu"})
    await publish(api, body={"order": {"total": 12, "test": True}, "region": "ch"})
    await publish(api, body={"order": {"total": 10}, "region": "us"})
    await publish(api, body="plain text")
    text = {"content": b'{"order": {"total": 13}}', "headers": {"content-type": "text/plain; charset=utf-8"}}
    assert (await api.request("POST", "/topics/orders/messages/raw", **text)).json()["matched"] == 1
    first = {"order": {"total": 11}, "region": "eu"}
    second = {"order": {"total": 12, "test": True}, "region": "ch"}
    assert await received(api, "orders.large") == [first, second, '{"order": {"total": 13}}']
    assert await received(api, "orders.eu") == [first]


async def test_the_bodies_that_filters_read_are_bounded_in_bytes(api: ApiServer) -> None:
    body = {"text": "x" * 40_000}
    count = MAX_EVALUATED_BYTES // (100 * 40_000)
    for number in range(count + 1):
        await subscribe(api, f"s{number}", filter="message.body.text == 'y'")
    batch = {"messages": [{"body": body}] * 100}
    refused = problem(await api.request("POST", "/topics/orders/messages/batch", batch), 413, "message-too-large")
    assert "bytes of properties and bodies" in refused["detail"]
    unit = {"publishes": [{"topic": "orders", "body": body}] * 100}
    problem(await api.request("POST", "/transactions/execute", unit), 413, "message-too-large")
    batch["messages"] = batch["messages"][:50]
    assert (await api.request("POST", "/topics/orders/messages/batch", batch)).status_code == 200
