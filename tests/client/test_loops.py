"""The loops of a worker, in virtual time: how much is fetched and when, and which requests carry settlements."""

from __future__ import annotations

import asyncio
import itertools
import math
from typing import Any

import httpx
import msgspec
import pytest
from peeklock_client import Client, NewMessage, ReceiveContext, RetryLimits, Worker
from peeklock_client.worker.slots import HandlerSlots

from tests.client.virtual_broker import LATENCY, LOCK_SECONDS, Broker, client_of, message, refused, run_worker, work
from tests.client.virtual_loop import run_virtually


@pytest.mark.behaviour("S2.15")
@pytest.mark.parametrize(("batch", "overfetch"), [(10, 1), (10, 1.5), (10, 3), (1, 1), (3, 2)])
def test_no_more_is_fetched_than_there_is_room_for(batch: int, overfetch: float) -> None:
    broker = Broker(stored=500)
    report = work(broker, 1, 20, max_workers=2, fetch_batch_size=batch, overfetch_factor=overfetch)
    asked = [body["max_messages"] for _, body in broker.of_kind("receive")]
    assert max(asked) == batch
    # What was received and not processed was waiting, when the worker stopped.
    assert report.handed_back <= batch * overfetch


@pytest.mark.behaviour("S2.15")
def test_messages_are_fetched_as_soon_as_there_is_room_for_half_a_batch() -> None:
    broker = Broker(stored=500)
    work(broker, 1, 20, max_workers=1, fetch_batch_size=10, overfetch_factor=1)
    assert [body["max_messages"] for _, body in broker.of_kind("receive")] == [10, 5, 5, 5, 5]


@pytest.mark.behaviour("S2.15")
def test_a_fetch_asks_for_a_batch_or_for_what_may_still_wait() -> None:
    broker = Broker(stored=500)
    work(broker, 3600, 20, max_workers=1, fetch_batch_size=10, overfetch_factor=1.5)
    # One message of the first ten is processed. 9 wait, and 10 * 1.5 may.
    assert [body["max_messages"] for _, body in broker.of_kind("receive")] == [10, 6]


@pytest.mark.behaviour("S2.16")
def test_after_a_full_fetch_the_next_one_is_sooner() -> None:
    broker = Broker(stored=35)
    work(broker, 0, 20, fetch_batch_size=10, min_fetch_interval=0.2, max_fetch_interval=3, wait_seconds=0)
    times = [at for at, _ in broker.of_kind("receive")]
    pauses = [round(after - before - LATENCY, 3) for before, after in itertools.pairwise(times)]
    # Three full answers, the first at the start, then one with 5 messages, and empty ones.
    assert pauses[:5] == [0.2, 0.2, 0.2, 3, 3]


@pytest.mark.behaviour("S2.16")
def test_the_interval_begins_when_a_receive_has_waited_for_messages() -> None:
    broker = Broker(stored=0)
    work(broker, 0, 60, wait_seconds=7, max_fetch_interval=3)
    times = [at for at, _ in broker.of_kind("receive")][1:]
    assert {round(after - before - LATENCY, 3) for before, after in itertools.pairwise(times)} == {10}


@pytest.mark.behaviour("S2.16")
def test_a_receive_that_fails_is_repeated_no_sooner_than_any_other() -> None:
    broker = Broker(stored=0)

    async def scenario() -> None:
        worker = Worker(client_of(broker.answer, attempts=1))
        worker.on("orders", min_fetch_interval=2, max_fetch_interval=5, wait_seconds=0)(print_body)
        await worker.start()
        broker.failing.add("receive")
        await asyncio.sleep(60)
        await worker.stop()

    run_virtually(scenario())
    times = [at for at, _ in broker.of_kind("receive")]
    assert len(times) > 3
    assert all(after - before >= 5 for before, after in itertools.pairwise(times))


async def print_body(body: int) -> None:
    print(body)


