"""The pytest plugin: a server for the tests of a user, with fresh data for each, and time that a test moves."""

from __future__ import annotations

import pytest

from tests.testing.conftest import RunTests

HTTP = """
import httpx

def post(peeklock, path, body):
    response = httpx.post(f"{peeklock.url}/v1{path}", json=body)
    response.raise_for_status()
    return response.json() if response.content else None

def bodies(messages):
    return [message["body"] for message in messages]
"""

WAITING = """
import re
from concurrent.futures import ThreadPoolExecutor

def wait_for_receiver(peeklock):
    for _ in range(10_000):
        if re.search(r"peeklock_waiting_receivers 1", httpx.get(f"{peeklock.url}/metrics").text):
            return
    raise AssertionError("the receive does not wait")
"""


def test_a_drain_returns_and_removes_what_the_program_has_sent(run_tests: RunTests) -> None:
    run = run_tests(
        HTTP
        + """
def test_user(peeklock):
    for number in range(3):
        post(peeklock, "/queues/orders/messages", {"body": number})
    assert bodies(peeklock.drain("orders", limit=2)) == [0, 1]
    assert bodies(peeklock.drain("orders")) == [2]
    assert peeklock.drain("orders") == []
    assert peeklock.drain("no-such-queue") == []

def test_a_drain_leaves_locked_messages_and_finds_dead_letters(peeklock):
    for number in range(2):
        post(peeklock, "/queues/orders/messages", {"body": number})
    messages = post(peeklock, "/queues/orders/messages/receive", {"max_messages": 2})["messages"]
    post(peeklock, f"/queues/orders/locks/{messages[0]['lock_token']}/dead-letter", {})
    assert peeklock.drain("orders") == []
    assert bodies(peeklock.drain("orders", source="dead_letter")) == [0]
"""
    )
    assert run.passed, run.output


def test_a_drain_waits_for_the_first_message_only_and_takes_any_number(run_tests: RunTests) -> None:
    run = run_tests(
        HTTP
        + WAITING
        + """
def test_user(peeklock):
    httpx.put(f"{peeklock.url}/v1/queues/orders", json={}).raise_for_status()
    with ThreadPoolExecutor() as threads:
        drain = threads.submit(peeklock.drain, "orders", wait_seconds=50)
        wait_for_receiver(peeklock)
        post(peeklock, "/queues/orders/messages", {"body": 1})
        assert bodies(drain.result()) == [1]

def test_many(peeklock):
    for first in range(0, 2500, 500):
        messages = [{"body": number} for number in range(first, first + 500)]
        post(peeklock, "/queues/orders/messages/batch", {"messages": messages})
    assert bodies(peeklock.drain("orders", limit=1200)) == [*range(1200)]
    assert bodies(peeklock.drain("orders")) == [*range(1200, 2200)]
    assert bodies(peeklock.drain("orders", limit=2000)) == [*range(2200, 2500)]
"""
    )
    assert run.passed, run.output


def test_each_test_begins_without_data_and_at_the_time_of_the_machine(run_tests: RunTests) -> None:
    run = run_tests(
        HTTP
        + """
import pytest
from datetime import UTC, datetime, timedelta

@pytest.mark.parametrize("turn", [1, 2])
def test_user(peeklock, turn):
    assert httpx.get(f"{peeklock.url}/v1/queues").json()["items"] == []
    assert abs(peeklock.now() - datetime.now(UTC)) < timedelta(hours=1)
    post(peeklock, "/queues/orders/messages", {"body": 1})
    httpx.put(f"{peeklock.url}/v1/topics/prices", json={}).raise_for_status()
    headers = {"Peeklock-Local-Admin": "true"}
    key = {"principal": "admin", "rights": ["manage", "send", "listen", "browse"], "patterns": ["*"]}
    httpx.post(f"{peeklock.url}/v1/keys", json=key, headers=headers).raise_for_status()
    assert httpx.get(f"{peeklock.url}/v1/queues").status_code == 401
    peeklock.advance(7200)

def test_the_server_has_nothing_between_tests(peeklock_server):
    assert httpx.get(f"{peeklock_server.url}/v1/queues").json()["items"] == []
"""
    )
    assert run.passed, run.output


@pytest.mark.nightly
def test_a_drain_takes_an_api_key_once_there_are_keys(run_tests: RunTests) -> None:
    run = run_tests(
        HTTP
        + """
import pytest
from pytest_peeklock import ServerFailed

def test_user(peeklock):
    post(peeklock, "/queues/orders/messages", {"body": 1})
    key = {"principal": "admin", "rights": ["manage", "send", "listen", "browse"], "patterns": ["*"]}
    created = httpx.post(f"{peeklock.url}/v1/keys", json=key, headers={"Peeklock-Local-Admin": "true"}).json()
    with pytest.raises(ServerFailed):
        peeklock.drain("orders")
    assert bodies(peeklock.drain("orders", api_key=created["secret"])) == [1]
"""
    )
    assert run.passed, run.output


