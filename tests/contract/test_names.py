"""Names and ids with hostile characters: every store responds alike, keeps what it accepts, and never fails."""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from app.broker.access.keys import Authenticator
from app.domain.access import Right
from app.domain.queue import QueueSettings
from tests.api.api_server import ApiServer, pointers, problem
from tests.brokers import build_broker
from tests.contract.store_fixture import StoreFixture
from tests.virtual_clock import VirtualClock

TEXTS = {
    "NUL": "orders\0",
    "a blank at the end": "orders ",
    "four bytes": "orders\N{PILE OF POO}",
    "half a surrogate pair": "orders\ud800",
}
"""Each begins with the name of a queue that exists."""
SEND, RECEIVE = "/queues/orders/messages", "/queues/orders/messages/receive"

BODIES: dict[str, tuple[str, dict[str, Any]]] = {
    "to_queue": ("/queues/orders/dead-letter/redrive", {"to_queue": None}),
    "pattern of a key": ("/keys", {"principal": "shop", "rights": ["send"], "patterns": [None]}),
    "principal": ("/keys", {"principal": None, "rights": ["send"]}),
    "receiver_id": (RECEIVE, {"receiver_id": None}),
    "message_id": (SEND, {"message_id": None}),
    "group_id": (SEND, {"group_id": None}),
    "correlation_id": (SEND, {"correlation_id": None}),
    "subject": (SEND, {"subject": None}),
    "name of a property": (SEND, {"properties": {None: 1}}),
    "value of a property": (SEND, {"properties": {"name": None}}),
    "description of a queue": ("/queues/orders", {"description": None}),
    "filter": ("/queues/orders/purge", {"filter": None}),
}
NAMES = {"to_queue", "pattern of a key", "filter"}
"""Fields that accept none of the hostile texts."""


@pytest.fixture
async def api(store_fixture: StoreFixture) -> AsyncIterator[ApiServer]:
    clock = VirtualClock()
    broker = build_broker(store_fixture.store, clock)
    await store_fixture.store.queues.create("orders", QueueSettings())
    api = ApiServer(broker, clock, None)
    # Without keys, a server lets a request create or revoke one only with this header.
    api.http.headers["Peeklock-Local-Admin"] = "true"
    async with api.http:
        yield api
    await broker.queue_cache.close()


def with_text(shape: Any, text: str) -> Any:
    """Replace None in the shape by the text."""
    match shape:
        case None:
            return text
        case dict():
            return {with_text(key, text): with_text(value, text) for key, value in shape.items()}
        case list():
            return [with_text(item, text) for item in shape]
        case _:
            return shape


def expected(entry: str, text: str) -> int:
    """Return the status, by rules that are the same for every store."""
    if text == "half a surrogate pair" or entry in NAMES:
        return 422
    if text == "NUL" and entry != "value of a property":
        return 422
    if text == "a blank at the end" and entry == "principal":
        return 422
    return 201 if entry == "principal" or BODIES[entry][0] == SEND else 200


async def send_json(api: ApiServer, method: str, path: str, body: Any) -> httpx.Response:
    """Send a request whose JSON escapes what UTF-8 cannot encode."""
    headers = {"content-type": "application/json"}
    return await api.request(method, path, content=json.dumps(body).encode(), headers=headers)


async def stored_text(api: ApiServer, entry: str) -> Any:
    """Return the text as the server stored it."""
    if entry == "principal":
        return (await api.request_json("GET", "/keys"))["items"][0]["principal"]
    if entry == "description of a queue":
        return (await api.request_json("GET", "/queues/orders"))["description"]
    queue = await api.broker.store.queues.by_name("orders")
    assert queue is not None
    *_, message = (await api.request_json("GET", SEND + ("?state=locked" if entry == "receiver_id" else "")))["items"]
    if entry == "receiver_id":
        stored = await api.broker.store.read(queue.id, message["sequence_number"])
        return stored and stored.receiver_id
    match entry:
        case "name of a property":
            return next(iter(message["properties"]))
        case "value of a property":
            return message["properties"]["name"]
        case _:
            return message[entry]


@pytest.mark.parametrize("entry", BODIES)
async def test_a_text_in_a_body_is_kept_exactly_or_refused(api: ApiServer, entry: str) -> None:
    path, shape = BODIES[entry]
    for name, text in TEXTS.items():
        if entry == "receiver_id":
            await api.send()
        answer = await send_json(api, "PUT" if path == "/queues/orders" else "POST", path, with_text(shape, text))
        assert answer.status_code == expected(entry, name), (name, answer.text)
        if answer.is_success:
            assert await stored_text(api, entry) == text


@pytest.mark.parametrize("name", sorted(TEXTS.keys() - {"half a surrogate pair"}))
async def test_a_text_that_is_no_lock_token_is_refused_alone(api: ApiServer, name: str) -> None:
    body = {"settlements": [{"action": "complete", "lock_token": TEXTS[name]}]}
    answer = await send_json(api, "POST", "/queues/orders/settle", body)
    assert answer.status_code == 200
    (result,) = answer.json()["results"]
    assert (result["result"], result["problem"]["code"]) == ("refused", "message-not-found")