@pytest.mark.parametrize(
    ("options", "need"),
    [
        ({"max_workers": 0}, "max_workers >= 1"),
        ({"fetch_batch_size": 1001}, "fetch_batch_size from 1 to 1000"),
        ({"overfetch_factor": math.inf}, "a finite overfetch_factor >= 1"),
        ({"overfetch_factor": math.nan}, "a finite overfetch_factor >= 1"),
        ({"max_bytes": 0}, "max_bytes >= 1"),
        ({"wait_seconds": math.inf}, "a finite wait_seconds >= 0"),
        ({"flush_seconds": math.nan}, "flush_seconds >= 0"),
        ({"min_fetch_interval": -1}, "min_fetch_interval >= 0"),
        ({"min_fetch_interval": 1}, "max_fetch_interval >= min_fetch_interval"),
        ({"max_fetch_interval": math.nan}, "max_fetch_interval >= min_fetch_interval"),
        ({"lock_seconds": math.nan}, "a finite lock_seconds > 0"),
        ({"max_deliveries": 0}, "max_deliveries >= 1"),
        ({"receiver_id": ""}, "a receiver_id that is not empty"),
    ],
    ids=str,
)
def test_an_option_that_no_worker_can_obey_is_refused(options: dict[str, Any], need: str) -> None:
    with pytest.raises(ValueError, match=f"^A worker needs {need}.$"):
        Worker().on("orders", **options)


@pytest.mark.behaviour("S2.17")
def test_no_more_handlers_run_than_may() -> None:
    most = list[int]()
    work(Broker(stored=100), 0.1, 1, most.append, max_workers=7)
    assert max(most) == 7


@pytest.mark.behaviour("S2.17")
def test_handlers_do_not_run_ahead_of_a_server_that_stores_their_results_slowly() -> None:
    broker = Broker(stored=100, slow=2)
    report = work(broker, 0, 60, None, NewMessage("done", queue="results"), max_workers=7)
    assert (broker.most_commits, report.completed) == (7, 100)


def test_the_results_of_a_group_are_stored_in_the_order_of_its_messages() -> None:
    broker = Broker(stored=20, fields={"group_id": "one"})
    report = work(broker, 0, 10, None, NewMessage("done", queue="results"), max_workers=7)
    assert (broker.most_commits, report.completed) == (1, 20)


@pytest.mark.parametrize(("max_workers", "sequential"), [(1, True), (2, True), (3, True), (10, True), (10, False)])
def test_messages_of_a_group_are_processed_in_order_unless_that_does_not_matter(
    max_workers: int, sequential: bool
) -> None:
    broker, seen = Broker(stored=60, groups="aabaababc"), list[int]()

    async def scenario() -> Any:
        http = httpx.AsyncClient(transport=httpx.MockTransport(broker.answer))
        worker = Worker(Client("http://peeklock.test", http=http))

        @worker.on("orders", max_workers=max_workers, fetch_batch_size=7, sequential_groups=sequential)
        async def handle(body: int) -> None:
            await asyncio.sleep(1 / (body % 3 + 1))
            seen.append(body)

        await worker.start()
        await asyncio.sleep(100)
        return await worker.stop()

    assert run_virtually(scenario()).completed == 60
    by_group = [[number for number in seen if broker.groups[number % 9] == group] for group in "abc"]
    assert all(numbers == sorted(numbers) for numbers in by_group) == sequential


@pytest.mark.behaviour("S2.18")
def test_under_load_settlements_go_with_the_next_receive() -> None:
    broker = Broker(stored=1000)
    report = work(broker, 0.0, 5, max_workers=50, fetch_batch_size=50)
    assert report.completed == 1000
    assert len(broker.requests) < 1000 / 20


def test_a_request_carries_no_more_bytes_of_settlements_than_a_server_takes() -> None:
    broker = Broker(stored=20)

    async def scenario() -> Any:
        http = httpx.AsyncClient(transport=httpx.MockTransport(broker.answer))
        worker = Worker(Client("http://peeklock.test", http=http))

        @worker.on("orders", max_workers=20)
        async def handle(context: ReceiveContext[int]) -> None:
            await context.complete(reply="x" * (1 << 20))

        await worker.start()
        await asyncio.sleep(1)
        return await worker.stop()

    assert run_virtually(scenario()).completed == 20
    assert max(len(body.get("settlements", [])) for _, _, body in broker.requests) == 3


