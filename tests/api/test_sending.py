"""Sending: an accepted message is stored once and delivered unchanged."""

import base64
import json
from typing import Any

import pytest

from app.api.openapi.document import openapi_document
from app.domain.message import MAX_BATCH_COUNT
from app.domain.queue import QueueSettings
from app.http.list_limits import UNCHECKED_COMMAS
from tests.api.api_server import ApiServer, open_api_server, pointers, problem

EVERYTHING = {
    "body": {"order": 17, "lines": [1, 2.5, None, "ü"]},
    "content_type": "application/vnd.shop.order+json",
    "message_id": "order-17",
    "correlation_id": "basket-4",
    "subject": "order.placed",
    "reply_to": "answers",
    "to": "eu",
    "group_id": "customer-9",
    "priority": 7,
    "properties": {"region": "eu", "weight": 2.5, "count": 3, "express": True, "coupon": None},
}


@pytest.mark.behaviour("S3.1", "S3.4", "S2.1")
async def test_a_send_is_answered_when_the_message_is_stored(api: ApiServer) -> None:
    answer = await api.request("POST", "/queues/orders/messages", {"body": 1})
    assert answer.status_code == 201
    assert answer.json() == {
        "sequence_number": 1,
        "message_id": "made-1",
        "enqueued_at": "2027-01-15T08:00:00.000000Z",
        "state": "available",
        "duplicate": False,
    }
    assert await api.counts() == {"available": 1}


@pytest.mark.behaviour("S3.30")
async def test_a_message_is_delivered_as_it_was_sent(api: ApiServer) -> None:
    await api.send(**EVERYTHING)
    (first,) = await api.receive()
    assert first.items() >= EVERYTHING.items()
    await api.settle(first, "abandon")
    (second,) = await api.receive()
    assert second.items() >= EVERYTHING.items()


@pytest.mark.parametrize("body", ["text", 1, 1.5, True, None, [], {}, {"deep": [{"deeper": [None]}]}, "\u0000 é 😀"])
async def test_any_json_value_is_a_body(api: ApiServer, body: Any) -> None:
    await api.send(body=body)
    (message,) = await api.receive()
    assert message["body"] == body
    assert "body_base64" not in message


async def test_a_json_body_keeps_every_byte(api: ApiServer) -> None:
    body = b'{"z": 1.10,  "a": 1e2, "big": 123456789012345678901234567890, "z": "twice"}'
    await api.http.post("/v1/queues/orders/messages", content=b'{"body": ' + body + b"}")
    assert (await api.request("GET", "/queues/orders/messages/1/body")).content == body
    answer = await api.request("POST", "/queues/orders/messages/receive")
    assert body in answer.content


async def test_bytes_travel_as_base64(api: ApiServer) -> None:
    content = bytes(range(256))
    await api.send(body_base64=base64.b64encode(content).decode(), content_type="image/png")
    (message,) = await api.receive()
    assert base64.b64decode(message["body_base64"]) == content
    assert "body" not in message


@pytest.mark.parametrize("content", ["", "null", " null\n"])
async def test_an_empty_send_is_refused(api: ApiServer, content: str) -> None:
    refused = problem(await api.request("POST", "/queues/orders/messages", content=content), 422, "invalid-request")
    assert refused["errors"] == [
        {"pointer": "#/body", "detail": "The body is empty. Send a JSON object; {} has every default."}
    ]
    assert (await api.request_json("GET", "/queues"))["items"] == []


async def test_a_message_without_a_body_has_none_and_null_is_a_body(api: ApiServer) -> None:
    await api.send()
    await api.send(body=None)
    first, second = await api.receive(max_messages=2)
    assert not {"body", "body_base64"} & {*first}
    assert second["body"] is None


