"""The client without an event loop."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from uuid import uuid4

import pytest
from peeklock_client import (
    BlockingClient,
    BlockingQueue,
    BlockingReceive,
    BlockingTopic,
    BlockingTransaction,
    Client,
    ClientClosed,
    InDoubt,
    LockLost,
    Queue,
    ReceiveContext,
    ReceiveState,
    Topic,
    Transaction,
    WrongEventLoop,
    WrongState,
)
from peeklock_client.generated import requests
from peeklock_client.loop_thread import run_in_caller


@pytest.fixture
def client(server_url: str) -> Iterator[BlockingClient]:
    with BlockingClient(server_url) as client:
        yield client


@pytest.fixture
def queue(client: BlockingClient) -> BlockingQueue:
    queue = client.queue(f"queue-{uuid4().hex[:12]}")
    assert queue.create()
    return queue


def test_a_message_is_sent_received_and_settled(queue: BlockingQueue) -> None:
    queue.send({"order": 17}, priority=7)
    [received] = queue.receive(wait_seconds=20)
    assert (received.message.body, received.message.priority) == ({"order": 17}, 7)
    received.renew(60)
    received.renew(20, exact=True)
    assert received.lock_duration <= 20
    received.complete()
    assert received.state is ReceiveState.COMPLETED
    with pytest.raises(WrongState):
        received.complete()
    assert queue.status().counts.locked == 0


def test_a_block_completes_or_abandons(queue: BlockingQueue) -> None:
    queue.send_batch([1, 2])
    first, second = queue.receive(2)
    with first:
        pass
    with pytest.raises(ZeroDivisionError), second:
        raise ZeroDivisionError
    [again] = queue.receive()
    assert (again.message.body, again.message.last_failure) == (2, "ZeroDivisionError")
    again.dead_letter("reason")
    assert queue.purge() == 1


def test_a_lost_lock_is_raised(client: BlockingClient, queue: BlockingQueue) -> None:
    queue.send(1)
    [received] = queue.receive()
    client.call(client.api.purge_queue, queue.name, requests.PurgeQueue(states=["locked"]))
    with pytest.raises(LockLost):
        received.abandon()


def test_threads_share_a_client(queue: BlockingQueue) -> None:
    with ThreadPoolExecutor(8) as threads:
        assert len({sent.sequence_number for sent in threads.map(queue.send, range(100))}) == 100
    assert sorted(message.body for message in queue.receive_and_delete(100)) == [*range(100)]


def test_a_transaction_is_committed_or_rolled_back(client: BlockingClient, queue: BlockingQueue) -> None:
    with client.transaction() as transaction:
        queue.send("kept", transaction=transaction)

    def fail() -> None:
        with client.transaction() as transaction:
            queue.send("dropped", transaction=transaction)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert [one.message.body for one in queue.receive(10)] == ["kept"]


def test_a_request_gets_its_reply(queue: BlockingQueue) -> None:
    with ThreadPoolExecutor(1) as threads:
        reply = threads.submit(queue.request, [1, 2])
        [received] = queue.receive(wait_seconds=20)
        received.complete(reply=sum(received.message.body))
        assert reply.result() == 3


def test_a_client_needs_no_block(server_url: str) -> None:
    client = BlockingClient(server_url)
    queue = client.queue(f"queue-{uuid4().hex[:12]}")
    queue.send("without a block")
    [received] = queue.receive()
    client.close()
    client.close()
    with pytest.raises(ClientClosed):
        queue.send("after the end")
    with pytest.raises(ClientClosed):
        received.complete()


def test_a_client_that_is_never_closed_ends_with_its_program(server_url: str) -> None:
    program = "from peeklock_client import BlockingClient; BlockingClient().queue('never-closed').send(1)"
    subprocess.run(
        [sys.executable, "-c", program], env=os.environ | {"PEEKLOCK_URL": server_url}, check=True, timeout=60
    )


def test_a_client_that_nothing_refers_to_leaves_no_thread(server_url: str) -> None:
    before = threading.enumerate()
    client = BlockingClient(server_url)
    client.queue("unreferenced").send(1)
    assert threading.enumerate() != before
    del client
    gc.collect()
    assert threading.enumerate() == before


def test_a_client_that_cannot_be_made_leaves_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "gopher://proxy.test")
    before = threading.enumerate()
    with pytest.raises(ValueError, match="gopher"):
        BlockingClient("http://peeklock.test")
    assert threading.enumerate() == before


AT_EXIT = """
import atexit, sys, threading, time
from peeklock_client import BlockingClient

