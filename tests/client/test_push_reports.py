"""A worker that pushes reports whether it receives, and no failure of a report changes its work."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import httpx
import msgspec
import pytest
from peeklock_client import RetryLimits
from peeklock_client.push.options import PushOptions
from peeklock_client.push.raw_messages import RawClient
from peeklock_client.push.reports import LIMIT_SECONDS, REPEAT_SECONDS, TTL_SECONDS, Reports, consumer_name
from peeklock_client.push.worker import push_worker
from peeklock_client.worker.report import WorkerReport

from tests.client.push_network import (
    SECRETS,
    URL,
    Answer,
    PushedRequest,
    ScriptedNetwork,
    always,
    answered,
    delivery_over,
)
from tests.client.virtual_broker import Broker, other_tasks
from tests.client.virtual_loop import run_virtually

TARGET = "https://shop.example/hook"
CONSUMER = "web-1"

AnswerReport = Callable[[httpx.Request], Awaitable[httpx.Response]]


async def accept(_: httpx.Request) -> httpx.Response:
    """Accept every report."""
    return httpx.Response(204)


def refuse(status: int, code: str) -> AnswerReport:
    """Return a server that refuses every report."""

    async def answer(_: httpx.Request) -> httpx.Response:
        problem = {"type": "about:blank", "title": "", "status": status, "detail": "No.", "code": code}
        return httpx.Response(status, json={**problem, "tracking_id": "t", "retryable": False})

    return answer


async def hang(_: httpx.Request) -> httpx.Response:
    """Answer no report."""
    await asyncio.sleep(3600)
    raise AssertionError


async def cut_off(_: httpx.Request) -> httpx.Response:
    """Break the connection of every report."""
    raise httpx.ReadError("cut off")


@dataclass
class Server:
    """A virtual broker that also gets reports. It notes each with its time."""

    answer_report: AnswerReport = accept
    broker: Broker = field(default_factory=lambda: Broker(10_000))
    reports: list[tuple[float, str, str, dict[str, Any]]] = field(default_factory=list)

    async def answer(self, request: httpx.Request) -> httpx.Response:
        if "/consumers/" not in request.url.path:
            return await self.broker.answer(request)
        body = msgspec.json.decode(request.content) if request.content else {}
        self.reports.append((asyncio.get_running_loop().time(), request.method, request.url.path, body))
        return await self.answer_report(request)

    def changes(self) -> list[tuple[str, str]]:
        """Return the methods and states of the reports, each once until another follows."""
        told = [(method, body.get("state", "")) for _, method, _, body in self.reports]
        return [one for index, one in enumerate(told) if index == 0 or told[index - 1] != one]


def push(server: Server, target: Answer, until: float, **fields: Any) -> WorkerReport:
    """Push and report until a time, then stop. No task is left."""

    async def scenario() -> WorkerReport:
        options = PushOptions(**{"url": URL, "queues": ("orders",), "secrets": SECRETS, "concurrency": 1, **fields})
        delivery = delivery_over(ScriptedNetwork(target), options)
        http = httpx.AsyncClient(transport=httpx.MockTransport(server.answer))
        client = RawClient("http://peeklock.test", http=http, retries=RetryLimits(attempts=1))
        worker = push_worker(options, delivery, client)
        reports = Reports(client.api, options.queues, delivery.target.name, delivery.circuit, CONSUMER)
        async with reports.repeated():
            await worker.start()
            await asyncio.sleep(until)
            report = await worker.stop(60)
        await delivery.target.close()
        assert not other_tasks()
        return report

    return run_virtually(scenario())


def down_until(seconds: float) -> Answer:
    """Return a target that fails until a time, and then takes a second for each message, so that they are few."""

    async def answer(request: PushedRequest) -> bytes:
        if request.at < seconds:
            return answered(500)
        await asyncio.sleep(1)
        return answered(200)

    return answer


def test_a_worker_reports_that_its_circuit_opens_that_it_closes_and_that_it_stops() -> None:
    server = Server()
    push(server, down_until(10), until=30)
    assert server.changes() == [("PUT", "receiving"), ("PUT", "paused"), ("PUT", "receiving"), ("DELETE", "")]
    paused = next((at, body) for at, _, _, body in server.reports if body.get("state") == "paused")
    assert paused[0] < 1
    assert paused[1] == {
        "state": "paused", "reason": "5 failures in a row; the last: The target answered 500.",
        "target": TARGET, "ttl_seconds": TTL_SECONDS,
    }  # fmt: skip
    assert {path for *_, path, _ in server.reports} == {f"/v1/queues/orders/consumers/{CONSUMER}"}


@pytest.mark.parametrize(("target", "state"), [(always(200, seconds=1), "receiving"), (always(500), "paused")])
def test_reports_are_repeated_before_they_end(target: Answer, state: str) -> None:
    server = Server()
    push(server, target, until=10 * REPEAT_SECONDS)
    times = [at for at, _, _, body in server.reports if body.get("state") == state]
    assert len(times) >= 10
    assert max(later - earlier for earlier, later in pairwise(times)) < TTL_SECONDS / 2


def test_each_queue_has_a_report_of_its_own() -> None:
    server = Server()
    push(server, always(500), until=3, queues=("orders", "letters"))
    for queue in ("orders", "letters"):
        own = [(method, body.get("state")) for _, method, path, body in server.reports if f"/{queue}/" in path]
        assert own == [("PUT", "receiving"), ("PUT", "paused"), ("DELETE", None)]


@pytest.mark.parametrize(
    "answer_report",
    [refuse(403, "forbidden"), refuse(404, "queue-not-found"), cut_off, hang],
    ids=["forbidden", "no-queue", "cut-off", "hanging"],
)
def test_reports_that_fail_are_logged_once_and_the_work_goes_on(
    answer_report: AnswerReport, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server(answer_report)
    report = push(server, always(200, seconds=1), until=10 * REPEAT_SECONDS)
    assert report.completed > 100
    assert len(server.reports) >= 8
    logged = [record.getMessage() for record in caplog.records if "does not show" in record.getMessage()]
    assert len(logged) == 1
    assert "orders" in logged[0]


def test_a_failure_after_a_success_is_logged_again(caplog: pytest.LogCaptureFixture) -> None:
    async def every_other(_: httpx.Request) -> httpx.Response:
        return await (accept if len(server.reports) % 2 else refuse(503, "consumers-unknown"))(_)

    server = Server(every_other)
    push(server, always(200, seconds=1), until=2.5 * REPEAT_SECONDS)
    assert len([record for record in caplog.records if "does not show" in record.getMessage()]) == 2


@pytest.mark.parametrize(
    ("status", "code"), [(404, "not-found"), (405, "method-not-allowed"), (404, "not-peeklock")]
)  # fmt: skip
def test_a_server_that_does_not_know_consumers_is_asked_once(
    status: int, code: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server(refuse(status, code))
    report = push(server, down_until(10), until=100)
    assert [method for _, method, *_ in server.reports] == ["PUT"]
    assert report.completed > 0
    assert "the server does not know consumers" in caplog.text


def test_a_server_that_hangs_delays_the_stop_by_a_few_seconds() -> None:
    async def hang_on_delete(request: httpx.Request) -> httpx.Response:
        return await (hang if request.method == "DELETE" else accept)(request)

    async def scenario() -> float:
        server = Server(hang_on_delete)
        http = httpx.AsyncClient(transport=httpx.MockTransport(server.answer))
        client = RawClient("http://peeklock.test", http=http)
        circuit = delivery_over(ScriptedNetwork(always(200)), PushOptions(URL, ("orders",), SECRETS)).circuit
        async with Reports(client.api, ("orders", "letters"), TARGET, circuit, CONSUMER).repeated():
            await asyncio.sleep(1)
            stopped_at = asyncio.get_running_loop().time()
        return asyncio.get_running_loop().time() - stopped_at

    assert run_virtually(scenario()) == pytest.approx(LIMIT_SECONDS)


def test_a_reason_that_the_server_would_refuse_is_cut() -> None:
    async def scenario() -> list[Any]:
        server = Server()
        http = httpx.AsyncClient(transport=httpx.MockTransport(server.answer))
        circuit = delivery_over(
            ScriptedNetwork(always(200)), PushOptions(URL, ("orders",), SECRETS, open_after=1)
        ).circuit
        circuit.note_failure("two\nlines\x00" + "x" * 1000)
        api = RawClient("http://peeklock.test", http=http).api
        async with Reports(api, ("orders",), TARGET + "x" * 1000, circuit, CONSUMER).repeated():
            await asyncio.sleep(1)
        return [body for *_, body in server.reports if body]

    (body,) = run_virtually(scenario())
    assert body["reason"].startswith("1 failure; the last: two lines x")
    assert (len(body["reason"]), len(body["target"])) == (500, 500)


def test_two_processes_of_one_host_have_different_names() -> None:
    first, second = (consumer_name("-w\u00e9b 1." + "x" * 300) for _ in range(2))
    assert first != second
    assert first.startswith("w-b-1.xxx")
    assert len(first) < 128


def test_a_host_without_a_usable_name_is_called_worker() -> None:
    assert consumer_name("...").startswith("worker-")