@pytest.mark.parametrize(
    ("message", "pointer"),
    [
        ({"body": 1, "body_base64": "AA=="}, "/body_base64"),
        ({"body_base64": "no base64!"}, "/body_base64"),
        ({"delay_seconds": 1, "available_at": "2030-01-01T00:00:00Z"}, "/delay_seconds"),
        ({"available_at": "9999-12-31T23:59:59Z"}, "/available_at"),
        ({"available_at": "2030-01-01T00:00:00"}, "/available_at"),
        ({"properties": {"good": 1, "bad": [1]}}, "/properties/bad"),
        ({"properties": {"a/b~c": {}}}, "/properties/a~1b~0c"),
        ({"properties": {"a.b[0]": []}}, "/properties/a.b[0]"),
        ({"properties": 5}, "/properties"),
        ({"properties": {f"p{n}": n for n in range(65)}}, "/properties"),
        ({"properties": {"long": "x" * 33_000}}, "/properties"),
        ({"properties": {"good": 1, "": 1}}, "/properties/"),
        ({"properties": {"nul\0": 1}}, "/properties/nul\0"),
        ({"properties": {"x" * 129: 1}}, f"/properties/{'x' * 129}"),
        ({"properties": {"good": 2**63 - 1, "int": 2**63}}, "/properties/int"),
        ({"properties": {"int": 10**30}}, "/properties/int"),
        ({"message_id": ""}, "/message_id"),
        ({"message_id": "x" * 129}, "/message_id"),
        ({"message_id": "nul\0"}, "/message_id"),
        ({"message_id": "line\n"}, "/message_id"),
        ({"content_type": "text/plain\r\nset-cookie: x"}, "/content_type"),
        ({"content_type": "テキスト"}, "/content_type"),
        ({"priority": 10}, "/priority"),
        ({"priority": "4"}, "/priority"),
        ({"priority": 4.5}, "/priority"),
        ({"priority": 10**30}, "/priority"),
        ({"ttl_seconds": 0}, "/ttl_seconds"),
        ({"delay_seconds": -1}, "/delay_seconds"),
        ({"durability": "forever"}, "/durability"),
        ({"a/b~c": 1}, "/a~1b~0c"),
    ],
)
async def test_an_invalid_message_is_refused_with_a_pointer(
    api: ApiServer, message: dict[str, Any], pointer: str
) -> None:
    answer = await api.request("POST", "/queues/orders/messages", message)
    assert pointers(answer) == [pointer]
    problem(await api.request("GET", "/queues/orders"), 404, "queue-not-found")


@pytest.mark.parametrize(
    ("content", "pointer"),
    [
        (b'{"properties": {"bad": 1e400}}', "/properties/bad"),
        (b'{"properties": {"bad": [], "bad": 1}}', "/properties"),
        (b'{"properties": {"bad": []}, "properties": 5}', "/properties"),
        (b'{"properties": {"bad": []}, nonsense', ""),
        (b'{"properties": {"bad": []}, "body": %b' % (b"[" * 5000), ""),
        (b'{"properties": {%b"bad": []}}' % b"".join(b'"%d":1,' % n for n in range(99)), "/properties"),
    ],
)
async def test_a_property_that_cannot_be_located_is_reported_at_its_map(
    api: ApiServer, content: bytes, pointer: str
) -> None:
    assert pointers(await api.http.post("/v1/queues/orders/messages", content=content)) == [pointer]


async def test_a_pattern_is_reported_as_the_document_has_it(api: ApiServer) -> None:
    answer = await api.request("POST", "/queues/orders/messages", {"message_id": "line\n"})
    pattern = openapi_document()["components"]["schemas"]["SendMessage"]["properties"]["message_id"]["pattern"]
    assert problem(answer, 422, "invalid-request")["detail"] == f"`message_id` must match the pattern '{pattern}'."


async def test_a_scheduled_message_is_delivered_when_it_is_due(api: ApiServer) -> None:
    assert (await api.send(body="later", delay_seconds=10))["state"] == "scheduled"
    assert (await api.send(body="then", available_at="2027-01-15T08:00:20Z"))["state"] == "scheduled"
    assert (await api.send(body="past", available_at="2020-01-01T00:00:00Z"))["state"] == "available"
    assert [message["body"] for message in await api.receive(max_messages=9)] == ["past"]
    await api.advance_time(10)
    assert [message["body"] for message in await api.receive(max_messages=9)] == ["later"]
    await api.advance_time(10)
    assert [message["body"] for message in await api.receive(max_messages=9)] == ["then"]