@pytest.mark.behaviour("S2.18")
def test_a_receive_that_carries_settlements_does_not_wait_for_messages() -> None:
    broker = Broker(stored=60)
    work(broker, 0.5, 20, max_workers=10, fetch_batch_size=20, wait_seconds=7)
    waits = [(bool(body.get("settlements")), body["wait_seconds"]) for _, body in broker.of_kind("receive")[1:]]
    assert set(waits) == {(True, 0), (False, 7)}


def test_no_request_carries_more_settlements_or_renewals_than_a_server_takes() -> None:
    broker = Broker(stored=1500, slow=0)
    report = work(broker, LOCK_SECONDS, 2 * LOCK_SECONDS, max_workers=1500, fetch_batch_size=1000)
    assert (report.completed, report.lock_lost) == (1500, 0)
    carried = [(kind, len(body.get("settlements", []))) for _, kind, body in broker.requests]
    assert max(number for _, number in carried) == 1000


def test_a_worker_that_waits_for_messages_settles_at_once() -> None:
    broker = Broker(stored=1)
    work(broker, 1, 3)
    [(at, body)] = broker.of_kind("settle")
    assert [one["action"] for one in body["settlements"]] == ["complete"]
    assert 1 < at < 1.1


def test_locks_are_renewed_in_one_request_before_they_end() -> None:
    broker = Broker(stored=10)
    report = work(broker, 4 * LOCK_SECONDS, 9 * LOCK_SECONDS, max_workers=5, fetch_batch_size=10)
    renewals = [(at, body) for at, body in broker.of_kind("settle") if body["settlements"][0]["action"] == "renew"]
    assert (report.lock_lost, report.completed, broker.too_late) == (0, 10, [])
    assert all(len(body["settlements"]) in (5, 10) for _, body in renewals)
    pauses = [after - before for (before, _), (after, _) in itertools.pairwise(renewals)]
    assert all(LOCK_SECONDS / 4 < pause < LOCK_SECONDS for pause in pauses)


def test_each_lock_is_renewed_in_time_when_messages_come_one_after_the_other(caplog: pytest.LogCaptureFixture) -> None:
    broker = Broker(stored=0)

    async def scenario() -> Any:
        http = httpx.AsyncClient(transport=httpx.MockTransport(broker.answer))
        worker = Worker(Client("http://peeklock.test", http=http, retries=RetryLimits(attempts=2)))

        @worker.on("orders", wait_seconds=0.5, max_workers=100)
        async def handle(body: int) -> None:
            await asyncio.sleep(4 * LOCK_SECONDS)

        await worker.start()
        for pause in (LOCK_SECONDS / 6, 0.6) * 10:
            await asyncio.sleep(pause)
            broker.stored += 1
        await asyncio.sleep(5 * LOCK_SECONDS)
        return await worker.stop()

    report = run_virtually(scenario())
    assert (report.completed, report.lock_lost, broker.too_late) == (20, 0, [])
    assert "restarts in" not in caplog.text, "no loop has failed"


@pytest.mark.parametrize(("options", "seconds"), [({"lock_seconds": 60}, {60}), ({}, {None})])
def test_a_renewal_asks_for_as_long_as_the_first_lock(options: dict[str, Any], seconds: set[float | None]) -> None:
    broker = Broker(stored=1)
    work(broker, 2 * LOCK_SECONDS, 2 * LOCK_SECONDS, **options)
    asked = [one for _, body in broker.of_kind("settle") for one in body["settlements"] if one["action"] == "renew"]
    assert {one.get("lock_seconds") for one in asked} == seconds
    assert {body.get("lock_seconds") for _, body in broker.of_kind("receive")} == seconds


@pytest.mark.parametrize(("granted", "most"), [(2, 100), (0.001, 2000)])
def test_locks_that_are_renewed_for_less_time_are_renewed_no_more_often_than_needed(granted: float, most: int) -> None:
    broker = Broker(stored=1, renewed_seconds=granted)
    work(broker, 100, 100)
    assert len(broker.of_kind("settle")) <= most


