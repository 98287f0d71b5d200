"""Workers on a real server: what becomes of each message, and how a worker stops."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import uuid4

import pytest
from fastapi import FastAPI
from peeklock_client import (
    AckPolicy,
    Client,
    ConstantRetry,
    Message,
    NewMessage,
    NoRetry,
    Queue,
    ReceiveContext,
    Worker,
)
from peeklock_client.generated import requests
from peeklock_client.worker.report import WorkerReport

from tests.client.conftest import new_queue

SECONDS = 30.0


@asynccontextmanager
async def running(worker: Worker) -> AsyncIterator[None]:
    """Run a worker. What it logs of failing handlers is expected."""
    await worker.start()
    try:
        async with asyncio.timeout(SECONDS):
            yield
    finally:
        await worker.stop(1)


async def ended(queue: Queue, count: int, worker: Worker) -> WorkerReport:
    """Return the report once this number of messages has ended."""
    while True:
        report = worker.report
        settled = report.completed + report.dead_lettered + report.deferred + report.abandoned
        if settled + report.lock_lost + report.in_doubt + report.refused >= count:
            return report
        await asyncio.sleep(0.01)


async def end_of_lock(queue: Queue) -> datetime:
    """Return when the lock of the only message ends, as the server knows it."""
    [locked_until] = [message.locked_until async for message in queue.browse()]
    assert locked_until is not None
    return locked_until


async def end_of_renewed_lock(queue: Queue, previous: datetime) -> datetime:
    """Return when the lock of the only message ends, once that differs from before."""
    while True:
        locked_until = await end_of_lock(queue)
        if locked_until != previous:
            return locked_until
        await asyncio.sleep(0.05)


@pytest.mark.behaviour("S2.4", "S2.17")
async def test_messages_are_processed_and_completed(any_client: Client, any_queue: Queue) -> None:
    worker, seen, now, most = Worker(any_client), list[int](), 0, 0

    @worker.on(any_queue.name, max_workers=3)
    async def handle(number: int) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.001)
        now -= 1
        seen.append(number)

    await any_queue.send_batch([*range(100)])
    async with running(worker):
        report = await ended(any_queue, 100, worker)
    assert (sorted(seen), most, report.completed) == ([*range(100)], 3, 100)
    counts = (await any_queue.status()).counts
    assert (counts.available, counts.locked) == (0, 0)


@pytest.mark.behaviour("S2.31")
async def test_one_worker_reads_several_queues(client: Client) -> None:
    first, second, seen = await new_queue(client), await new_queue(client), set[str]()
    worker = Worker(client)

    @worker.on(first.name, second.name)
    async def handle(body: str) -> None:
        seen.add(body)

    await first.send("first")
    await second.send("second")
    async with running(worker):
        await ended(first, 2, worker)
    assert seen == {"first", "second"}


@pytest.mark.behaviour("S2.5", "S2.8")
@pytest.mark.parametrize(
    ("policy", "retry", "counts"),
    [
        (AckPolicy.ACK_FIRST, None, {"completed": 1}),
        (AckPolicy.ACK, None, {"completed": 1}),
        (AckPolicy.REJECT_ON_ERROR, None, {"dead_lettered": 1}),
        (AckPolicy.NACK_ON_ERROR, NoRetry(), {"dead_lettered": 1}),
        (AckPolicy.NACK_ON_ERROR, ConstantRetry(3600), {"abandoned": 1}),
        (AckPolicy.NACK_ON_ERROR, {OSError: NoRetry(), Exception: ConstantRetry(3600)}, {"abandoned": 1}),
        (AckPolicy.NACK_ON_ERROR, {ValueError: NoRetry(), Exception: ConstantRetry(3600)}, {"dead_lettered": 1}),
        (AckPolicy.MANUAL, None, {"in_doubt": 1}),
    ],
)
async def test_what_follows_an_exception_is_the_policy(
    client: Client, queue: Queue, policy: AckPolicy, retry: Any, counts: dict[str, int]
) -> None:
    worker = Worker(client)

    @worker.on(queue.name, ack_policy=policy, retry=retry)
    async def handle(body: str) -> None:
        raise ValueError("no such street")

    await queue.send("work")
    async with running(worker):
        report = await ended(queue, 1, worker)
    assert {name: getattr(report, name) for name in counts} == counts
    assert report.failed == 1
    if report.dead_lettered:
        [dead] = await queue.receive(source="dead_letter")
        assert (dead.message.dead_letter_reason, dead.message.dead_letter_description) == (
            "ValueError",
            "no such street",
        )


@pytest.mark.behaviour("S2.5")
async def test_what_a_handler_settles_itself_stays_so(client: Client, queue: Queue) -> None:
    worker = Worker(client)

    @worker.on(queue.name, ack_policy=AckPolicy.REJECT_ON_ERROR)
    async def handle(context: ReceiveContext[Any]) -> None:
        await context.defer()
        raise ValueError

    await queue.send("work")
    async with running(worker):
        await ended(queue, 1, worker)
    assert (await queue.status()).counts.deferred == 1


@pytest.mark.behaviour("S2.7", "S2.9")
async def test_a_failed_message_is_tried_again(any_client: Client, any_queue: Queue) -> None:
    worker, failures = Worker(any_client), list[int]()

    @worker.on(any_queue.name, retry=ConstantRetry(0, max_attempts=3))
    async def handle(message: Message[str]) -> None:
        failures.append(message.failure_count)
        raise OSError

    await any_queue.send("work")
    async with running(worker):
        report = await ended(any_queue, 3, worker)
    assert (failures, report.abandoned, report.dead_lettered) == ([0, 1, 2], 2, 1)


@pytest.mark.behaviour("S2.3", "S2.27")
async def test_a_message_delivered_too_often_is_not_processed(client: Client, queue: Queue) -> None:
    worker, seen = Worker(client), list[str]()

    @worker.on(queue.name, max_deliveries=1)
    async def handle(body: str) -> None:
        seen.append(body)

    await queue.send("poison")
    [received] = await queue.receive()
    await received.abandon(count=False)
    await queue.send("delivered for the first time")
    async with running(worker):
        report = await ended(queue, 2, worker)
    assert (seen, report.dead_lettered, report.completed) == (["delivered for the first time"], 1, 1)


async def test_a_body_of_another_type_is_set_aside(client: Client, queue: Queue) -> None:
    @dataclass
    class Order:
        number: int

    worker, seen = Worker(client), list[Order]()

    async def handle(order: Order) -> None:
        seen.append(order)

    handle.__annotations__["order"] = Order
    worker.on(queue.name)(handle)
    await queue.send_batch([{"number": 1}, {"number": "one"}])
    async with running(worker):
        await ended(queue, 2, worker)
    assert seen == [Order(1)]
    [dead] = await queue.receive(source="dead_letter")
    assert dead.message.dead_letter_reason == "invalid_body"


async def test_a_handler_of_bytes_gets_those_of_a_text_and_no_other_body(client: Client, queue: Queue) -> None:
    worker, seen = Worker(client), list[bytes]()

    @worker.on(queue.name)
    async def handle(content: bytes) -> None:
        seen.append(content)

    await queue.send(b"\x00\xff")
    await queue.send(b"text", content_type="text/plain")
    await queue.send({"no": "bytes"})
    async with running(worker):
        await ended(queue, 3, worker)
    assert seen == [b"\x00\xff", b"text"]
    [dead] = await queue.receive(source="dead_letter")
    assert (dead.message.body, dead.message.dead_letter_reason) == ({"no": "bytes"}, "invalid_body")


async def test_returned_messages_are_sent_with_the_completion(any_client: Client, any_queue: Queue) -> None:
    worker, results = Worker(any_client), await new_queue(any_client)

    @worker.on(any_queue.name)
    def handle(number: int) -> list[NewMessage]:
        return [NewMessage(number + 1, queue=results.name), NewMessage(number + 2, queue=results.name)]

    await any_queue.send(1)
    async with running(worker):
        await ended(any_queue, 1, worker)
    assert [one.message.body for one in await results.receive(3)] == [2, 3]


@pytest.mark.parametrize("policy", [AckPolicy.ACK_FIRST, AckPolicy.MANUAL])
async def test_messages_that_no_completion_can_carry_are_a_failure(
    client: Client, queue: Queue, policy: AckPolicy, caplog: pytest.LogCaptureFixture
) -> None:
    worker, results = Worker(client), await new_queue(client)

    @worker.on(queue.name, ack_policy=policy)
    async def handle(context: ReceiveContext[str]) -> NewMessage:
        if context.is_active:
            await context.complete()
        return NewMessage("done", queue=results.name)

    await queue.send("work")
    async with running(worker):
        report = await ended(queue, 1, worker)
    assert (report.completed, report.failed) == (1, 1)
    assert "ResultsNotStored" in caplog.text


async def test_a_plain_function_runs_in_a_thread(client: Client, queue: Queue) -> None:
    worker, threads = Worker(client), list[threading.Thread]()

    @worker.on(queue.name)
    def handle(body: str) -> None:
        threads.append(threading.current_thread())

    await queue.send("work")
    async with running(worker):
        await ended(queue, 1, worker)
    assert threads != [threading.main_thread()]


async def test_messages_of_a_group_are_processed_in_order(client: Client, queue: Queue) -> None:
    worker, seen = Worker(client), list[int]()

    @worker.on(queue.name, max_workers=10)
    async def handle(number: int) -> None:
        await asyncio.sleep(0.001 * (10 - number))
        seen.append(number)

    await queue.send_batch([NewMessage(number, group_id="a") for number in range(10)])
    async with running(worker):
        await ended(queue, 10, worker)
    assert seen == [*range(10)]


async def test_what_is_sent_while_processing_carries_the_trace(client: Client, queue: Queue) -> None:
    worker, results = Worker(client), await new_queue(client)
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-"

    @worker.on(queue.name)
    async def handle(body: str) -> None:
        await results.send(body)

    await client.api.send_message(queue.name, requests.SendMessage("work"), traceparent=f"{trace}00f067aa0ba902b7-01")
    async with running(worker):
        await ended(queue, 1, worker)
    [result] = await results.receive()
    assert result.message.traceparent is not None
    assert result.message.traceparent.startswith(trace)


# ---- what cannot be sent ---------------------------------------------------------------------------------------------


async def test_an_error_whose_text_is_not_unicode_is_kept_with_its_message(
    client: Client, queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    """The names of files on Linux are bytes, and the texts of errors show them with parts that no JSON holds."""
    caplog.set_level(logging.CRITICAL, "peeklock.worker")  # a worker of xdist cannot report such a log line
    worker = Worker(client)

    @worker.on(queue.name, ack_policy=AckPolicy.REJECT_ON_ERROR)
    async def handle(body: str) -> None:
        raise FileNotFoundError("no file caf\udce9.txt")

    await queue.send("work")
    async with running(worker):
        await ended(queue, 1, worker)
    [dead] = await queue.receive(source="dead_letter")
    assert dead.message.dead_letter_description == "no file caf\\udce9.txt"


async def test_a_settlement_that_is_no_json_is_an_error_of_its_handler_alone(client: Client, queue: Queue) -> None:
    worker = Worker(client)

    @worker.on(queue.name, retry=NoRetry())
    async def handle(context: ReceiveContext[int]) -> None:
        if context.message.body == 0:
            await context.abandon(properties={"stream": object()})

    await queue.send_batch([*range(20)])
    async with running(worker):
        report = await ended(queue, 20, worker)
    assert (report.completed, report.dead_lettered) == (19, 1)
    [dead] = await queue.receive(source="dead_letter")
    assert dead.message.dead_letter_reason == "NotSerializable"


async def test_a_returned_message_that_is_no_json_is_an_error_of_its_handler(client: Client, queue: Queue) -> None:
    worker = Worker(client)

    @worker.on(queue.name, retry=NoRetry())
    async def handle(body: str) -> NewMessage:
        return NewMessage(object(), queue="results")

    await queue.send("work")
    async with running(worker):
        report = await ended(queue, 1, worker)
    assert report.dead_lettered == 1


@pytest.mark.parametrize("reason", ["x" * 1000, "bad address"])
async def test_a_refused_settlement_of_a_handler_is_not_a_lost_lock(client: Client, queue: Queue, reason: str) -> None:
    worker = Worker(client)

    @worker.on(queue.name)
    async def handle(context: ReceiveContext[str]) -> None:
        await context.dead_letter(reason)

    await queue.send("work")
    async with running(worker):
        report = await ended(queue, 1, worker)
    counts = (report.dead_lettered, report.refused, report.failed, report.lock_lost)
    assert counts == ((1, 0, 0, 0) if reason == "bad address" else (0, 1, 1, 0))


# ---- locks -----------------------------------------------------------------------------------------------------------


async def test_locks_are_renewed_while_a_handler_runs(client: Client, queue: Queue) -> None:
    worker, release, tokens = Worker(client), asyncio.Event(), list[str]()

    @worker.on(queue.name, lock_seconds=4)
    async def handle(context: ReceiveContext[str]) -> None:
        tokens.append(context.lock_token)
        await release.wait()

    await queue.send("slow")
    async with running(worker):
        first = await end_of_lock(queue)
        renewed = await end_of_renewed_lock(queue, first)
        release.set()
        report = await ended(queue, 1, worker)
    assert renewed > first
    assert (report.completed, len(tokens), report.lock_lost) == (1, 1, 0)


@pytest.mark.behaviour("S3.34")
async def test_a_handler_whose_lock_is_lost_is_cancelled(client: Client, queue: Queue) -> None:
    worker, started, cancelled = Worker(client), asyncio.Event(), asyncio.Event()

    @worker.on(queue.name, lock_seconds=1)
    async def handle(body: str) -> None:
        started.set()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    await queue.send("slow")
    async with running(worker):
        await started.wait()
        await client.api.purge_queue(queue.name, requests.PurgeQueue(states=["locked"]))
        await cancelled.wait()
        report = await ended(queue, 1, worker)
    assert (report.lock_lost, report.completed, report.failed) == (1, 0, 0)


@pytest.mark.behaviour("S2.17", "S2.31")
async def test_the_queues_of_a_declaration_share_their_handlers(client: Client, queue: Queue) -> None:
    other = await new_queue(client)
    worker, running_now, most, seen = Worker(client), 0, 0, set[str]()

    @worker.on(queue.name, other.name, max_workers=3)
    async def handle(body: str) -> None:
        nonlocal running_now, most
        running_now += 1
        most = max(most, running_now)
        seen.add(body)
        await asyncio.sleep(0.01)
        running_now -= 1

    await queue.send_batch(["one"] * 20)
    await other.send_batch(["other"] * 20)
    async with running(worker):
        report = await ended(queue, 40, worker)
    assert (most, report.completed, seen) == (3, 40, {"one", "other"})


@pytest.mark.behaviour("S2.5", "S2.7", "S2.8")
@pytest.mark.parametrize("retry", [NoRetry(), {ValueError: ConstantRetry(0), Exception: NoRetry()}])
async def test_an_abandon_of_the_handler_asks_the_retry_strategy(client: Client, queue: Queue, retry: Any) -> None:
    worker = Worker(client)

    @worker.on(queue.name, retry=retry)
    async def handle(context: ReceiveContext[Any]) -> None:
        await context.abandon(reason="too_busy", properties={"tried": True})

    await queue.send(1)
    async with running(worker):
        report = await ended(queue, 1, worker)
    assert (report.dead_lettered, report.abandoned) == (1, 0)
    [dead] = await queue.receive(source="dead_letter")
    assert (dead.message.dead_letter_reason, dead.message.properties) == ("too_busy", {"tried": True})


@pytest.mark.behaviour("S2.7")
@pytest.mark.parametrize("abandon", [{}, {"delay_seconds": 60.0}])
async def test_a_delay_of_the_handler_goes_before_that_of_the_strategy(
    client: Client, queue: Queue, abandon: dict[str, Any]
) -> None:
    worker = Worker(client)

    @worker.on(queue.name, retry=ConstantRetry(3600))
    async def handle(context: ReceiveContext[Any]) -> None:
        await context.abandon(**abandon)

    await queue.send(1)
    async with running(worker):
        await ended(queue, 1, worker)
    [message] = [message async for message in queue.browse()]
    assert message.state == "scheduled"
    waits = (message.available_at - message.enqueued_at).total_seconds()
    assert (waits > 1800) is (not abandon)


@pytest.mark.behaviour("S2.8")
async def test_a_block_that_raises_in_a_handler_is_retried_by_its_exception(client: Client, queue: Queue) -> None:
    worker = Worker(client)

    @worker.on(queue.name, retry={ValueError: NoRetry(), Exception: ConstantRetry(3600)})
    async def handle(context: ReceiveContext[Any]) -> None:
        async with context:
            raise ValueError

    await queue.send(1)
    async with running(worker):
        report = await ended(queue, 1, worker)
    assert report.dead_lettered == 1


@pytest.mark.parametrize(("attempts", "warnings"), [(15, 1), (10, 0), (None, 0)])
async def test_a_strategy_with_more_attempts_than_the_queue_allows_is_named_at_the_start(
    client: Client, queue: Queue, caplog: pytest.LogCaptureFixture, attempts: int | None, warnings: int
) -> None:
    worker = Worker(client)

    @worker.on(queue.name, retry={OSError: NoRetry(), Exception: ConstantRetry(1, max_attempts=attempts)})
    async def handle(body: int) -> None: ...

    async with running(worker):
        found = [record.getMessage() for record in caplog.records if "max_delivery_count" in record.getMessage()]
    assert len(found) == warnings
    assert all("failure number 10" in text and "15 attempts" in text for text in found)


# ---- stop ------------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("S2.21", "S2.22")
async def test_a_stop_finishes_what_runs_and_gives_back_the_rest(any_client: Client, any_queue: Queue) -> None:
    worker, started, release = Worker(any_client), asyncio.Event(), asyncio.Event()

    @worker.on(any_queue.name, max_workers=2, fetch_batch_size=1000)
    async def handle(body: int) -> None:
        started.set()
        await release.wait()

    await any_queue.send_batch([*range(1000)])
    await worker.start()
    await started.wait()
    stopping = asyncio.ensure_future(worker.stop())
    await asyncio.sleep(0)
    release.set()
    report = await stopping
    assert (report.received, report.completed, report.handed_back) == (1000, 2, 998)
    counts = (await any_queue.status()).counts
    assert (counts.available, counts.locked) == (998, 0)
    received = await any_queue.receive(1000)
    assert {(one.message.delivery_count, one.message.failure_count) for one in received} == {(1, 0)}


async def test_a_stop_cancels_what_takes_too_long(client: Client, queue: Queue) -> None:
    worker, started = Worker(client), asyncio.Event()

    @worker.on(queue.name, max_workers=2)
    async def handle(body: int) -> None:
        started.set()
        await asyncio.sleep(3600)

    await queue.send_batch([*range(30)])
    await worker.start()
    await started.wait()
    report = await worker.stop(0)
    assert (report.handed_back, report.completed) == (30, 0)
    received = await queue.receive(30)
    assert [one.message.failure_count for one in received] == [0] * 30
    # The deliveries of the two whose handlers had begun count.
    assert sorted(one.message.delivery_count for one in received) == [1] * 28 + [2] * 2


@pytest.mark.behaviour("S2.21", "S2.27", "S2.29")
async def test_a_stop_uses_up_no_delivery_of_messages_that_wait(client: Client, queue: Queue) -> None:
    processed: list[int] = []

    async def run_until(done: int) -> None:
        worker, is_done = Worker(client), asyncio.Event()

        @worker.on(queue.name, max_workers=1, fetch_batch_size=10, max_deliveries=1)
        async def handle(body: int) -> None:
            processed.append(body)
            if len(processed) == done:
                is_done.set()

        await worker.start()
        await is_done.wait()
        await worker.stop()

    await queue.send_batch([*range(10)])
    for done in (1, 5, 10):
        await run_until(max(done, len(processed) + 1))
    assert processed == [*range(10)]
    assert (await queue.status()).counts.dead_lettered == 0


async def test_a_thread_that_does_not_return_does_not_hold_up_a_stop(client: Client, queue: Queue) -> None:
    worker, started, release, returned = Worker(client), asyncio.Event(), threading.Event(), list[str]()
    loop = asyncio.get_running_loop()

    @worker.on(queue.name)
    def handle(body: str) -> None:
        loop.call_soon_threadsafe(started.set)
        release.wait(SECONDS)
        returned.append(body)

    await queue.send("slow")
    await worker.start()
    try:
        await started.wait()
        report = await worker.stop(0)
        assert (report.handed_back, report.completed, returned) == (1, 0, [])
    finally:
        release.set()


async def test_a_worker_that_waits_stops_at_once_and_loses_nothing(any_client: Client, any_queue: Queue) -> None:
    worker = Worker(any_client)

    @worker.on(any_queue.name, wait_seconds=50)
    async def handle(body: str) -> None: ...

    await worker.start()
    await asyncio.sleep(0.1)
    async with asyncio.timeout(10):
        await worker.stop()
    await any_queue.send("later")
    assert len(await any_queue.receive()) == 1


async def test_a_worker_waits_for_a_queue_that_does_not_exist_yet(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "peeklock.worker")
    worker, queue, handled = Worker(client), client.queue(f"queue-{uuid4().hex[:12]}"), asyncio.Event()

    @worker.on(queue.name)
    async def handle(body: str) -> None:
        handled.set()

    async with worker.lifespan():
        assert await queue.create()
        await queue.send("first")
        await handled.wait()
    told = [record.getMessage() for record in caplog.records if queue.name in record.getMessage()]
    assert told == [
        f"queue {queue.name} does not exist: the worker waits until it is created",
        f"queue {queue.name} exists now: the worker receives its messages",
    ]


async def test_a_worker_starts_again_after_its_stop_and_counts_on(client: Client, queue: Queue) -> None:
    worker = Worker(client)

    @worker.on(queue.name)
    async def handle(body: int) -> None: ...

    for number in (1, 2):
        await queue.send(number)
        await worker.start()
        await ended(queue, number, worker)
        reports = await asyncio.gather(worker.stop(), worker.stop())
        assert [report.completed for report in (*reports, worker.report)] == [number] * 3
        assert not worker.is_running


async def test_a_stop_during_the_start_leaves_nothing_running(client: Client, queue: Queue) -> None:
    worker = Worker(client)

    @worker.on(queue.name)
    async def handle(body: int) -> None: ...

    running = asyncio.ensure_future(worker.run())
    await asyncio.sleep(0)
    await worker.stop()
    await running
    assert not worker.is_running
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("peeklock")]


def test_a_worker_runs_in_one_event_loop_after_another(server_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PEEKLOCK_URL", server_url)
    worker = Worker()

    @worker.on("numbers")
    async def handle(body: int) -> None: ...

    async def run() -> None:
        async with Client() as client:
            await client.queue("numbers").create()
        running = asyncio.ensure_future(worker.run())
        await asyncio.sleep(0.1)
        await asyncio.gather(worker.stop(), worker.stop())
        await running

    for _ in range(2):
        asyncio.run(run())


async def test_a_worker_runs_while_an_application_does(client: Client, queue: Queue) -> None:
    worker = Worker(client)

    @worker.on(queue.name)
    async def handle(body: str) -> None: ...

    await queue.send("work")
    application = FastAPI(lifespan=worker.lifespan)
    async with application.router.lifespan_context(application):
        assert worker.is_running
        report = await ended(queue, 1, worker)
    assert (report.completed, worker.is_running) == (1, False)