async def test_an_expired_message_goes_to_the_archive_or_the_dead_letters(api: ApiServer) -> None:
    await api.request_json("PUT", "/queues/kept", {"dead_letter_on_expiry": True, "default_ttl_seconds": 5})
    await api.send("kept")
    await api.send("orders", ttl_seconds=5)
    await api.advance_time(6)
    assert await api.counts("kept") == {"dead_lettered": 1}
    assert await api.counts("orders") == {}
    (dead,) = await api.receive("kept", source="dead_letter")
    assert dead["dead_letter_reason"] == "ttl_expired"


@pytest.mark.behaviour("S3.31")
async def test_duplicate_detection_stores_a_message_id_once(api: ApiServer) -> None:
    await api.request_json("PUT", "/queues/orders", {"duplicate_detection_window_seconds": 60})
    first = await api.send(body=1, message_id="same")
    second = await api.send(body=2, message_id="same")
    assert second == {**first, "duplicate": True}
    assert await api.counts() == {"available": 1}
    await api.advance_time(61)
    assert (await api.send(message_id="same"))["duplicate"] is False


@pytest.mark.behaviour("S3.9")
async def test_a_volatile_message_is_answered_before_it_is_stored(api: ApiServer) -> None:
    answer = await api.request("POST", "/queues/orders/messages", {"body": 1, "durability": "volatile"})
    assert (answer.status_code, answer.json()) == (202, {"message_id": "made-1", "durability": "volatile"})
    await api.broker.volatile_buffer.close()
    assert [message["message_id"] for message in await api.receive()] == ["made-1"]


async def test_a_batch_is_stored_whole_and_in_order(api: ApiServer) -> None:
    batch = {"messages": [{"body": n} for n in range(5)]}
    answer = await api.request("POST", "/queues/orders/messages/batch", batch)
    results = answer.json()["results"]
    assert answer.status_code == 201
    assert [result["sequence_number"] for result in results] == [1, 2, 3, 4, 5]
    assert {result["result"] for result in results} == {"sent"}
    assert [message["body"] for message in await api.receive(max_messages=10)] == [0, 1, 2, 3, 4]


async def test_a_batch_is_refused_whole(api: ApiServer) -> None:
    await api.request_json("PUT", "/queues/orders", {"max_message_bytes": 10})
    batch = {"messages": [{"body": 1}, {"body": "far too long"}]}
    problem(await api.request("POST", "/queues/orders/messages/batch", batch), 413, "message-too-large")
    assert await api.counts() == {}


async def test_each_message_of_a_non_atomic_batch_is_independent(api: ApiServer) -> None:
    await api.request_json("PUT", "/queues/orders", {"max_message_bytes": 10})
    batch = {"messages": [{"body": 1}, {"body": "far too long"}, {"body": 2}], "atomic": False}
    results = (await api.request_json("POST", "/queues/orders/messages/batch", batch))["results"]
    assert [result["result"] for result in results] == ["sent", "refused", "sent"]
    assert results[1]["problem"]["code"] == "message-too-large"
    assert await api.counts() == {"available": 2}


async def test_a_non_atomic_batch_fills_the_queue_up_to_its_limit(api: ApiServer) -> None:
    await api.request_json("PUT", "/queues/orders", {"max_messages": 2, "max_message_bytes": 10})
    bodies = [1, "far too long", 2, 3]
    batch = {"messages": [{"body": body} for body in bodies], "atomic": False}
    results = (await api.request_json("POST", "/queues/orders/messages/batch", batch))["results"]
    assert [result.get("problem", {}).get("code") for result in results] == [
        None, "message-too-large", None, "queue-full",
    ]  # fmt: skip
    assert [message["body"] for message in await api.receive(max_messages=9)] == [1, 2]


