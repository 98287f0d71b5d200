"""How workers start and stop when something else is under way: a start, a cancellation, a handler that does not end."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import msgspec
import pytest
from peeklock_client import AckPolicy, Client, ReceiveContext, RetryLimits, Worker
from peeklock_client.worker.report import WorkerReport

from tests.client.virtual_broker import Broker, client_of, message, other_tasks, run_worker
from tests.client.virtual_loop import run_virtually


async def nothing(body: int) -> None:
    """A handler that does nothing."""


async def sleep_long(body: int) -> None:
    """A handler that ends only if it is cancelled."""
    await asyncio.sleep(3600)


async def never_end(release: asyncio.Event) -> None:
    """Wait for the release, and ignore cancellations."""
    while not release.is_set():
        try:
            await release.wait()
        except asyncio.CancelledError:
            continue


def worker_of(broker: Broker, handler: Any = nothing, *queues: str, **options: Any) -> Worker:
    worker = Worker(client_of(broker.answer), grace_seconds=5)
    worker.on(*(queues or ("orders",)), **options)(handler)
    return worker


def test_a_stop_without_grace_returns_every_message() -> None:
    broker = Broker(stored=10)

    async def scenario() -> WorkerReport:
        worker = worker_of(broker, sleep_long, max_workers=2)
        await worker.start()
        await asyncio.sleep(1)
        return await worker.stop(0)

    report = run_virtually(scenario())
    assert (report.received, report.handed_back) == (10, 10)
    begun = {"1.t", "2.t"}
    expected = [(token, "abandon" if token in begun else "release") for token in broker.lock_ends]
    assert sorted(broker.settled) == sorted(expected)


# ---- handlers that do not end ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["complete", "fault"])
def test_a_settled_message_whose_handler_does_not_end_does_not_hold_up_a_stop(end: str) -> None:
    broker = Broker(stored=1)

    async def scenario() -> WorkerReport:
        release = asyncio.Event()

        async def handle(context: ReceiveContext[int]) -> None:
            if end == "fault":
                context.fault()
            await never_end(release)

        policy = AckPolicy.ACK_FIRST if end == "complete" else AckPolicy.NACK_ON_ERROR
        worker = worker_of(broker, handle, ack_policy=policy)
        await worker.start()
        await asyncio.sleep(1)
        async with asyncio.timeout(60):
            await worker.stop()
        release.set()
        await asyncio.sleep(1)
        assert not other_tasks()
        return worker.report

    report = run_virtually(scenario())
    assert (report.completed, report.in_doubt) == ((1, 0) if end == "complete" else (0, 1))


def test_a_message_that_a_stop_gave_back_is_counted_once() -> None:
    broker = Broker(stored=1)

    async def scenario() -> str:
        release = asyncio.Event()
        worker = worker_of(broker, handle_until(release))
        await worker.start()
        await asyncio.sleep(1)
        await worker.stop()
        release.set()
        await asyncio.sleep(1)
        return str(worker.report)

    text = run_virtually(scenario())
    assert "1 handed_back" in text
    assert "0 completed, 0 abandoned, 0 dead_lettered, 0 deferred, 0 lock_lost, 0 refused, 0 in_doubt" in text


def handle_until(release: asyncio.Event) -> Any:
    async def handle(body: int) -> None:
        await never_end(release)

    return handle


def test_a_completion_whose_handler_is_cancelled_is_sent() -> None:
    broker = Broker(stored=1)

    async def scenario() -> None:
        async def handle(context: ReceiveContext[int]) -> None:
            await asyncio.sleep(1)
            await context.complete()

        worker = worker_of(broker, handle, flush_seconds=3600, wait_seconds=3600)
        await worker.start()
        await asyncio.sleep(2)
        await worker.stop(0)

    run_virtually(scenario())
    assert broker.settled == [("1.t", "complete")]


def test_a_stop_of_a_worker_that_gathers_no_settlements_waits_without_load() -> None:
    broker = Broker(stored=1)

    async def handle(body: int) -> None:
        await asyncio.sleep(70)

    assert run_worker(broker.answer, handle, flush_seconds=0).handed_back == 1


# ---- starts and stops at the same time -------------------------------------------------------------------------------


def test_a_stop_during_a_start_stops_what_it_starts() -> None:
    async def scenario() -> None:
        worker = worker_of(Broker(stored=1, slow=5), nothing, "a", "b", "c")
        starting = asyncio.ensure_future(worker.start())
        await asyncio.sleep(7)
        await worker.stop()
        await starting
        assert not worker.is_running
        assert not other_tasks()

    run_virtually(scenario())


def test_a_second_start_is_refused_also_during_the_first() -> None:
    async def scenario() -> None:
        worker = worker_of(Broker(stored=1, slow=5))
        results = await asyncio.gather(worker.start(), worker.start(), return_exceptions=True)
        assert [type(result) for result in results] == [type(None), RuntimeError]
        await worker.stop()
        assert not other_tasks()

    run_virtually(scenario())


def test_a_cancelled_start_asks_for_the_messages_that_it_missed() -> None:
    broker = Broker(stored=1, slow=5)

    async def scenario() -> None:
        starting = asyncio.ensure_future(worker_of(broker).start())
        await asyncio.sleep(3)
        starting.cancel()
        await asyncio.wait([starting])
        assert starting.cancelled()

    run_virtually(scenario())
    assert [kind for _, kind, _ in broker.requests] == ["receive", "recover"]


def test_a_handler_can_stop_its_worker() -> None:
    async def scenario() -> None:
        worker = Worker(client_of(Broker(stored=3).answer), grace_seconds=5)

        @worker.on("orders")
        async def handle(body: int) -> None:
            if body == 2:
                await worker.stop()

        async with asyncio.timeout(60):
            await worker.run()
        assert (worker.report.completed, worker.report.handed_back) == (2, 1)
        assert not other_tasks()

    run_virtually(scenario())


@pytest.mark.parametrize("call", ["stop", "run"])
def test_a_cancelled_call_leaves_no_worker_half_stopped(call: str) -> None:
    async def scenario() -> None:
        worker = worker_of(Broker(stored=1), sleep_long)
        running = asyncio.ensure_future(worker.run())
        await asyncio.sleep(1)
        cancelled = running if call == "run" else asyncio.ensure_future(worker.stop())
        await asyncio.sleep(1)
        cancelled.cancel()
        await asyncio.wait([running, cancelled])
        await asyncio.sleep(10)
        assert worker.report.handed_back == 1
        assert not other_tasks()

    run_virtually(scenario())


# ---- servers and clients that are gone -------------------------------------------------------------------------------


def test_a_worker_stops_after_its_client_was_closed() -> None:
    async def scenario() -> WorkerReport:
        http = httpx.AsyncClient(transport=httpx.MockTransport(Broker(stored=3).answer))
        worker = Worker(Client("http://peeklock.test", http=http, retries=RetryLimits(attempts=2)))

        @worker.on("orders")
        async def handle(body: int) -> None:
            await asyncio.sleep(3)

        await worker.start()
        await asyncio.sleep(1)
        await http.aclose()
        async with asyncio.timeout(60):
            report = await worker.stop()
        assert not other_tasks()
        return report

    assert run_virtually(scenario()).in_doubt == 3


def test_what_a_stop_recovers_and_cannot_give_back_is_in_doubt() -> None:
    broker = Broker(stored=1)

    async def answer(request: httpx.Request) -> httpx.Response:
        kind, body = request.url.path.rsplit("/", 1)[-1], msgspec.json.decode(request.content)
        if kind == "recover":
            return httpx.Response(200, json={"messages": [message(9)]})
        if any(one["lock_token"] == "9.t" for one in body.get("settlements", [])):
            await asyncio.sleep(3600)
        return await broker.answer(request)

    report = run_worker(answer, nothing)
    assert (report.completed, report.in_doubt) == (1, 1)
