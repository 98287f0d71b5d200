"""Handlers that fail in unusual ways: each message has an outcome, and no other message is affected."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from peeklock_client import InDoubt, NewMessage, ReceiveContext
from peeklock_client.errors import NotSerializable
from peeklock_client.worker.handlers import Handler
from peeklock_client.worker.report import WorkerReport

from tests.client.test_receive_context import LOST, receive
from tests.client.test_receive_context import Broker as OneSettler
from tests.client.virtual_broker import LOCK_SECONDS, Broker, run_worker


class Unusual(BaseException):
    """An exception that is no `Exception`, as those of some test libraries."""


class BrokenStrategy:
    """A retry strategy with a fault."""

    def delay_seconds(self, failures: int) -> float | None:
        raise ZeroDivisionError


class EndlessStrategy:
    """A retry strategy whose delay cannot be sent."""

    def delay_seconds(self, failures: int) -> Any:
        return object()


# ---- exceptions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [Unusual(), asyncio.CancelledError(), SystemExit(3), StopAsyncIteration()], ids=repr)
def test_any_exception_of_a_handler_is_a_failure_of_its_message(error: BaseException) -> None:
    broker = Broker(stored=3)

    async def handle(body: int) -> None:
        if body == 2:
            raise error

    report = run_worker(broker.answer, handle)
    assert (report.completed, report.failed, report.abandoned) == (2, 1, 1)


async def test_a_thread_that_raises_stop_iteration_ends() -> None:
    def handle(body: str) -> None:
        next(iter(()))

    with pytest.raises(RuntimeError, match="StopIteration"), ThreadPoolExecutor(1) as threads:
        await Handler(handle).call(receive(OneSettler()), threads)


@pytest.mark.parametrize("strategy", [BrokenStrategy(), EndlessStrategy()])
def test_a_retry_strategy_that_fails_leaves_its_message_in_doubt(strategy: Any) -> None:
    broker = Broker(stored=3)

    async def handle(body: int) -> None:
        if body == 2:
            raise OSError

    report = run_worker(broker.answer, handle, retry=strategy)
    assert (report.completed, report.failed, report.in_doubt) == (2, 1, 1)


@pytest.mark.parametrize(
    "error",
    [RuntimeError("the disk is full"), InDoubt("Another answer was lost."), LOST],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("completes", [True, False], ids=["by the handler", "by the worker"])
def test_a_callback_that_raises_is_a_failure_of_its_handler(error: Exception, completes: bool) -> None:
    broker = Broker(stored=3)

    def fail() -> None:
        raise error

    async def handle(context: ReceiveContext[int]) -> None:
        if context.message.body == 2:
            context.on_complete(fail)
        if completes:
            await context.complete()

    report = run_worker(broker.answer, handle)
    assert report == WorkerReport(received=3, completed=2, failed=1)
    assert broker.settled == [("1.t", "complete"), ("3.t", "complete")]


def test_a_callback_that_fails_does_not_keep_a_handler_whose_lock_is_lost() -> None:
    broker, ended = Broker(stored=2), list[float]()

    async def handle(context: ReceiveContext[int]) -> None:
        context.on_fault(lambda: next(iter(())))
        broker.failing.update({"settle", "receive"})
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append(asyncio.get_running_loop().time())

    report = run_worker(broker.answer, handle)
    assert (report.lock_lost, len(ended)) == (2, 2)
    assert all(at < LOCK_SECONDS + 1 for at in ended)


# ---- values that JSON cannot encode ----------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [object(), "\udcff"], ids=["object", "surrogate"])
@pytest.mark.parametrize(
    "settle",
    [
        lambda context, value: context.complete(reply={"a": value}),
        lambda context, value: context.abandon(properties={"a": value}),
        lambda context, value: context.dead_letter("reason", value),
    ],
    ids=["complete", "abandon", "dead_letter"],
)
def test_a_settlement_that_cannot_be_sent_harms_no_other(settle: Callable[[Any, Any], Any], value: Any) -> None:
    broker = Broker(stored=3)

    async def handle(context: ReceiveContext[int]) -> None:
        if context.message.body == 2:
            await settle(context, value)

    report = run_worker(broker.answer, handle)
    assert (report.completed, report.failed, report.abandoned) == (2, 1, 1)


async def test_a_reply_that_cannot_be_sent_leaves_the_receive_received() -> None:
    broker = OneSettler()
    context = receive(broker)
    with pytest.raises(NotSerializable):
        await context.complete(reply=object())
    assert (context.is_active, broker.sent) == (True, [])


def test_a_result_that_cannot_be_sent_is_a_failure_of_its_message() -> None:
    broker = Broker(stored=3)

    async def handle(body: int) -> NewMessage:
        return NewMessage(object() if body == 2 else body, queue="results")

    report = run_worker(broker.answer, handle)
    assert (report.completed, report.failed, report.abandoned) == (2, 1, 1)


def test_settlements_of_one_request_are_bounded_in_bytes() -> None:
    broker = Broker(stored=100)
    sizes = list[int]()

    async def answer(request: httpx.Request) -> httpx.Response:
        sizes.append(len(request.content))
        return await broker.answer(request)

    async def handle(context: ReceiveContext[int]) -> None:
        await context.complete(reply="x" * (1 << 20))

    report = run_worker(answer, handle, max_workers=50)
    assert report.completed == 100
    assert (3 << 20) < max(sizes) < (5 << 20)


def test_a_reply_that_is_too_large_for_any_request_is_refused_alone() -> None:
    broker = Broker(stored=50)

    async def answer(request: httpx.Request) -> httpx.Response:
        if len(request.content) > 16 << 20:
            problem = {"type": "", "title": "", "status": 413, "detail": "", "code": "message-too-large"}
            return httpx.Response(413, json={**problem, "tracking_id": "", "retryable": False})
        return await broker.answer(request)

    async def handle(context: ReceiveContext[int]) -> None:
        await context.complete(reply="x" * ((17 << 20) if context.message.body == 20 else 1))

    report = run_worker(answer, handle, max_workers=50)
    assert (report.completed, report.received) == (49, 50)