BATCH = "/queues/orders/messages/batch"
MALFORMED: list[tuple[Any, str]] = [
    ({"priority": 99}, "/priority"),
    ({"body": 1, "body_base64": ""}, "/body_base64"),
    ({"body_base64": "?"}, "/body_base64"),
    ({"available_at": "9999-01-01T00:00:00Z"}, "/available_at"),
    ({"properties": {"good": 1, "bad": [1]}}, "/properties/bad"),
    ({"properties": {f"p{n}": n for n in range(65)}}, "/properties"),
    ({"message_id": ""}, "/message_id"),
    ({"nonsense": 1}, "/nonsense"),
    (1, ""),
    (None, ""),
]


@pytest.mark.parametrize(("bad", "pointer"), [*MALFORMED, ({"durability": "volatile"}, "/durability")])
async def test_an_atomic_batch_with_a_malformed_entry_stores_nothing(api: ApiServer, bad: Any, pointer: str) -> None:
    batch = {"messages": [{"body": 1}, bad]}
    assert pointers(await api.request("POST", BATCH, batch)) == [f"/messages/1{pointer}"]
    assert (await api.request_json("GET", "/queues"))["items"] == []


@pytest.mark.parametrize(("bad", "pointer"), MALFORMED)
async def test_a_malformed_entry_of_a_batch_gets_the_problem_of_a_single_send(
    api: ApiServer, bad: Any, pointer: str
) -> None:
    batch = {"messages": [{"body": 1}, bad, {"body": 2}], "atomic": False}
    results = (await api.request_json("POST", BATCH, batch))["results"]
    assert [result["result"] for result in results] == ["sent", "refused", "sent"]
    single = await api.request("POST", "/queues/orders/messages", content=json.dumps(bad))
    alone = problem(single, 422, "invalid-request")
    assert [fault["pointer"] for fault in alone["errors"]] == [f"#/body{pointer}"]
    refused = results[1]["problem"]
    assert [fault["pointer"] for fault in refused["errors"]] == [f"#/body/messages/1{pointer}"]
    if bad is not None:
        assert (refused["status"], refused["code"]) == (alone["status"], alone["code"])
        assert refused["detail"].replace("The entry", "The body").split(" Its")[0] == alone["detail"].split(" Its")[0]
    assert [message["body"] for message in await api.receive(max_messages=9)] == [1, 2]


async def test_a_message_of_a_batch_is_never_volatile(api: ApiServer) -> None:
    batch = {"messages": [{"durability": "volatile"}, {"body": 2}], "atomic": False}
    refused, stored = (await api.request_json("POST", BATCH, batch))["results"]
    assert [fault["pointer"] for fault in refused["problem"]["errors"]] == ["#/body/messages/0/durability"]
    assert stored["result"] == "sent"


async def test_a_batch_of_malformed_entries_creates_no_queue(api: ApiServer) -> None:
    results = (await api.request_json("POST", BATCH, {"messages": [{"priority": 99}] * 3, "atomic": False}))["results"]
    assert [result["problem"]["code"] for result in results] == ["invalid-request"] * 3
    assert (await api.request_json("GET", "/queues"))["items"] == []


async def test_problems_of_a_batch_do_not_repeat_long_parts_of_the_request(api: ApiServer) -> None:
    long = "x" * 3000
    for bad in ({long: 1}, {"durability": long}, {"properties": {long: [1]}}, {"properties": {long + "/" + long: [1]}}):
        batch = {"messages": [bad] * 100, "atomic": False}
        answer = await api.request("POST", BATCH, batch)
        assert len(answer.content) < 100 * 2500
        assert {result["problem"]["status"] for result in answer.json()["results"]} == {422}


async def test_a_batch_has_one_to_a_thousand_messages(api: ApiServer) -> None:
    for messages in ([], [{}] * 1001):
        answer = await api.request("POST", "/queues/orders/messages/batch", {"messages": messages})
        assert pointers(answer) == ["/messages"]


async def test_a_full_or_closed_queue_refuses_sends(api: ApiServer) -> None:
    await api.request_json("PUT", "/queues/small", {"max_messages": 1})
    await api.send("small")
    full = problem(await api.request("POST", "/queues/small/messages", {}), 507, "queue-full")
    assert full["retryable"] is True
    for status in ("send_disabled", "disabled"):
        await api.request_json("PUT", "/queues/closed", {"status": status})
        problem(await api.request("POST", "/queues/closed/messages", {}), 403, "send-disabled")
        for atomic in (True, False):
            batch = {"messages": [{"body": 1}], "atomic": atomic}
            problem(await api.request("POST", "/queues/closed/messages/batch", batch), 403, "send-disabled")


