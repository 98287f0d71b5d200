"""Names and ids with hostile characters: every store answers alike, keeps what it accepts, and never fails."""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from app.broker.keys import Doorkeeper
from app.domain.access import Right
from app.domain.queue import QueueSettings
from tests.api.house import House, pointers, problem
from tests.clock import VirtualClock
from tests.contract.subject import Subject
from tests.rooms import assemble

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
"""No hostile text is one of these."""


@pytest.fixture
async def house(subject: Subject) -> AsyncIterator[House]:
    clock = VirtualClock()
    broker = assemble(subject.store, clock)
    await subject.store.queues.create("orders", QueueSettings())
    house = House(broker, clock, None)
    # A server without keys lets a request make or revoke one only with this header.
    house.http.headers["Peeklock-Local-Admin"] = "true"
    async with house.http:
        yield house
    await broker.catalogue.close()


def filled(shape: Any, text: str) -> Any:
    """The shape with the text in the place of None."""
    match shape:
        case None:
            return text
        case dict():
            return {filled(key, text): filled(value, text) for key, value in shape.items()}
        case list():
            return [filled(item, text) for item in shape]
        case _:
            return shape


def expected(entry: str, text: str) -> int:
    """The status, by rules that are the same for every store."""
    if text == "half a surrogate pair" or entry in NAMES:
        return 422
    if text == "NUL" and entry != "value of a property":
        return 422
    if text == "a blank at the end" and entry == "principal":
        return 422
    return 201 if entry == "principal" or BODIES[entry][0] == SEND else 200


async def ask(house: House, method: str, path: str, body: Any) -> httpx.Response:
    """A request whose JSON escapes what UTF-8 cannot carry."""
    headers = {"content-type": "application/json"}
    return await house.call(method, path, content=json.dumps(body).encode(), headers=headers)


async def kept(house: House, entry: str) -> Any:
    """What the server gives back of what it was sent."""
    if entry == "principal":
        return (await house.ask("GET", "/keys"))["items"][0]["principal"]
    if entry == "description of a queue":
        return (await house.ask("GET", "/queues/orders"))["description"]
    queue = await house.broker.store.queues.find("orders")
    assert queue is not None
    *_, message = (await house.ask("GET", SEND + ("?state=locked" if entry == "receiver_id" else "")))["items"]
    if entry == "receiver_id":
        stored = await house.broker.store.read(queue.id, message["sequence_number"])
        return stored and stored.receiver_id
    match entry:
        case "name of a property":
            return next(iter(message["properties"]))
        case "value of a property":
            return message["properties"]["name"]
        case _:
            return message[entry]


@pytest.mark.parametrize("entry", BODIES)
async def test_a_text_in_a_body_is_kept_exactly_or_refused(house: House, entry: str) -> None:
    path, shape = BODIES[entry]
    for name, text in TEXTS.items():
        if entry == "receiver_id":
            await house.send()
        answer = await ask(house, "PUT" if path == "/queues/orders" else "POST", path, filled(shape, text))
        assert answer.status_code == expected(entry, name), (name, answer.text)
        if answer.is_success:
            assert await kept(house, entry) == text


@pytest.mark.parametrize("name", sorted(TEXTS.keys() - {"half a surrogate pair"}))
async def test_a_text_that_is_no_lock_token_is_refused_alone(house: House, name: str) -> None:
    body = {"settlements": [{"action": "complete", "lock_token": TEXTS[name]}]}
    answer = await ask(house, "POST", "/queues/orders/settle", body)
    assert answer.status_code == 200
    (result,) = answer.json()["results"]
    assert (result["result"], result["problem"]["code"]) == ("refused", "message-not-found")


