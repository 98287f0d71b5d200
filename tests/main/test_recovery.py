"""Crashes, stops, and replicas on one store, with real servers."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.main.conftest import Serve
from tests.main.http_requests import send_request
from tests.peeklock_process import PeeklockProcess

QUEUE = "/v1/queues/orders"
SEND, RECEIVE = f"{QUEUE}/messages", f"{QUEUE}/messages/receive"
LONG_LOCK = {"lock_duration_seconds": 3600}


def request_json(service: PeeklockProcess, method: str, path: str, body: Any = None) -> Any:
    """Send a request that must succeed, and return its answer."""
    response = send_request(service, method, path, body)
    assert response.is_success, response.text
    return response.json()


def receive(service: PeeklockProcess, most: int = 1, **wanted: Any) -> list[Any]:
    return request_json(service, "POST", RECEIVE, {"max_messages": most, **wanted})["messages"]


def settle(service: PeeklockProcess, message: Any, verb: str, **fields: Any) -> httpx.Response:
    return send_request(service, "POST", f"{QUEUE}/locks/{message['lock_token']}/{verb}", fields)


def fill_every_state(service: PeeklockProcess) -> Any:
    """Leave a message in each state, and return the locked one."""
    request_json(service, "PUT", QUEUE, LONG_LOCK)
    for body in ("dead", "deferred", "locked"):
        request_json(service, "POST", SEND, {"body": body, "properties": {"of": body}})
    dead, deferred, locked = receive(service, 3)
    assert settle(service, dead, "dead-letter", reason="broken").status_code == 200
    assert settle(service, deferred, "defer").status_code == 200
    request_json(service, "POST", SEND, {"body": "later", "delay_seconds": 3600})
    request_json(
        service, "POST", SEND, {"body": {"a": [1, 2.0, None]}, "message_id": "m", "subject": "s", "priority": 9}
    )
    request_json(service, "POST", SEND, {"body_base64": "AP8=", "content_type": "image/png", "ttl_seconds": 3600})
    return locked


def all_messages(service: PeeklockProcess) -> Sequence[Any]:
    """Return all messages of the queue."""
    return request_json(service, "GET", f"{SEND}?limit=1000")["items"]


@pytest.mark.behaviour("S1.5", "S1.19", "S1.35")
def test_a_killed_server_restarts_with_every_message_in_its_state(serve: Serve, tmp_path: Path) -> None:
    killed = serve(data_dir=tmp_path / "data")
    locked = fill_every_state(killed)
    before = all_messages(killed)
    request_json(killed, "POST", SEND, {"body": "the last word"})
    killed.end()
    later = serve(data_dir=tmp_path / "data")
    *same, last = all_messages(later)
    assert same == before
    assert {message["state"] for message in same} == {"available", "scheduled", "locked", "deferred", "dead_lettered"}
    assert (last["body"], last["state"]) == ("the last word", "available")
    assert settle(later, locked, "complete").json()["replayed"] is False
    taken = [message.get("body", message.get("body_base64")) for message in receive(later, 9)]
    assert taken == [{"a": [1, 2.0, None]}, "AP8=", "the last word"]


@pytest.mark.behaviour("S1.43", "S1.69")
def test_a_receiver_recovers_its_messages_from_a_server_that_was_killed(serve: Serve, tmp_path: Path) -> None:
    killed = serve(data_dir=tmp_path / "data")
    request_json(killed, "PUT", QUEUE, {"redelivery": "on_request"})
    for number in range(3):
        request_json(killed, "POST", SEND, {"body": number})
    held = request_json(killed, "POST", f"{SEND}/receive", {"receiver_id": "clerk", "max_messages": 3})["messages"]
    assert settle(killed, held[0], "complete").status_code == 200
    killed.end()
    later = serve(data_dir=tmp_path / "data")
    again = request_json(later, "POST", f"{QUEUE}/recover", {"receiver_id": "clerk"})["messages"]
    assert [(message["body"], message["redelivered"]) for message in again] == [(1, True), (2, True)]
    assert [settle(later, message, "complete").status_code for message in (held[1], again[0])] == [410, 200]
    assert [message["body"] for message in all_messages(later)] == [2]


@pytest.mark.behaviour("S1.73")
def test_a_stopped_server_serves_nothing_and_loses_nothing(serve: Serve, tmp_path: Path) -> None:
    stopped = serve(data_dir=tmp_path / "data")
    fill_every_state(stopped)
    before = all_messages(stopped)
    stopped.terminate()
    assert stopped.wait() == 0
    for method, path in (("POST", SEND), ("POST", RECEIVE), ("GET", QUEUE)):
        with pytest.raises(httpx.ConnectError):
            send_request(stopped, method, path)
    assert all_messages(serve(data_dir=tmp_path / "data")) == before


@pytest.mark.behaviour("S3.27")
@pytest.mark.parametrize(
    "verb", ["complete", *(pytest.param(verb, marks=pytest.mark.nightly) for verb in ("dead-letter", "renew"))]
)
def test_a_broken_connection_is_distinguished_from_a_refusal(serve: Serve, tmp_path: Path, verb: str) -> None:
    first = serve(data_dir=tmp_path / "data")
    request_json(first, "PUT", QUEUE, LONG_LOCK)
    request_json(first, "POST", SEND, {"body": 1})
    (message,) = receive(first)
    first.end()
    with pytest.raises(httpx.TransportError):
        settle(first, message, verb)
    later = serve(data_dir=tmp_path / "data")
    assert settle(later, message, verb).status_code == 200
    request_json(later, "POST", f"{QUEUE}/purge", {"states": ["locked", "dead_lettered"]})
    refused = settle(later, message, verb)
    if verb == "renew":
        assert (refused.status_code, refused.json()["code"], refused.json()["retryable"]) == (410, "lock-lost", False)
    else:
        assert (refused.status_code, refused.json()["replayed"]) == (200, True)


@pytest.fixture
def replicas(serve: Serve, postgres_url: str, redis_url: str) -> list[PeeklockProcess]:
    """Two servers on one store."""
    shared = {"database_url": postgres_url, "redis_url": redis_url}
    services = [serve(**shared), serve(**shared)]
    send_request(services[0], "DELETE", QUEUE)
    request_json(services[0], "PUT", QUEUE, LONG_LOCK)
    return services


@pytest.mark.behaviour("S1.13")
def test_replicas_on_one_store_deliver_each_message_once(replicas: list[PeeklockProcess]) -> None:
    numbers = [
        request_json(service, "POST", SEND, {"body": body})["sequence_number"]
        for body, service in zip(range(40), cycle(replicas), strict=False)
    ]

    def drain(service: PeeklockProcess) -> list[int]:
        taken: list[int] = []
        while messages := receive(service, 3):
            taken += [message["sequence_number"] for message in messages]
        return taken

    with ThreadPoolExecutor(4) as threads:
        drained = [threads.submit(drain, service) for service in (*replicas, *replicas)]
        taken = [number for task in drained for number in task.result()]
    assert sorted(taken) == numbers
    assert request_json(replicas[1], "GET", QUEUE)["counts"]["locked"] == 40


@pytest.mark.behaviour("S1.22")
def test_ids_and_tokens_of_one_replica_work_at_another(replicas: list[PeeklockProcess]) -> None:
    here, there = replicas
    sent = request_json(here, "POST", SEND, {"body_base64": "AP8="})
    path = f"{SEND}/{sent['sequence_number']}"
    assert request_json(there, "GET", path)["message_id"] == sent["message_id"]
    assert send_request(there, "GET", f"{path}/body").content == b"\x00\xff"
    (message,) = receive(here)
    assert settle(there, message, "renew").status_code == 200
    assert settle(there, message, "defer").status_code == 200
    (again,) = receive(here, sequence_numbers=[sent["sequence_number"]])
    assert again["body_base64"] == "AP8="
    assert settle(there, message, "complete").status_code == 409
    assert settle(there, again, "complete").json()["outcome"] == "completed"


@pytest.mark.behaviour("S1.79")
def test_messages_of_one_sender_arrive_in_order_at_another_replica(replicas: list[PeeklockProcess]) -> None:
    here, there = replicas
    for body in range(20):
        request_json(here, "POST", SEND, {"body": body})
    assert [receive(there)[0]["body"] for _ in range(10)] == list(range(10))
    assert [message["body"] for message in receive(there, 10)] == list(range(10, 20))


@pytest.mark.behaviour("S1.80")
def test_sends_that_wait_for_each_other_are_delivered_in_order(replicas: list[PeeklockProcess]) -> None:
    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as two:
        for body, (thread, service) in zip(range(20), cycle([(one, replicas[0]), (two, replicas[1])]), strict=False):
            thread.submit(request_json, service, "POST", SEND, {"body": body}).result()
    taken = [receive(service)[0]["body"] for service, _ in zip(cycle(replicas), range(20), strict=False)]
    assert taken == list(range(20))


def test_a_server_whose_file_was_removed_says_so_and_acknowledges_nothing(serve: Serve) -> None:
    service = serve()
    request_json(service, "PUT", QUEUE, LONG_LOCK)
    (service.directory / "data" / "peeklock.db").unlink()
    for method, path, body in (
        ("GET", "/readyz", None),
        ("POST", SEND, {"body": 1}),
        ("POST", RECEIVE, {"wait_seconds": 3600}),
        ("GET", SEND, None),
    ):
        refused = send_request(service, method, path, body)
        assert (refused.status_code, refused.json()["code"]) == (503, "store-unavailable")
        assert "was moved, replaced or removed while it was served" in refused.json()["detail"]
    service.terminate()
    assert service.wait() == 0
    assert [line["message"] for line in service.lines()].count("the database accepts no writes") == 1