KEY = {"Idempotency-Key": "5f2b"}


class TestIdempotencyKey:
    """Requests with the same key and payload are one send."""

    @pytest.mark.parametrize(
        ("path", "body"), [("messages", {"body": 1}), ("messages/batch", {"messages": [{"body": 1}, {"body": 2}]})]
    )
    async def test_a_repeat_gets_the_first_answer(self, api: ApiServer, path: str, body: Any) -> None:
        first = await api.request("POST", f"/queues/orders/{path}", body, headers=KEY)
        before = await api.counts()
        again = await api.request("POST", f"/queues/orders/{path}", body, headers=KEY)
        assert again.json() == first.json()
        assert again.status_code == 201
        assert again.headers["idempotency-replayed"] == "true"
        assert "idempotency-replayed" not in first.headers
        assert await api.counts() == before

    @pytest.mark.parametrize(
        ("path", "body"), [("messages", {"body": 1}), ("messages/batch", {"messages": [{"body": 1}, {"body": 2}]})]
    )
    @pytest.mark.parametrize(
        "settings", [{"max_messages": 1}, {"status": "send_disabled"}, {"max_message_bytes": 1024}], ids=str
    )
    async def test_a_repeat_gets_it_after_later_changes(
        self, api: ApiServer, path: str, body: Any, settings: Any
    ) -> None:
        body = body | {"properties": {"long": "x" * 2000}} if path == "messages" else body
        first = await api.request("POST", f"/queues/orders/{path}", body, headers=KEY)
        await api.request_json("PUT", "/queues/orders", settings)
        again = await api.request("POST", f"/queues/orders/{path}", body, headers=KEY)
        assert (again.status_code, again.json()) == (201, first.json())
        assert again.headers["idempotency-replayed"] == "true"

    async def test_a_repeat_gets_it_after_the_queue_was_deleted(self) -> None:
        async with open_api_server(auto_create=False) as api:
            await api.broker.store.queues.create("orders", QueueSettings())
            first = await api.request("POST", "/queues/orders/messages", {"body": 1}, headers=KEY)
            await api.request_json("DELETE", "/queues/orders")
            again = await api.request("POST", "/queues/orders/messages", {"body": 1}, headers=KEY)
            assert again.json() == first.json()

    async def test_a_refusal_is_not_remembered(self, api: ApiServer) -> None:
        await api.request_json("PUT", "/queues/orders", {"status": "send_disabled"})
        refused = await api.request("POST", "/queues/orders/messages", {"body": 1}, headers=KEY)
        problem(refused, 403, "send-disabled")
        await api.request_json("PUT", "/queues/orders", {})
        answer = await api.request("POST", "/queues/orders/messages", {"body": 1}, headers=KEY)
        assert (answer.status_code, answer.json()["sequence_number"]) == (201, 1)
        assert "idempotency-replayed" not in answer.headers

    async def test_another_payload_with_the_same_key_is_refused(self, api: ApiServer) -> None:
        await api.request("POST", "/queues/orders/messages", {"body": 1}, headers=KEY)
        answer = await api.request("POST", "/queues/orders/messages", {"body": 2}, headers=KEY)
        problem(answer, 422, "idempotency-key-reused")
        assert await api.counts() == {"available": 1}

    async def test_a_key_counts_for_one_queue(self, api: ApiServer) -> None:
        for queue in ("orders", "invoices"):
            answer = await api.request("POST", f"/queues/{queue}/messages", {"body": 1}, headers=KEY)
            assert "idempotency-replayed" not in answer.headers

    async def test_a_raw_send_with_other_headers_is_another_request(self, api: ApiServer) -> None:
        path = "/queues/orders/messages/raw"
        await api.request("POST", path, content=b"x", headers={**KEY, "Peeklock-Subject": "a"})
        answer = await api.request("POST", path, content=b"x", headers={**KEY, "Peeklock-Subject": "b"})
        problem(answer, 422, "idempotency-key-reused")

    @pytest.mark.parametrize("key", ["", "x" * 256])
    async def test_a_key_has_1_to_255_characters(self, api: ApiServer, key: str) -> None:
        answer = await api.request("POST", "/queues/orders/messages", {}, headers={"Idempotency-Key": key})
        assert pointers(answer) == ["#/header/Idempotency-Key"]

    @pytest.mark.parametrize("second", ["5f2b", "another"])
    async def test_a_repeated_key_is_refused(self, api: ApiServer, second: str) -> None:
        twice = [("Idempotency-Key", "5f2b"), ("Idempotency-Key", second)]
        answer = await api.request("POST", "/queues/orders/messages", {}, headers=twice)
        assert pointers(answer) == ["#/header/Idempotency-Key"]
        assert (await api.request_json("GET", "/queues"))["items"] == []

    async def test_a_key_is_refused_where_no_result_is_stored(self, api: ApiServer) -> None:
        volatile = await api.request("POST", "/queues/q/messages", {"durability": "volatile"}, headers=KEY)
        loose = {"messages": [{}], "atomic": False}
        batch = await api.request("POST", "/queues/q/messages/batch", loose, headers=KEY)
        assert pointers(volatile) == pointers(batch) == ["#/header/Idempotency-Key"]
        assert volatile.json()["detail"] == "An Idempotency-Key is only accepted with a durable message."
        assert batch.json()["detail"] == "An Idempotency-Key is only accepted with an atomic batch."