@pytest.mark.parametrize("fault", ["failing", "silent"])
def test_a_handler_is_cancelled_when_its_lock_ends_while_no_server_answers(fault: str) -> None:
    broker, ended = Broker(stored=1), list[tuple[float, str]]()

    async def scenario() -> Any:
        http = httpx.AsyncClient(transport=httpx.MockTransport(broker.answer))
        worker = Worker(Client("http://peeklock.test", http=http, retries=RetryLimits(attempts=2)))

        @worker.on("orders")
        async def handle(context: ReceiveContext[int]) -> None:
            try:
                await asyncio.sleep(3600)
            finally:
                ended.append((asyncio.get_running_loop().time(), type(context.error).__name__))

        await worker.start()
        await asyncio.sleep(LOCK_SECONDS)
        assert not ended, "the lock was renewed"
        getattr(broker, fault).update({"settle", "receive"})
        await asyncio.sleep(2 * LOCK_SECONDS)
        return worker.report

    report = run_virtually(scenario())
    [(at, error)] = ended
    last_renewal = max(at for at, _ in broker.of_kind("settle") if at < LOCK_SECONDS)
    assert last_renewal + LOCK_SECONDS <= at < last_renewal + LOCK_SECONDS + 1
    assert (error, report.lock_lost, report.failed) == ("LockLost", 1, 0)


def test_a_renewal_counts_from_when_it_was_asked_for() -> None:
    broker = Broker(stored=1)

    async def scenario() -> float:
        http = httpx.AsyncClient(transport=httpx.MockTransport(broker.answer))
        async with Client("http://peeklock.test", http=http) as client:
            [context] = await client.queue("orders").receive()
            before = asyncio.get_running_loop().time()
            broker.slow = 10.0
            await context.renew()
            return before + LOCK_SECONDS - asyncio.get_running_loop().time() - context.lock_seconds

    assert abs(run_virtually(scenario())) < 0.001


def test_what_a_failed_receive_carried_is_settled_by_the_next() -> None:
    broker = Broker(stored=2, failing={"receive"})

    async def scenario() -> None:
        http = httpx.AsyncClient(transport=httpx.MockTransport(broker.answer))
        worker = Worker(Client("http://peeklock.test", http=http, retries=RetryLimits(attempts=1)))

        @worker.on("orders")
        async def handle(body: int) -> None: ...

        broker.failing.clear()
        await worker.start()
        broker.failing.add("receive")
        await asyncio.sleep(60)
        assert (await worker.stop()).completed == 2

    run_virtually(scenario())


def test_a_stop_gives_back_uncounted_what_a_lost_answer_carried() -> None:
    broker = Broker(stored=0, missed=[message(7)])
    report = work(broker, 0, 1)
    [(_, recovered), *_] = broker.of_kind("recover")
    assert recovered["count"] is False
    assert {body["receiver_id"] for _, body in broker.of_kind("receive")} == {recovered["receiver_id"]}
    given_back = [one for _, body in broker.of_kind("settle") for one in body["settlements"]]
    assert [(one["lock_token"], one["action"]) for one in given_back] == [("7.t", "release")]
    assert report.handed_back == 1


@pytest.mark.parametrize("kind", ["settle", "receive"])
def test_a_settlement_without_a_result_is_in_doubt(kind: str) -> None:
    broker = Broker(stored=30, forgets={kind})
    report = work(broker, 1, 60, max_workers=10, fetch_batch_size=10)
    assert report.in_doubt > 0
    assert report.completed + report.in_doubt == 30


def test_a_worker_outlives_answers_that_it_cannot_read() -> None:
    broker = Broker(stored=2)

    async def answer(request: httpx.Request) -> httpx.Response:
        response = await broker.answer(request)
        at = asyncio.get_running_loop().time()
        if 10 < at < 20 and b"lock_token" in response.content:
            return httpx.Response(200, json={"messages": [{**message(1), "lock_token": None}]})
        return httpx.Response(200, text="[") if 20 < at < 30 else response

    async def scenario() -> Any:
        http = httpx.AsyncClient(transport=httpx.MockTransport(answer))
        worker = Worker(Client("http://peeklock.test", http=http, retries=RetryLimits(attempts=1)))

        @worker.on("orders", wait_seconds=1)
        async def handle(body: int) -> None: ...

        await worker.start()
        for _ in range(6):
            await asyncio.sleep(10)
            broker.stored += 2
        await asyncio.sleep(40)
        return await worker.stop()

    assert run_virtually(scenario()).completed >= 8


