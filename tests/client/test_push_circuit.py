"""A target that fails gets no further messages but one at a time, until it works."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
from peeklock_client.push.answers import Complete, Fail
from peeklock_client.push.circuit import FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS, Circuit
from peeklock_client.push.delivery import PushCounts
from peeklock_client.push.options import PushOptions

from tests.client.push_network import (
    SECRETS,
    URL,
    Answer,
    PushedRequest,
    ScriptedNetwork,
    always,
    answered,
    delivery_over,
    push,
    settlements,
)
from tests.client.virtual_broker import Broker
from tests.client.virtual_loop import run_virtually

MANY = 10_000
ADDRESS = "93.184.215.14"


def down_until(seconds: float, status: int = 500) -> Answer:
    """Return a target that fails until a time."""

    async def answer(request: PushedRequest) -> bytes:
        return answered(status if request.at < seconds else 200)

    return answer


@pytest.mark.parametrize("status", [500, 404, 429, 503])
def test_a_circuit_opens_and_tries_one_message_after_pauses_that_double(status: int) -> None:
    broker, network = Broker(MANY), ScriptedNetwork(always(status))
    pushed = push(broker, network, until=40, concurrency=1, open_after=3)
    times = [request.at for request in network.requests]
    pauses = [later - earlier for earlier, later in pairwise(times[2:])]
    assert len(times) == 3 + 5  # after 1, 2, 4, 8 and 16 s
    assert pauses == pytest.approx([1, 2, 4, 8, 16], abs=0.2)
    assert (pushed.delivery.circuit.is_open, pushed.delivery.circuit.opened) == (True, 1)


def test_an_error_that_is_not_expected_opens_the_circuit_and_is_tried_after_pauses() -> None:
    async def answer(request: PushedRequest) -> bytes:
        raise ArithmeticError

    network = ScriptedNetwork(answer)
    pushed = push(Broker(MANY), network, until=40, concurrency=1, open_after=3)
    assert len(network.requests) == 3 + 5
    assert pushed.delivery.circuit.is_open


def test_messages_in_hand_are_returned_uncounted_when_the_circuit_opens() -> None:
    broker, network = Broker(MANY), ScriptedNetwork(always(500, seconds=0.1))
    pushed = push(broker, network, until=0.9, concurrency=20, open_after=5)
    actions = [one["action"] for one in settlements(broker)]
    assert (len(network.requests), actions.count("abandon")) == (20, 20)
    assert actions.count("release") == len(actions) - 20
    report = pushed.report
    assert report.received == report.abandoned + report.handed_back


def test_a_success_closes_the_circuit_and_messages_flow_again(caplog: pytest.LogCaptureFixture) -> None:
    broker, network = Broker(200), ScriptedNetwork(down_until(10))
    pushed = push(broker, network, until=60, concurrency=4)
    assert (pushed.delivery.circuit.is_open, pushed.delivery.circuit.opened) == (False, 1)
    counts = pushed.delivery.counts
    assert counts.completed + counts.failed == len(network.requests) == 200 - pushed.report.handed_back
    assert counts.completed > 150
    logged = [record.getMessage() for record in caplog.records if "circuit" in record.getMessage()]
    assert "is open after 5 failures in a row: in 1 s" in logged[0]
    assert "is closed again" in logged[-1]
    assert not any("key=1" in text for text in logged)  # the query of a URL may be a secret


def test_no_pause_is_longer_than_a_minute() -> None:
    network = ScriptedNetwork(always(500))
    push(Broker(MANY), network, until=600, concurrency=1)
    times = [request.at for request in network.requests]
    assert times[-1] - times[-2] == pytest.approx(MAX_PAUSE_SECONDS, abs=0.2)


def test_a_target_that_refuses_connections_counts_no_failure_of_any_message() -> None:
    broker, network = Broker(MANY), ScriptedNetwork(always(200), refusing={ADDRESS})
    pushed = push(broker, network, until=600, concurrency=1)
    assert {one["action"] for one in settlements(broker)} == {"release"}
    assert pushed.delivery.circuit.is_open
    assert (pushed.report.failed, pushed.report.received) == (0, pushed.report.handed_back)
    assert pushed.delivery.counts.failed > 5 + 6  # after 1, 2, 4, 8, 16, 32 s and each further minute


def test_a_message_that_the_target_fails_to_process_counts_a_failure_in_each_try() -> None:
    broker, network = Broker(MANY), ScriptedNetwork(always(500))
    push(broker, network, until=40, concurrency=1)
    failures = [one for one in settlements(broker) if one["action"] == "abandon" and one.get("count", True)]
    assert len(failures) == len(network.requests) == 5 + 5


@pytest.mark.parametrize("status", [200, 409, 410, 422])
def test_a_message_that_the_target_decides_about_is_no_failure_of_the_target(status: int) -> None:
    async def answer(request: PushedRequest) -> bytes:
        last = int(request.headers["peeklock-sequence-number"]) % 3 == 0
        return answered(status if last else 500)

    pushed = push(Broker(60), ScriptedNetwork(answer), until=5, concurrency=1, open_after=3)
    assert (pushed.delivery.circuit.opened, pushed.delivery.counts.failed) == (0, 40)


def test_a_stop_during_a_try_gives_its_message_back() -> None:
    async def answer(request: PushedRequest) -> bytes:
        if request.at < 0.5:
            return answered(500)
        return await always(200, seconds=3600)(request)

    broker = Broker(MANY)
    pushed = push(broker, ScriptedNetwork(answer), until=5, grace=1, concurrency=1)
    assert settlements(broker)[-1] == {"action": "abandon", "count": False}
    assert pushed.report.completed == 0


def test_an_open_circuit_lets_one_message_in_and_only_with_room_and_none_in_hand() -> None:
    async def scenario() -> None:
        circuit = Circuit("shop", 1)
        circuit.note_failure("It failed.")
        assert (circuit.limit(9, 0), circuit.admit()) == (0, False)
        await asyncio.sleep(FIRST_PAUSE_SECONDS)
        assert [circuit.limit(*counts) for counts in ((9, 0), (1, 0), (0, 0), (9, 1))] == [1, 1, 0, 0]
        assert [circuit.admit(), circuit.admit(), bool(circuit.limit(9, 0))] == [True, False, False]

    run_virtually(scenario())


def test_a_late_answer_to_an_earlier_request_does_not_lengthen_the_pause() -> None:
    async def scenario() -> None:
        circuit = Circuit("shop", 1)
        circuit.note_failure("It failed.")
        for _ in range(5):
            circuit.note_failure("It failed.")
        await asyncio.sleep(FIRST_PAUSE_SECONDS)
        assert circuit.admit()

    run_virtually(scenario())


def test_a_try_that_shows_nothing_may_be_made_again_and_wakes_the_worker() -> None:
    async def scenario() -> list[str]:
        circuit, woken = Circuit("shop", 1), list[str]()
        circuit.note_failure("It failed.")
        await asyncio.sleep(2 * FIRST_PAUSE_SECONDS)
        circuit.on_change(lambda: woken.append("worker"))
        assert circuit.admit()
        circuit.note_no_answer()
        assert circuit.admit()
        circuit.note_success()
        return woken

    assert run_virtually(scenario()) == ["worker", "worker"]


def test_a_try_that_is_cancelled_is_made_again() -> None:
    async def answer(request: PushedRequest) -> bytes:
        if request.at > 2 * FIRST_PAUSE_SECONDS:
            return answered(200)
        return await always(500, seconds=3600 * request.at)(request)

    async def scenario() -> list[object]:
        options = PushOptions(URL, ("orders",), SECRETS, open_after=1)
        delivery = delivery_over(ScriptedNetwork(answer), options)
        decisions: list[object] = [await delivery.deliver("a", [], b"")]
        await asyncio.sleep(FIRST_PAUSE_SECONDS)
        tried = asyncio.create_task(delivery.deliver("b", [], b""))
        await asyncio.sleep(2 * FIRST_PAUSE_SECONDS)
        tried.cancel()
        await asyncio.wait([tried])
        decisions.append(await delivery.deliver("c", [], b""))
        await delivery.target.close()
        return decisions

    assert run_virtually(scenario()) == [Fail("http_500", "The target answered 500."), Complete()]


def test_requests_are_counted_by_what_they_meant() -> None:
    async def answer(request: PushedRequest) -> bytes:
        return answered([200, 410, 429, 500][int(request.headers["peeklock-sequence-number"]) % 4])

    counts = push(Broker(8), ScriptedNetwork(answer), until=1, concurrency=1).delivery.counts
    assert counts == PushCounts(completed=2, retry_later=2, dead_lettered=2, failed=2)


def test_a_circuit_that_has_closed_opens_and_closes_again() -> None:
    async def answer(request: PushedRequest) -> bytes:
        return answered(200 if 10 < request.at < 20 or request.at > 40 else 500)

    broker = Broker(MANY)
    pushed = push(broker, ScriptedNetwork(answer), until=80, concurrency=1, rate=1)
    assert (pushed.delivery.circuit.is_open, pushed.delivery.circuit.opened) == (False, 2)


def test_queues_of_one_target_share_its_circuit() -> None:
    network = ScriptedNetwork(always(500))
    pushed = push(Broker(MANY), network, until=3.5, concurrency=1, queues=("orders", "letters"))
    assert pushed.delivery.circuit.opened == 1
    assert len([request for request in network.requests if request.at > 0.9]) == 2  # after 1 and 2 s more