@pytest.mark.parametrize("written", ["orders%00", "orders%20", "orders%F0%9F%92%A9", "orders%ED%A0%80"])
async def test_a_queue_in_a_path_has_a_valid_name(house: House, written: str) -> None:
    for method, path in (("GET", ""), ("PUT", ""), ("DELETE", ""), ("POST", "/messages"), ("POST", "/purge")):
        assert pointers(await house.call(method, f"/queues/{written}{path}")) == ["#/path/queue"]
    for method, path in (
        ("GET", f"/queues/orders/messages/{written}"),
        ("DELETE", f"/queues/orders/messages/{written}"),
    ):
        assert pointers(await house.call(method, path)) == ["#/path/sequence_number"]
    problem(await house.call("POST", f"/queues/orders/locks/{written}/complete"), 404, "message-not-found")
    problem(await house.call("DELETE", f"/keys/{written}"), 404, "key-not-found")


@pytest.mark.parametrize("cursor", ["%00", "orders%20", "1%20", "%F0%9F%92%A9", "%ED%A0%80", "9" * 200])
async def test_a_cursor_that_no_list_gave_is_refused(house: House, cursor: str) -> None:
    for path in ("/keys", "/queues/orders/messages", "/archive/batches"):
        assert pointers(await house.call("GET", f"{path}?cursor={cursor}")) == ["#/query/cursor"]
    assert pointers(await house.call("GET", f"/queues/orders/messages?state={cursor}")) == ["#/query/state/0"]
    if cursor != "9" * 200:
        # No digits: as many of them could be the name of a queue.
        assert pointers(await house.call("GET", f"/queues?cursor={cursor}")) == ["#/query/cursor"]


@pytest.mark.parametrize("header", [b"key ", b"key", b"\xf0\x9f\x92\xa9", b"\xed\xa0\x80", b"\xff"])
async def test_an_idempotency_key_is_compared_byte_by_byte(house: House, header: bytes) -> None:
    headers = [(b"Idempotency-Key", header)]
    first = await house.call("POST", SEND, {"body": 1}, headers=headers)
    again = await house.call("POST", SEND, {"body": 1}, headers=headers)
    assert (first.status_code, again.json()) == (201, first.json())
    other = await house.call("POST", SEND, {"body": 1}, headers=[(b"Idempotency-Key", header + b"x")])
    assert other.json()["sequence_number"] != first.json()["sequence_number"]


async def test_ids_that_differ_in_a_blank_are_not_duplicates(house: House) -> None:
    await house.ask("PUT", "/queues/orders", {"duplicate_detection_window_seconds": 60})
    answers = [await house.send(message_id=one) for one in ("m", "m ", "m  ", "m")]
    assert [answer["duplicate"] for answer in answers] == [False, False, False, True]


async def test_no_other_name_finds_a_queue(house: House) -> None:
    queues = house.broker.store.queues
    assert await queues.find("orders") is not None
    for name in ("orders ", "orders\0", "Orders", "\0", "", "orders\ud800", "órders"):
        assert await queues.find(name) is None, name


async def test_a_redrive_cannot_reach_a_queue_through_another_name(subject: Subject) -> None:
    clock = VirtualClock()
    broker = assemble(subject.store, clock)
    doorkeeper = Doorkeeper(subject.store.keys, clock, open_without_keys=False)
    house = House(broker, clock, doorkeeper)
    async with house.http:
        for name in ("orders", "vault"):
            await subject.store.queues.create(name, QueueSettings())
        secret = await house.key(Right.MANAGE, Right.SEND, Right.LISTEN, Right.BROWSE, patterns=("orders", "vault?"))
        caller = {"Authorization": f"Bearer {secret}"}
        await house.ask("POST", SEND, {"body": 1}, headers=caller)
        ((message,),) = (await house.ask("POST", RECEIVE, {}, headers=caller)).values()
        await house.ask("POST", f"/queues/orders/locks/{message['lock_token']}/dead-letter", {}, headers=caller)
        path = "/queues/orders/dead-letter/redrive"
        assert pointers(await house.call("POST", path, {"to_queue": "vault "}, headers=caller)) == ["/to_queue"]
        problem(await house.call("POST", path, {"to_queue": "vault"}, headers=caller), 403, "forbidden")
        assert (await house.ask("GET", "/queues/orders", headers=caller))["counts"]["dead_lettered"] == 1
    await doorkeeper.close()
    await broker.catalogue.close()