async def test_the_trace_context_is_kept_with_the_message(api: ApiServer) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    await api.request("POST", "/queues/orders/messages", {}, headers={"traceparent": trace})
    await api.request("POST", "/queues/orders/messages", {}, headers={"traceparent": "garbled"})
    first, second = await api.receive(max_messages=2)
    assert first["traceparent"] == trace
    assert "traceparent" not in second


OWN_TRACE, OTHER_TRACE = (f"00-{digit * 32}-{digit * 16}-01" for digit in "ab")


async def test_a_message_of_a_request_may_have_its_own_trace(api: ApiServer) -> None:
    messages = [{"body": 1, "traceparent": OWN_TRACE}, {"body": 2}, {"body": 3, "traceparent": None}]
    await api.request(
        "POST", "/queues/orders/messages/batch", {"messages": messages}, headers={"traceparent": OTHER_TRACE}
    )
    await api.request("POST", "/queues/orders/messages", messages[0])
    received = await api.receive(max_messages=4)
    assert [one["traceparent"] for one in received] == [OWN_TRACE, OTHER_TRACE, OTHER_TRACE, OWN_TRACE]


@pytest.mark.parametrize("traceparent", ["", "garbled", OWN_TRACE.upper(), f"{OWN_TRACE}\n", 7])
async def test_a_message_with_a_malformed_trace_of_its_own_is_refused(api: ApiServer, traceparent: Any) -> None:
    answer = await api.request("POST", "/queues/orders/messages", {"body": 1, "traceparent": traceparent})
    assert problem(answer, 422, "invalid-request")["errors"][0]["pointer"] == "#/body/traceparent"


async def test_an_unknown_queue_is_not_created_without_auto_create() -> None:
    async with open_api_server(auto_create=False) as api:
        problem(await api.request("POST", "/queues/nowhere/messages", {}), 404, "queue-not-found")
        assert (await api.request_json("GET", "/queues"))["items"] == []


async def test_the_largest_batch_is_stored_also_of_long_messages(api: ApiServer) -> None:
    """A list is counted ahead where a body has many commas."""
    batch = [{"body": [0] * (2 * UNCHECKED_COMMAS // MAX_BATCH_COUNT)}] * MAX_BATCH_COUNT
    stored = await api.request_json("POST", "/queues/orders/messages/batch", {"messages": batch})
    assert len(stored["results"]) == MAX_BATCH_COUNT
    problem(
        await api.request("POST", "/queues/orders/messages/batch", {"messages": [*batch, {}]}), 422, "invalid-request"
    )