def last():
    queue.send("last")
    print(*(message.body for message in queue.browse()))

atexit.register(last)
queue = BlockingClient().queue(sys.argv[1])
queue.send("first")
waiting = threading.Thread(target=lambda: queue.receive(source="dead_letter", wait_seconds=50), daemon=True)
waiting.start()
"""


def test_an_atexit_function_may_send_and_prints_nothing(server_url: str) -> None:
    """Functions of `atexit` that were registered before the first call run last. A call that still waits ends silently."""
    run = subprocess.run(
        [sys.executable, "-c", AT_EXIT, f"queue-{uuid4().hex[:12]}"],
        env=os.environ | {"PEEKLOCK_URL": server_url},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (run.stdout, run.stderr, run.returncode) == ("first last\n", "", 0)


SIGNAL = """
import asyncio, signal, sys
from peeklock_client import BlockingClient

queue = BlockingClient().queue(sys.argv[1])
queue.send(1)
signal.signal(signal.SIGUSR1, lambda *_: queue.send("in the handler"))
run = asyncio.run_coroutine_threadsafe

def interrupted(*arguments):
    asyncio.run_coroutine_threadsafe = run
    signal.raise_signal(signal.SIGUSR1)
    return run(*arguments)

asyncio.run_coroutine_threadsafe = interrupted
queue.send(2)
print([message.body for message in queue.browse()])
"""


def test_the_handler_of_a_signal_may_call_at_any_moment(server_url: str) -> None:
    run = subprocess.run(
        [sys.executable, "-c", SIGNAL, f"queue-{uuid4().hex[:12]}"],
        env=os.environ | {"PEEKLOCK_URL": server_url},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert run.stdout == "[1, 'in the handler', 2]\n", run.stderr


FORK = """
import os
from peeklock_client import BlockingClient

client = BlockingClient()
queue = client.queue("forked")
queue.send("parent")
[received] = queue.receive(wait_seconds=20)
if not os.fork():
    queue.send("child")
    received.complete()
    client.close()
    os._exit(0)