def test_a_worker_tries_again_soon_after_an_error_however_long_an_earlier_one_lasted() -> None:
    broker = Broker(stored=0)

    async def scenario() -> None:
        http = httpx.AsyncClient(transport=httpx.MockTransport(broker.answer))
        worker = Worker(Client("http://peeklock.test", http=http, retries=RetryLimits(attempts=1)))

        @worker.on("orders", wait_seconds=1)
        async def handle(body: int) -> None: ...

        await worker.start()
        assert asyncio.get_running_loop().time() < 0.1, "a start does not wait for messages"
        for seconds in (600, 3):
            broker.failing = {"receive"}
            await asyncio.sleep(seconds)
            broker.failing = set()
            await asyncio.sleep(40)
        broker.failing = {"receive"}
        await asyncio.sleep(3)
        broker.failing, broker.stored = set(), 1
        await asyncio.sleep(5)
        assert broker.settled == [("1.t", "complete")]

    run_virtually(scenario())


def test_settlements_wait_longer_after_each_error_and_no_longer_after_a_success() -> None:
    broker, fails, times = Broker(stored=9), iter([True, True, True, False, True]), list[float]()

    async def answer(request: httpx.Request) -> httpx.Response:
        if not request.url.path.endswith("/settle"):
            return await broker.answer(request)
        times.append(asyncio.get_running_loop().time())
        if next(fails, False):
            return httpx.Response(422, json=refused("", 422, "invalid-request")["problem"])
        return await broker.answer(request)

    async def handle(body: int) -> None:
        await asyncio.sleep(1)

    report = run_worker(answer, handle, max_workers=1, wait_seconds=300)
    # Each message takes a second. After the errors of 1, 2 and 3 the next settlement waits for 0.5, 1 and 2 seconds, so 4 and
    # 5 share a request. It succeeds, so the error of 6 makes the settlement of 7 wait for 0.5 seconds, not for 4.
    assert [round(at) for at in times] == [1, 2, 3, 5, 6, 7, 8, 9]
    assert (report.completed, report.refused) == (5, 4)


def test_a_worker_outlives_a_server_that_is_away() -> None:
    broker = Broker(stored=0)

    async def scenario() -> int:
        http = httpx.AsyncClient(transport=httpx.MockTransport(broker.answer))
        worker = Worker(Client("http://peeklock.test", http=http, retries=RetryLimits(attempts=2)))

        @worker.on("orders", wait_seconds=1)
        async def handle(body: int) -> None: ...

        await worker.start()
        broker.failing = {"receive"}
        await asyncio.sleep(600)
        tries = len(broker.of_kind("receive"))
        broker.failing, broker.stored = set(), 5
        await asyncio.sleep(60)
        assert (await worker.stop()).completed == 5
        return tries

    assert run_virtually(scenario()) < 60


def test_what_a_stop_asks_for_counts_as_received_and_handed_back() -> None:
    broker = Broker(stored=0, missed=[message(1), message(2)])
    report = work(broker, 0, 1)
    assert (report.received, report.handed_back) == (2, 2)
    assert broker.settled == [("1.t", "release"), ("2.t", "release")]


@pytest.mark.behaviour("S2.21", "S2.22")
@pytest.mark.parametrize(("stored", "grace"), [(10_000, 60), (10_000, 0.25), (18, 60)])
def test_after_a_stop_nothing_is_received_or_begun_and_each_message_is_settled_once(stored: int, grace: float) -> None:
    """With few messages the stop cancels a receive that waits, and the server is slow to let it go."""
    broker, begun, stopping = Broker(stored, slow_to_cancel=2), list[bool](), asyncio.Event()
    seconds = 2.5

    async def scenario() -> Any:
        http = httpx.AsyncClient(transport=httpx.MockTransport(broker.answer))
        worker = Worker(Client("http://peeklock.test", http=http))

        @worker.on("orders", max_workers=4, fetch_batch_size=10)
        async def handle(body: int) -> None:
            begun.append(not stopping.is_set())
            await asyncio.sleep(1)

        await worker.start()
        await asyncio.sleep(seconds)
        stopping.set()
        report = await worker.stop(grace)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return report

    report = run_virtually(scenario())
    assert all(begun)
    assert max(at for at, _ in broker.of_kind("receive")) <= seconds
    assert report.received == len(broker.lock_ends) == report.completed + report.handed_back
    assert sorted(token for token, _ in broker.settled) == sorted(broker.lock_ends)
    completed = len(begun) if grace > 1 else len(begun) - 4
    assert [action for _, action in broker.settled].count("complete") == report.completed == completed


