"""Bodies that do not have the type of their handler: the worker dead-letters one, warns, and pauses."""

from __future__ import annotations

import asyncio

import pytest
from peeklock_client import Client, Worker
from peeklock_client.worker.invalid_body_backoff import FIRST_PAUSE_SECONDS, InvalidBodyBackoff
from peeklock_client.worker.report import WorkerReport

from tests.client.test_stops import worker_of
from tests.client.virtual_broker import Broker
from tests.client.virtual_loop import run_virtually


def report_after(seconds: float, broker: Broker, wanted: type[object]) -> WorkerReport:
    """Let a worker whose handler takes this type run, and stop it. Bodies are the numbers of the messages."""

    async def handle(body: object) -> None: ...

    async def scenario() -> WorkerReport:
        handle.__annotations__["body"] = wanted
        worker = worker_of(broker, handle)
        await worker.start()
        await asyncio.sleep(seconds)
        return await worker.stop()

    return run_virtually(scenario())


@pytest.mark.parametrize(("seconds", "lost"), [(0.5, 1), (1.5, 2), (3.5, 3), (7.5, 4)])
def test_a_wrong_type_loses_one_message_for_each_pause(seconds: float, lost: int) -> None:
    report = report_after(seconds, Broker(stored=54), str)
    assert (report.dead_lettered, report.completed) == (lost, 0)
    assert report.handed_back == report.received - lost


def test_a_body_that_fits_shortens_the_next_pause() -> None:
    assert report_after(0.5, Broker(stored=54), int).completed == 54


@pytest.mark.parametrize(("early", "is_over"), [(1e-12, True), (0.01, False)])
def test_a_timer_that_is_a_little_early_ends_the_pause(early: float, is_over: bool) -> None:
    """Nothing else would: a worker whose messages all wait receives no further message, and renews their locks for ever."""
    backoff = InvalidBodyBackoff()
    assert backoff.record_invalid(100.0)
    at = 100.0 + FIRST_PAUSE_SECONDS - early
    assert (backoff.seconds_left(at) == 0.0, backoff.record_invalid(at)) == (is_over, is_over)


def test_a_body_that_fits_ends_the_doubling_of_pauses() -> None:
    backoff, now = InvalidBodyBackoff(), 0.0
    for pause in (1, 2, 4):
        assert backoff.record_invalid(now)
        assert backoff.seconds_left(now) == pause
        now += pause
    backoff.record_valid()
    assert backoff.record_invalid(now)
    assert backoff.seconds_left(now) == 1


def test_a_body_that_does_not_fit_is_logged_in_one_line_with_the_pause(caplog: pytest.LogCaptureFixture) -> None:
    report_after(0.5, Broker(stored=54), str)
    (line,) = [record for record in caplog.records if "message 1" in record.getMessage()]
    assert (line.levelname, line.exc_info) == ("ERROR", None)
    text = line.getMessage()
    assert text.startswith("message 1: ")
    assert "does not accept its body, and no other handler starts for 1 s." in text
    assert text.endswith("The body cannot be converted to str: Expected `str`, got `int`")
    assert "\n" not in text


def test_what_waits_for_the_end_of_a_pause_is_released_by_a_stop() -> None:
    broker = Broker(stored=54)
    report_after(0.5, broker, str)
    actions = [action for _, action in broker.settled]
    assert (actions.count("dead_letter"), set(actions)) == (1, {"dead_letter", "release"})


async def test_messages_of_the_right_type_are_processed_between_pauses(client: Client, queue: object) -> None:
    """A real server, and a mixed queue: the valid message is processed although two others do not fit."""
    worker, seen = Worker(client), asyncio.Event()
    target = client.queue("mixed-bodies")
    await target.create()
    await target.send_batch(["one", "two", 3])

    @worker.on("mixed-bodies", max_workers=3)
    async def handle(body: int) -> None:
        assert body == 3
        seen.set()

    async with asyncio.timeout(30), worker.lifespan():
        await seen.wait()
    assert (worker.report.completed, worker.report.dead_lettered) == (1, 1)