_, status = os.wait()
assert status == 0
queue.send("parent again")
print(sorted(message.body for message in queue.browse()))
"""


def test_a_forked_process_uses_the_client_of_its_parent(server_url: str) -> None:
    """The child sends and settles, and its end leaves the connections of its parent."""
    run = subprocess.run(
        [sys.executable, "-c", FORK],
        env=os.environ | {"PEEKLOCK_URL": server_url},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (run.stdout, run.returncode) == ("['child', 'parent again']\n", 0), run.stderr


def test_a_call_that_a_close_ends_is_in_doubt(server_url: str) -> None:
    """The close returns once the call has ended, also what it does at its end."""
    client = BlockingClient(server_url)
    begun, ended = threading.Event(), threading.Event()

    async def wait_for_ever() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(1000):
                await asyncio.sleep(0)
            ended.set()

    with ThreadPoolExecutor(1) as threads:
        call = threads.submit(client.call, wait_for_ever)
        begun.wait(60)
        client.close()
        assert ended.is_set()
        with pytest.raises(InDoubt, match="closed"):
            call.result(60)


def test_a_call_in_the_thread_of_the_client_is_refused(client: BlockingClient, queue: BlockingQueue) -> None:
    async def call() -> None:
        queue.send(1)

    with pytest.raises(WrongEventLoop):
        client.call(call)
    assert not queue.status().counts.available


def test_an_interrupted_call_is_cancelled(client: BlockingClient) -> None:
    ended = threading.Event()

    async def interrupt() -> None:
        try:
            await run_in_caller(partial(sys.exit, 3))
        finally:
            ended.set()

    with pytest.raises(SystemExit):
        client.call(interrupt)
    assert ended.wait(60)


def test_messages_are_browsed(queue: BlockingQueue) -> None:
    queue.send_batch([*range(5)])
    assert [message.body for message in queue.browse()] == [*range(5)]
    assert next(queue.browse(filter="message.sequence_number > 0")).body == 0


def test_a_receiver_gets_its_messages_again(queue: BlockingQueue) -> None:
    queue.send(1)
    [first] = queue.receive(receiver_id="receiver")
    [again] = queue.recover("receiver")
    assert (again.message.body, again.lock_token != first.lock_token) == (1, True)
    assert 0 < again.lock_seconds <= again.lock_duration


def test_a_subscription_is_made_and_gets_copies(client: BlockingClient, queue: BlockingQueue) -> None:
    topic = client.topic(queue.name)
    client.call(client.api.put_topic, topic.name, requests.TopicSettingsBody())
    copies = topic.subscribe("all", requests.SubscriptionSettingsBody(target_queue=queue.name))
    topic.publish("news")
    assert [message.body for message in copies.receive_and_delete()] == ["news"]


def test_callbacks_run_in_the_calling_thread_and_may_use_the_client(queue: BlockingQueue) -> None:
    queue.send_batch([1, 2, 3])
    completed, abandoned, faulted = queue.receive(3)
    called = list[tuple[str, int, str]]()

    def note(kind: str) -> None:
        called.append((kind, threading.get_ident(), queue.status().name))

    completed.on_complete(partial(note, "complete"))
    abandoned.on_abandon(partial(note, "abandon"))
    faulted.on_fault(partial(note, "fault"))
    completed.complete()
    abandoned.abandon()
    faulted.fault()
    thread = threading.get_ident()
    assert called == [(kind, thread, queue.name) for kind in ("complete", "abandon", "fault")]
    assert (faulted.state, faulted.in_doubt) == (ReceiveState.FAULTED, True)


def test_a_callback_that_raises_leaves_the_message_unsettled(queue: BlockingQueue) -> None:
    queue.send(1)
    [received] = queue.receive()

    def fail() -> None:
        raise ValueError("no number")

    received.on_complete(fail)
    with pytest.raises(ValueError, match="no number"):
        received.complete()
    assert queue.status().counts.locked == 1


def test_a_callback_that_closes_the_client_leaves_the_call_in_doubt(server_url: str) -> None:
    client = BlockingClient(server_url)
    queue = client.queue(f"queue-{uuid4().hex[:12]}")
    queue.send(1)
    [received] = queue.receive()
    received.on_complete(client.close)
    with pytest.raises(InDoubt, match="closed"):
        received.complete()
    assert received.state is ReceiveState.FAULTED


def test_a_callback_that_nothing_would_await_is_refused(queue: BlockingQueue) -> None:
    async def callback() -> None: ...

    queue.send(1)
    [received] = queue.receive()
    for add in (received.on_complete, received.on_abandon, received.on_fault):
        with pytest.raises(TypeError, match="coroutine function"):
            add(callback)  # type: ignore[arg-type]
    assert received.is_active


@pytest.mark.parametrize(
    ("kind", "blocking"),
    [
        (Client, BlockingClient),
        (Queue, BlockingQueue),
        (Topic, BlockingTopic),
        (Transaction, BlockingTransaction),
        (ReceiveContext, BlockingReceive),
    ],
    ids=lambda kind: kind.__name__,
)
def test_each_method_has_a_blocking_form_with_the_same_parameters(kind: type[Any], blocking: type[Any]) -> None:
    internal = {"prolong", "note_renewal", "note_commit", "note_rollback", "decide_retries_by", "connection_type"}
    for name, member in inspect.getmembers(kind):
        if name.startswith("_") or name in internal:
            continue
        assert hasattr(blocking, name), f"{blocking.__name__} has no {name}"
        if inspect.isfunction(member):
            parameters, own = [inspect.signature(one).parameters for one in (member, getattr(blocking, name))]
            assert [*map(describe, parameters.values())] == [*map(describe, own.values())], name


def describe(parameter: inspect.Parameter) -> tuple[str, object, object]:
    return parameter.name, parameter.kind, parameter.default