def test_a_scheduled_message_is_available_after_its_time(run_tests: RunTests) -> None:
    run = run_tests(
        HTTP
        + """
def test_user(peeklock):
    post(peeklock, "/queues/orders/messages", {"body": 1, "delay_seconds": 3600})
    peeklock.advance(3500)
    assert peeklock.drain("orders") == []
    peeklock.advance(100)
    assert bodies(peeklock.drain("orders")) == [1]
"""
    )
    assert run.passed, run.output


def test_locks_end_and_failed_deliveries_reach_the_dead_letter_queue_of_another(run_tests: RunTests) -> None:
    run = run_tests(
        HTTP
        + """
def test_user(peeklock):
    for name, settings in {"failures": {}, "orders": {"max_delivery_count": 1, "forward_dead_letters_to": "failures"}}.items():
        httpx.put(f"{peeklock.url}/v1/queues/{name}", json=settings).raise_for_status()
    post(peeklock, "/queues/orders/messages", {"body": 1})
    received = post(peeklock, "/queues/orders/messages/receive", {"lock_seconds": 3000})["messages"]
    peeklock.advance(2900)
    assert peeklock.drain("failures") == []
    peeklock.advance(100.5)
    (message,) = peeklock.drain("failures")
    assert message["body"] == received[0]["body"]
    token = received[0]["lock_token"]
    late = httpx.post(f"{peeklock.url}/v1/queues/orders/locks/{token}/complete")
    assert late.status_code in (404, 409, 410), late.text
"""
    )
    assert run.passed, run.output


def test_the_lives_of_messages_and_idempotency_records_end(run_tests: RunTests) -> None:
    run = run_tests(
        HTTP
        + """
def send(peeklock, message, key):
    return httpx.post(f"{peeklock.url}/v1/queues/orders/messages", json=message, headers={"Idempotency-Key": key})

def test_user(peeklock):
    settings = {"duplicate_detection_window_seconds": 600}
    httpx.put(f"{peeklock.url}/v1/queues/orders", json=settings).raise_for_status()
    first = send(peeklock, {"body": 1, "ttl_seconds": 60}, "a").json()
    again = send(peeklock, {"body": 1, "ttl_seconds": 60}, "a").json()
    assert again["sequence_number"] == first["sequence_number"]
    peeklock.advance(60)
    assert peeklock.drain("orders") == []
    peeklock.advance(1_000_000)
    later = send(peeklock, {"body": 1, "ttl_seconds": 60}, "a").json()
    assert later["sequence_number"] != first["sequence_number"]
"""
    )
    assert run.passed, run.output


def test_a_receive_that_waits_is_answered_when_its_time_is_over_or_a_message_comes(run_tests: RunTests) -> None:
    run = run_tests(
        HTTP
        + WAITING
        + """
def test_user(peeklock):
    httpx.put(f"{peeklock.url}/v1/queues/orders", json={}).raise_for_status()
    wanted = {"wait_seconds": 50}
    with ThreadPoolExecutor() as threads:
        receive = threads.submit(httpx.post, f"{peeklock.url}/v1/queues/orders/messages/receive", json=wanted, timeout=None)
        wait_for_receiver(peeklock)
        peeklock.advance(50)
        assert receive.result().json()["messages"] == []

        post(peeklock, "/queues/orders/messages", {"body": 1, "delay_seconds": 30})
        receive = threads.submit(httpx.post, f"{peeklock.url}/v1/queues/orders/messages/receive", json=wanted, timeout=None)
        wait_for_receiver(peeklock)
        peeklock.advance(30)
        assert bodies(receive.result().json()["messages"]) == [1]
"""
    )
    assert run.passed, run.output


@pytest.mark.nightly
def test_connections_stay_open_when_time_moves(run_tests: RunTests) -> None:
    run = run_tests(
        HTTP
        + """
import socket

def test_user(peeklock):
    host, _, port = peeklock.url.removeprefix("http://").partition(":")
    request = b"GET /livez HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n"
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(request)
        assert connection.recv(4096).startswith(b"HTTP/1.1 200")
        peeklock.advance(86400)
        connection.sendall(request)
        assert connection.recv(4096).startswith(b"HTTP/1.1 200")
"""
    )
    assert run.passed, run.output


@pytest.mark.nightly
def test_time_moves_only_ahead(run_tests: RunTests) -> None:
    run = run_tests(
        """
from datetime import timedelta
import pytest

def test_user(peeklock):
    before = peeklock.now()
    peeklock.advance(86400)
    assert timedelta(days=1) <= peeklock.now() - before < timedelta(days=1, minutes=10)
    for seconds in (-1, float("nan"), float("inf")):
        with pytest.raises(ValueError):
            peeklock.advance(seconds)
"""
    )
    assert run.passed, run.output
