"""What a push does with each answer of its target, and with none."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from datetime import timedelta
from email.utils import format_datetime
from itertools import pairwise
from typing import Any

import pytest
from peeklock_client.push.answers import DEFAULT_DELAY_SECONDS, MAX_DELAY_SECONDS, delay_of
from peeklock_client.push.rate import Rate
from peeklock_client.push.target import TimeLimits

from tests.client.push_network import (
    START,
    PushedRequest,
    ScriptedNetwork,
    always,
    answered,
    push,
    settlements,
)
from tests.client.virtual_broker import Broker
from tests.client.virtual_loop import run_virtually

PROBLEM = "application/problem+json"
GONE = {"title": "Order cancelled", "detail": "No service waits for order 17."}


def settled(network: ScriptedNetwork, until: float = 1.0, **fields: Any) -> list[dict[str, Any]]:
    """Push one message, and return its settlements."""
    broker = Broker(1)
    push(broker, network, until, **fields)
    return settlements(broker)


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_a_success_completes_the_message(status: int) -> None:
    assert settled(ScriptedNetwork(always(status))) == [{"action": "complete"}]


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "120"}, 120),
        ({"Retry-After": "0"}, 0),
        ({"Retry-After": format_datetime(START + timedelta(minutes=5), usegmt=True)}, 300),
        ({"Retry-After": "soon"}, DEFAULT_DELAY_SECONDS),
        ({}, DEFAULT_DELAY_SECONDS),
    ],
)
def test_a_target_that_asks_for_a_pause_gets_the_message_later(
    status: int, headers: dict[str, str], seconds: float
) -> None:
    [settlement] = settled(ScriptedNetwork(always(status, headers)))
    assert settlement.pop("delay_seconds") == pytest.approx(seconds, abs=0.1)
    assert settlement == {"action": "abandon", "count": False}


@pytest.mark.parametrize("text", ["9" * 30, "9" * 5000, "Fri, 31 Dec 9999 23:59:59 GMT"])
def test_no_delay_is_longer_than_the_server_accepts(text: str) -> None:
    assert delay_of(text, START) == MAX_DELAY_SECONDS


@pytest.mark.parametrize("text", ["-1", "1.5", "²", "Fri, 31 Feb 2026 10:00:00 GMT", "\x00", "1, 2"])
def test_a_pause_that_cannot_be_read_is_the_default_one(text: str) -> None:
    assert delay_of(text, START) == DEFAULT_DELAY_SECONDS


@pytest.mark.parametrize("text", ["Fri Nov 20 10:05:00 2026", "Fri, 20 Nov 2026 10:05:00 -0000"])
def test_a_date_without_a_time_zone_is_in_utc(text: str) -> None:
    assert delay_of(text, START) == 300


def test_the_first_of_repeated_headers_counts() -> None:
    async def twice(_: PushedRequest) -> bytes:
        return answered(503, {"Retry-After": "7"}).replace(b"7\r\n", b"7\r\nretry-after: 900\r\n")

    assert [one["delay_seconds"] for one in settled(ScriptedNetwork(twice))] == [7]


def test_a_date_in_the_past_is_no_pause() -> None:
    assert delay_of(format_datetime(START - timedelta(days=1), usegmt=True), START) == 0


@pytest.mark.parametrize("status", [409, 410, 422])
@pytest.mark.parametrize(
    ("content_type", "body", "reason", "description"),
    [
        (PROBLEM, json.dumps(GONE), GONE["title"], GONE["detail"]),
        ("Application/Problem+JSON", json.dumps(GONE), GONE["title"], GONE["detail"]),
        (f"{PROBLEM}; charset=utf-8", json.dumps(GONE), GONE["title"], GONE["detail"]),
        (PROBLEM, json.dumps({"title": None, "detail": "x\0y"}), None, "xy"),
        (PROBLEM, json.dumps({"title": " \n", "detail": " lost\0 "}), None, "lost"),
        (PROBLEM, json.dumps({"title": "t" * 9999, "detail": "d" * 9999}), "t" * 128, "d" * 4096),
        (PROBLEM, json.dumps(GONE | {"more": "x" * (1 << 17)}), None, None),
        (PROBLEM, "{", None, None),
        (PROBLEM, "[]", None, None),
        (PROBLEM, '{"title": "t", "more": ' + "[" * 30_000 + "]" * 30_000 + "}", None, None),
        ("application/json", json.dumps(GONE), None, None),
        ("text/html", "<p>", None, None),
    ],
)
def test_a_target_that_rejects_the_message_dead_letters_it(
    status: int, content_type: str, body: str, reason: str | None, description: str | None
) -> None:
    network = ScriptedNetwork(always(status, {"Content-Type": content_type}, body.encode()))
    assert settled(network) == [
        {
            "action": "dead_letter",
            "reason": reason or f"http_{status}",
            "description": description or f"The target answered {status}.",
        }
    ]


@pytest.mark.parametrize("status", [300, 301, 302, 307, 308, 400, 401, 403, 404, 408, 413, 418, 500, 502, 504])
def test_any_other_answer_is_a_failure_and_the_queue_decides(status: int) -> None:
    network = ScriptedNetwork(always(status, {"Location": "https://shop.example/other"}))
    [settlement] = settled(network)
    assert settlement.pop("count", True)
    assert settlement == {"action": "abandon", "reason": f"http_{status}"}
    assert [request.line for request in network.requests] == ["POST /hook?key=1 HTTP/1.1"]  # no redirect is followed


def test_a_failure_is_counted_and_the_log_says_why(caplog: pytest.LogCaptureFixture) -> None:
    pushed = push(Broker(1), ScriptedNetwork(always(500)), until=1)
    assert (pushed.report.failed, pushed.report.abandoned) == (1, 1)
    assert "message 1: https://shop.example/hook failed: The target answered 500." in caplog.text


ADDRESS = "93.184.215.14"
LIMITS = TimeLimits(connect=1, send=2, answer=3, total=6)


async def never(_: PushedRequest) -> bytes:
    await asyncio.sleep(3600)
    return b""


async def cut(_: PushedRequest) -> bytes:
    return b""


async def not_http(_: PushedRequest) -> bytes:
    return b"SSH-2.0-OpenSSH_9.9\r\n\r\n"


async def broken_tls(_: PushedRequest) -> bytes:
    raise ssl.SSLError(1, "bad record type")


@pytest.mark.parametrize(
    ("network", "reason"),
    [
        (ScriptedNetwork(never), "timeout"),
        (ScriptedNetwork(cut), "no_answer"),
        (ScriptedNetwork(not_http), "no_answer"),
        (ScriptedNetwork(broken_tls), "no_answer"),
        (ScriptedNetwork(always(200), unread=True), "timeout"),
    ],
    ids=["silent", "cut", "another protocol", "broken TLS", "unread"],
)
def test_a_target_without_an_answer_has_failed(network: ScriptedNetwork, reason: str) -> None:
    [settlement] = settled(network, until=20, limits=LIMITS)
    assert (settlement["action"], settlement["reason"]) == ("abandon", reason)
    assert settlement.get("count") is not False


@pytest.mark.parametrize(
    ("network", "detail"),
    [
        (ScriptedNetwork(always(200), silent={ADDRESS}), "No connection to shop.example:443 within 1 s."),
        (
            ScriptedNetwork(always(200), refusing={ADDRESS}),
            f"No connection to {ADDRESS} on port 443: ConnectError refused.",
        ),
        (
            ScriptedNetwork(always(200), untrusted=True),
            "The connection failed: ConnectError: certificate verify failed",
        ),
    ],
    ids=["silent", "refused", "untrusted"],
)
@pytest.mark.parametrize("batch", [None, 10], ids=["single", "batch"])
def test_a_message_that_was_not_sent_is_returned_uncounted_and_the_log_says_why(
    network: ScriptedNetwork, detail: str, batch: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    assert settled(network, until=20, limits=LIMITS, batch=batch) == [{"action": "release"}]
    assert f"message 1 is returned uncounted: {detail}" in caplog.text


def test_a_body_that_breaks_off_after_a_success_changes_nothing() -> None:
    async def short(_: PushedRequest) -> bytes:
        return answered(200).replace(b"Content-Length: 0", b"Content-Length: 99")

    assert settled(ScriptedNetwork(short)) == [{"action": "complete"}]


def test_tls_that_breaks_after_a_success_changes_nothing() -> None:
    network = ScriptedNetwork(always(200, {"Transfer-Encoding": "chunked"}), fault=ssl.SSLError(1, "bad record type"))
    assert settled(network) == [{"action": "complete"}]


@pytest.mark.parametrize(
    "excess", [answered(200), answered(200)[:9], b"No content", b"\r\n" * 9], ids=["answer", "part", "text", "lines"]
)
@pytest.mark.parametrize(
    "first",
    [
        answered(204),
        answered(200, body=b"done"),
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 X\r\n\r\n",
        b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ndone\r\n0\r\n\r\n",
    ],
    ids=["204", "length", "100", "chunked"],
)
def test_bytes_after_an_answer_are_no_answer_to_the_next_request(first: bytes, excess: bytes) -> None:
    network = ScriptedNetwork(always(200))

    async def answer(_: PushedRequest) -> bytes:
        return first + excess if len(network.requests) == 1 else answered(422)

    network.answer = answer
    broker = Broker(2)
    push(broker, network, until=1, concurrency=1)
    assert [one["action"] for one in settlements(broker)] == ["complete", "dead_letter"]
    assert settlements(broker)[1]["reason"] == "http_422"


@pytest.mark.parametrize("chunked", [False, True])
def test_an_answer_that_ends_where_it_says_leaves_its_connection_usable(chunked: bool) -> None:
    body = b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ndone\r\n0\r\n\r\n"

    async def answer(_: PushedRequest) -> bytes:
        return body if chunked else answered(200, body=b"done")

    network = ScriptedNetwork(answer)
    push(Broker(3), network, until=1, concurrency=1)
    assert (len(network.requests), len(network.tls_names)) == (3, 1)


def test_a_long_answer_is_not_read_to_its_end() -> None:
    network = ScriptedNetwork(always(200, body=b"x" * (1 << 20)))
    assert settled(network) == [{"action": "complete"}]


def test_the_limit_of_a_write_is_for_each_part_of_a_large_body() -> None:
    network = ScriptedNetwork(always(200), bytes_per_second=100_000)
    broker = Broker(1, fields={"body_base64": base64.b64encode(bytes(1 << 20)).decode()})
    push(broker, network, until=20, limits=TimeLimits(send=2))
    assert settlements(broker) == [{"action": "complete"}]
    assert len(network.requests[0].body) == 1 << 20


def test_a_lock_is_renewed_while_the_target_works() -> None:
    broker, network = Broker(1), ScriptedNetwork(always(200, seconds=100))
    push(broker, network, until=120, limits=TimeLimits(answer=200, total=300))
    assert [action for _, action in broker.settled].count("renew") >= 5
    assert (settlements(broker), broker.too_late) == ([{"action": "complete"}], [])


def test_a_target_that_sends_its_head_slowly_is_cut_off_by_the_whole_limit() -> None:
    async def slow(_: PushedRequest) -> bytes:
        await asyncio.sleep(2.5)
        return b"HTTP/1.1 100 Continue\r\n\r\n" + answered(200)

    assert settled(ScriptedNetwork(slow), until=20, limits=TimeLimits(answer=3, total=2))[0]["reason"] == "timeout"


def test_a_rate_that_was_not_used_is_not_made_up_for() -> None:
    async def times() -> list[float]:
        rate, loop = Rate(2), asyncio.get_running_loop()
        await rate.wait()
        await asyncio.sleep(10)
        noted: list[float] = []
        for _ in range(3):
            await rate.wait()
            noted.append(loop.time())
        return noted

    assert run_virtually(times()) == pytest.approx([10, 10.5, 11])


def test_requests_at_a_time_and_per_second_are_limited() -> None:
    broker, network = Broker(100), ScriptedNetwork(always(200, seconds=1))
    push(broker, network, until=30, concurrency=3)
    assert network.most == 3
    broker, network = Broker(100), ScriptedNetwork(always(200))
    push(broker, network, until=9.9, rate=2, grace=0)
    times = [request.at for request in network.requests]
    assert len(times) == 20
    assert all(later - earlier >= 0.499 for earlier, later in pairwise(times))


def test_messages_that_an_open_circuit_returns_take_no_part_of_the_rate() -> None:
    broker, network = Broker(10), ScriptedNetwork(always(500))
    push(broker, network, until=2.5, concurrency=10, rate=1, open_after=1)
    assert [request.at for request in network.requests] == pytest.approx([0, 1], abs=0.1)
    assert [one["action"] for one in settlements(broker)] == ["abandon", "abandon", *["release"] * 8]


def test_a_call_that_is_cancelled_takes_no_part_of_the_rate() -> None:
    async def scenario() -> float:
        rate = Rate(0.1)
        await rate.wait()
        waiting = [asyncio.create_task(rate.wait()) for _ in range(3)]
        await asyncio.sleep(1)
        for task in waiting[:2]:
            task.cancel()
        await waiting[2]
        return asyncio.get_running_loop().time()

    assert run_virtually(scenario()) == pytest.approx(10, abs=0.1)
