"""The client without an event loop."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest
from peeklock_client import LockLost, ReceiveState, WrongState
from peeklock_client.blocking import BlockingClient, BlockingQueue
from peeklock_client.generated import requests


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
    client._call(client._opened().api.purge_queue, queue.name, requests.PurgeQueue(states=["locked"]))
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


def test_a_closed_client_says_so(server_url: str) -> None:
    with pytest.raises(RuntimeError, match="inside its `with` block"):
        BlockingClient(server_url).queue("orders")


def test_a_client_that_cannot_be_opened_leaves_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "gopher://proxy.test")
    before = threading.enumerate()
    client = BlockingClient("http://peeklock.test")
    with pytest.raises(ValueError, match="gopher"):
        client.__enter__()
    assert threading.enumerate() == before
    with pytest.raises(RuntimeError, match="inside its `with` block"):
        client.queue("orders")


def test_a_client_is_opened_after_an_attempt_that_failed(server_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    client = BlockingClient(server_url)
    with monkeypatch.context() as patch:
        patch.setenv("ALL_PROXY", "gopher://proxy.test")
        with pytest.raises(ValueError, match="gopher"):
            client.__enter__()
    with client:
        assert client.queue(f"queue-{uuid4().hex[:12]}").create()
