"""A queue with a default wait: each receive without a wait of its own waits that long, and no other receive does."""

import asyncio
from typing import Any

import httpx
import pytest

from app.domain.instant import to_seconds
from app.domain.queue import MAX_DEFAULT_WAIT
from app.settings import Settings
from tests.api.api_server import MAX_WAIT, ApiServer
from tests.virtual_clock import run_ready_tasks

WAIT = 10
RECEIVE = "/queues/orders/messages/receive"
KINDS: list[tuple[str, dict[str, Any]]] = [
    (RECEIVE, {"json": {}}),
    (RECEIVE, {"json": {"wait_seconds": None}}),
    (RECEIVE, {"json": {"filter": "message.subject == 'x'"}}),
    (RECEIVE, {"json": {"mode": "receive_and_delete"}}),
    (RECEIVE, {"json": {"source": "dead_letter"}}),
    (RECEIVE, {"json": {}, "headers": {"Idempotency-Key": "k"}}),
    (f"{RECEIVE}/raw", {}),
    (f"{RECEIVE}/raw", {"params": {"filter": "message.subject == 'x'"}}),
]


@pytest.fixture(autouse=True)
async def orders(api: ApiServer) -> None:
    """The queue with a default wait."""
    await api.request_json("PUT", "/queues/orders", {"default_wait_seconds": WAIT})


async def receiving(api: ApiServer, path: str = RECEIVE, **request: Any) -> asyncio.Task[httpx.Response]:
    """Begin to receive from an empty queue."""
    task = asyncio.create_task(api.request("POST", path, **request))
    await run_ready_tasks()
    return task


@pytest.mark.parametrize(("path", "request_"), KINDS)
async def test_a_receive_without_a_wait_of_its_own_waits(api: ApiServer, path: str, request_: dict[str, Any]) -> None:
    waiting = await receiving(api, path, **request_)
    await api.clock.advance(WAIT - 0.1)
    assert not waiting.done()
    await api.clock.advance(0.2)
    answer = await waiting
    assert answer.status_code == (204 if path.endswith("raw") else 200)
    assert "preference-applied" not in answer.headers


@pytest.mark.parametrize(
    ("path", "request_"),
    [
        (RECEIVE, {"json": {"wait_seconds": 0}}),
        (RECEIVE, {"json": {"wait_seconds": -0.0}}),
        (RECEIVE, {"json": {}, "headers": {"Prefer": "wait=0"}}),
        (f"{RECEIVE}/raw", {"params": {"wait_seconds": 0}}),
        (RECEIVE, {"json": {"sequence_numbers": [1]}}),
    ],
)
async def test_an_explicit_wait_of_zero_wins(api: ApiServer, path: str, request_: dict[str, Any]) -> None:
    answered = await receiving(api, path, **request_)
    assert answered.done()
    assert (await answered).is_success


@pytest.mark.parametrize("own", [{"json": {"wait_seconds": 20}}, {"json": {}, "headers": {"Prefer": "wait=20"}}])
async def test_a_longer_wait_of_the_request_wins(api: ApiServer, own: dict[str, Any]) -> None:
    waiting = await receiving(api, **own)
    await api.clock.advance(19.9)
    assert not waiting.done()
    await api.clock.advance(0.2)
    assert (await waiting).is_success


async def test_a_message_ends_the_wait(api: ApiServer) -> None:
    waiting = await receiving(api, json={})
    await api.send(body="at last")
    assert (await waiting).json()["messages"][0]["body"] == "at last"


async def test_the_server_caps_the_default(api: ApiServer) -> None:
    await api.request_json("PATCH", "/queues/orders", {"default_wait_seconds": 3600})
    waiting = await receiving(api, json={})
    await api.clock.advance(MAX_WAIT - 0.1)
    assert not waiting.done()
    await api.clock.advance(0.2)
    assert (await waiting).is_success


def test_a_default_may_be_as_long_as_a_server_may_let_receives_wait() -> None:
    limits = Settings.model_fields["long_poll_cap_seconds"].metadata
    assert to_seconds(MAX_DEFAULT_WAIT) in [getattr(limit, "le", None) for limit in limits]