def test_a_handler_that_cannot_be_cancelled_does_not_hold_up_a_stop() -> None:
    broker = Broker(stored=1)

    async def scenario() -> None:
        http = httpx.AsyncClient(transport=httpx.MockTransport(broker.answer))
        worker, release = Worker(Client("http://peeklock.test", http=http)), asyncio.Event()

        @worker.on("orders")
        async def handle(body: int) -> None:
            while not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    continue

        await worker.start()
        await asyncio.sleep(1)
        report = await worker.stop(0)
        release.set()
        assert report.handed_back == 1
        assert asyncio.get_running_loop().time() < 10

    run_virtually(scenario())
    assert broker.settled == [("1.t", "abandon")]


def test_a_lock_that_comes_while_the_others_last_long_is_renewed() -> None:
    broker = Broker(stored=1, renewed_seconds=600)

    async def scenario() -> Any:
        worker = Worker(client_of(broker.answer))

        @worker.on("orders", wait_seconds=1)
        async def handle(context: ReceiveContext[int]) -> None:
            await context.renew()
            broker.renewed_seconds = LOCK_SECONDS
            await asyncio.sleep(100)

        await worker.start()
        await asyncio.sleep(20)
        broker.stored = 1
        await asyncio.sleep(120)
        return await worker.stop()

    report = run_virtually(scenario())
    assert (report.lock_lost, report.completed) == (0, 2)


def test_a_completing_message_whose_renewal_is_refused_is_not_renewed_again() -> None:
    broker, renewals = Broker(stored=1), list[float]()

    async def answer(request: httpx.Request) -> httpx.Response:
        settlements = msgspec.json.decode(request.content).get("settlements", [])
        if settlements and settlements[0]["action"] == "renew":
            renewals.append(asyncio.get_running_loop().time())
            return httpx.Response(
                200, json={"results": [refused(settlements[0]["lock_token"], 409, "already-settled")]}
            )
        if settlements:
            await asyncio.sleep(50)
        return await broker.answer(request)

    async def handle(body: int) -> None: ...

    assert run_worker(answer, handle).completed == 1
    assert len(renewals) == 1


@pytest.mark.parametrize("turns", [*range(8)])
def test_a_lock_that_is_lost_as_its_handler_begins_frees_the_worker(turns: int) -> None:
    """The refusal of its renewal comes some turns of the event loop after the handler before it has ended."""
    broker, ended = Broker(stored=2), list[asyncio.Event]()

    async def answer(request: httpx.Request) -> httpx.Response:
        settlements = msgspec.json.decode(request.content).get("settlements", [])
        if not any(one["action"] == "renew" for one in settlements):
            return await broker.answer(request)
        await ended[0].wait()
        for _ in range(turns):
            await asyncio.sleep(0)
        return httpx.Response(
            200, json={"results": [refused(one["lock_token"], 410, "lock-lost") for one in settlements]}
        )

    async def handle(body: int) -> None:
        if body == 1:
            ended.append(asyncio.Event())
            await asyncio.sleep(16)
            broker.stored = 3
            ended[0].set()

    report = run_worker(answer, handle, max_workers=1, wait_seconds=1)
    assert (report.received, report.completed + report.lock_lost, report.handed_back) == (5, 5, 0)


def test_the_queues_of_a_declaration_take_free_slots_in_turn() -> None:
    slots, started = HandlerSlots(0), list[str]()
    for name in ("a", "b", "c"):

        def start_waiting(name: str = name) -> None:
            if slots.has_free:
                slots.take()
                started.append(name)

        slots.offer_to(start_waiting)
    for _ in range(6):
        slots.release()
    assert started == [*"bcabca"]