@pytest.mark.parametrize("encoded_name", ["orders%00", "orders%20", "orders%F0%9F%92%A9", "orders%ED%A0%80"])
async def test_a_queue_in_a_path_has_a_valid_name(api: ApiServer, encoded_name: str) -> None:
    for method, path in (("GET", ""), ("PUT", ""), ("DELETE", ""), ("POST", "/messages"), ("POST", "/purge")):
        assert pointers(await api.request(method, f"/queues/{encoded_name}{path}")) == ["#/path/queue"]
    for method, path in (
        ("GET", f"/queues/orders/messages/{encoded_name}"),
        ("DELETE", f"/queues/orders/messages/{encoded_name}"),
    ):
        assert pointers(await api.request(method, path)) == ["#/path/sequence_number"]
    problem(await api.request("POST", f"/queues/orders/locks/{encoded_name}/complete"), 404, "message-not-found")
    problem(await api.request("DELETE", f"/keys/{encoded_name}"), 404, "key-not-found")


async def test_a_query_that_is_not_utf_8_is_refused(api: ApiServer) -> None:
    for path in ("/keys", "/queues", "/queues/orders/messages", "/archive/batches"):
        assert pointers(await api.request("GET", f"{path}?cursor=%ED%A0%80")) == ["#/query"]


@pytest.mark.parametrize("cursor", ["%00", "orders%20", "1%20", "%F0%9F%92%A9", "9" * 200])
async def test_a_foreign_cursor_is_refused(api: ApiServer, cursor: str) -> None:
    for path in ("/keys", "/queues/orders/messages", "/archive/batches"):
        assert pointers(await api.request("GET", f"{path}?cursor={cursor}")) == ["#/query/cursor"]
    assert pointers(await api.request("GET", f"/queues/orders/messages?state={cursor}")) == ["#/query/state/0"]
    if cursor != "9" * 200:
        # No digits: many of them could be the name of a queue.
        assert pointers(await api.request("GET", f"/queues?cursor={cursor}")) == ["#/query/cursor"]


@pytest.mark.parametrize("header", [b"key ", b"key", b"\xf0\x9f\x92\xa9", b"\xed\xa0\x80", b"\xff"])
async def test_an_idempotency_key_is_compared_byte_by_byte(api: ApiServer, header: bytes) -> None:
    headers = [(b"Idempotency-Key", header)]
    first = await api.request("POST", SEND, {"body": 1}, headers=headers)
    again = await api.request("POST", SEND, {"body": 1}, headers=headers)
    assert (first.status_code, again.json()) == (201, first.json())
    other = await api.request("POST", SEND, {"body": 1}, headers=[(b"Idempotency-Key", header + b"x")])
    assert other.json()["sequence_number"] != first.json()["sequence_number"]


async def test_ids_that_differ_in_a_blank_are_not_duplicates(api: ApiServer) -> None:
    await api.request_json("PUT", "/queues/orders", {"duplicate_detection_window_seconds": 60})
    answers = [await api.send(message_id=message_id) for message_id in ("m", "m ", "m  ", "m")]
    assert [answer["duplicate"] for answer in answers] == [False, False, False, True]


async def test_no_other_name_finds_a_queue(api: ApiServer) -> None:
    queues = api.broker.store.queues
    assert await queues.by_name("orders") is not None
    for name in ("orders ", "orders\0", "Orders", "\0", "", "orders\ud800", "órders"):
        assert await queues.by_name(name) is None, name


async def test_a_redrive_cannot_reach_a_queue_through_another_name(store_fixture: StoreFixture) -> None:
    clock = VirtualClock()
    broker = build_broker(store_fixture.store, clock)
    authenticator = Authenticator(store_fixture.store.keys, clock, anonymous_without_keys=False)
    api = ApiServer(broker, clock, authenticator)
    async with api.http:
        for name in ("orders", "vault"):
            await store_fixture.store.queues.create(name, QueueSettings())
        secret = await api.new_key(Right.MANAGE, Right.SEND, Right.LISTEN, Right.BROWSE, patterns=("orders", "vault?"))
        caller = {"Authorization": f"Bearer {secret}"}
        await api.request_json("POST", SEND, {"body": 1}, headers=caller)
        ((message,),) = (await api.request_json("POST", RECEIVE, {}, headers=caller)).values()
        await api.request_json("POST", f"/queues/orders/locks/{message['lock_token']}/dead-letter", {}, headers=caller)
        path = "/queues/orders/dead-letter/redrive"
        assert pointers(await api.request("POST", path, {"to_queue": "vault "}, headers=caller)) == ["/to_queue"]
        problem(await api.request("POST", path, {"to_queue": "vault"}, headers=caller), 403, "forbidden")
        assert (await api.request_json("GET", "/queues/orders", headers=caller))["counts"]["dead_lettered"] == 1
    await authenticator.close()
    await broker.queue_cache.close()
