"""One client, sender or worker in several event loops, one after the other or at the same time, and in forked processes."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier
from typing import Any
from uuid import uuid4
from weakref import ReferenceType, ref

import httpx
import pytest
from peeklock_client import (
    Client,
    InDoubt,
    PeeklockError,
    Queue,
    ReceiveContext,
    ReceiveState,
    Worker,
    WrongEventLoop,
)
from peeklock_client.generated import requests

from tests.client.virtual_broker import Broker

LOOPS = 6

pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
"""Python warns of the connections of an event loop that has ended, once they are dropped."""


@pytest.fixture
def shared(server_url: str) -> Iterator[Client]:
    """A client of several event loops."""
    client = Client(server_url)
    yield client
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        asyncio.run(client.close())
        gc.collect()


@pytest.fixture
def orders(shared: Client) -> Queue:
    return shared.queue(f"queue-{uuid4().hex[:12]}")


async def bodies(queue: Queue) -> list[object]:
    return [message.body for message in await queue.receive_and_delete(100)]


def test_a_client_serves_one_event_loop_after_another(orders: Queue) -> None:
    for number in range(LOOPS):
        asyncio.run(_awaited(orders, number))
    assert asyncio.run(bodies(orders)) == [*range(LOOPS)]


def test_a_client_keeps_no_event_loop_that_has_ended(orders: Queue) -> None:
    """A program may call `asyncio.run` for each of its sends."""

    async def send() -> ReferenceType[asyncio.AbstractEventLoop]:
        await orders.send(1)
        return ref(asyncio.get_running_loop())

    ended = [asyncio.run(send()) for _ in range(LOOPS)]
    gc.collect()
    assert [loop() for loop in ended[:-1]] == [None] * (LOOPS - 1)


def test_a_client_serves_event_loops_at_the_same_time(orders: Queue) -> None:
    together = Barrier(LOOPS)

    async def send(number: int) -> None:
        await orders.send(number)
        together.wait(60)
        await orders.send(number + LOOPS)

    with ThreadPoolExecutor(LOOPS) as threads:
        assert not any(threads.map(asyncio.run, map(send, range(LOOPS))))
    assert sorted(map(str, asyncio.run(bodies(orders)))) == sorted(map(str, range(2 * LOOPS)))


def test_a_worker_runs_in_one_event_loop_after_another(shared: Client, orders: Queue) -> None:
    worker, handled, done = Worker(shared), list[int](), list[Callable[[], None]]()

    @worker.on(orders.name)
    async def handle(body: int) -> None:
        handled.append(body)
        done[-1]()

    async def scenario(number: int) -> None:
        ended = asyncio.Event()
        done.append(ended.set)
        await orders.send(number)
        async with worker.lifespan():
            await ended.wait()

    for number in (1, 2):
        asyncio.run(scenario(number))
    assert (handled, worker.report.completed) == ([1, 2], 2)


def test_a_worker_and_its_receives_are_refused_in_another_event_loop(shared: Client, orders: Queue) -> None:
    """A handler in a thread may run an event loop of its own. A settlement there would never get its result."""
    worker, ends, states = Worker(shared), list[Callable[[], object]](), list[ReceiveState]()

    @worker.on(orders.name)
    def handle(context: ReceiveContext[int]) -> None:
        try:
            for attempt in (context.abandon(), worker.stop()):
                with pytest.raises(WrongEventLoop):
                    asyncio.run(_in_time(attempt))
                states.append(context.state)
        finally:
            ends[0]()

    async def scenario() -> None:
        ended = asyncio.Event()
        ends.append(partial(asyncio.get_running_loop().call_soon_threadsafe, ended.set))
        await orders.send(1)
        async with worker.lifespan():
            await ended.wait()

    asyncio.run(scenario())
    assert (states, worker.report.completed) == ([ReceiveState.RECEIVED] * 2, 1)


def test_an_http_client_of_the_caller_is_refused_in_a_second_event_loop() -> None:
    broker = Broker(stored=0)
    http = httpx.AsyncClient(transport=httpx.MockTransport(broker.answer))
    queue = Client("http://peeklock.test", http=http).queue("orders")
    asyncio.run(_received(queue))
    with pytest.raises(WrongEventLoop) as raised:
        asyncio.run(_received(queue))
    assert isinstance(raised.value, PeeklockError)
    assert len(broker.requests) == 1


def test_any_other_error_of_a_request_is_in_doubt() -> None:
    def fail(request: httpx.Request) -> httpx.Response:
        raise RuntimeError("Event loop is closed")

    async def scenario() -> None:
        http = httpx.AsyncClient(transport=httpx.MockTransport(fail))
        with pytest.raises(InDoubt, match="Event loop is closed"):
            await Client("http://peeklock.test", http=http).api.start_transaction(requests.OpenTransaction())

    asyncio.run(scenario())


FORK = """
import asyncio, os, sys
from peeklock_client import Client, WrongEventLoop

client = Client()
queue = client.queue(sys.argv[1])

async def parent():
    await queue.send("parent")
    if not os.fork():
        try:
            await queue.send("child in the loop of its parent")
        except WrongEventLoop:
            asyncio.run(queue.send("child"))
            os._exit(0)
    _, status = os.wait()
    assert status == 0, status
    await queue.send("parent again")
    await client.close()

asyncio.run(parent())
"""


def test_a_forked_process_sends_in_an_event_loop_of_its_own(server_url: str, orders: Queue) -> None:
    environment = os.environ | {"PEEKLOCK_URL": server_url}
    run = subprocess.run(
        [sys.executable, "-c", FORK, orders.name],
        env=environment, stderr=subprocess.PIPE, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert asyncio.run(bodies(orders)) == ["parent", "child", "parent again"]


async def _in_time(step: Coroutine[Any, Any, object]) -> None:
    await asyncio.wait_for(step, 5)


async def _awaited(queue: Queue, body: object) -> None:
    await queue.send(body)


async def _received(queue: Queue) -> None:
    await queue.receive()
