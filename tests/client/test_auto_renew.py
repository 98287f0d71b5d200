"""A lock that is renewed while a block of the program works, outside of a worker."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from peeklock_client import BlockingClient, BlockingQueue, LockLost, Queue, ReceiveContext, ReceiveState
from peeklock_client.errors import InDoubt, PeeklockError, problem_of
from peeklock_client.generated import answers, requests
from peeklock_client.messages import Message
from peeklock_client.receive_state import Receive
from peeklock_client.settling import Settlement

from tests.client.conftest import MAX_POLLS, POLL_SECONDS
from tests.client.virtual_loop import run_virtually
from tests.servers import TIMEOUT_SECONDS

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LOCK = 30.0
LOST = LockLost(problem_of(410, "The lock has ended.", "lock-lost"))
AWAY = InDoubt("The answer was lost.")


class Broker:
    """A settler that answers renewals with these errors first, and then renews for `LOCK` seconds."""

    def __init__(self, *errors: PeeklockError, seconds: float = 0.0) -> None:
        self.errors = [*errors]
        self.seconds = seconds
        self.renewed_at: list[float] = []

    async def renew(self, settlement: requests.RenewSettlement) -> answers.RenewedResult:
        await asyncio.sleep(self.seconds)
        self.renewed_at.append(asyncio.get_running_loop().time())
        if self.errors:
            raise self.errors.pop(0)
        return answers.RenewedResult(NOW, int(LOCK * 1000), settlement.lock_token)

    async def settle(self, settlement: Settlement, transaction_id: str | None) -> answers.SettledResult:
        await asyncio.sleep(0)
        return answers.SettledResult("completed", 1, False, settlement.lock_token)

    async def commit(self, lock_token: str, results: requests.CommitLock) -> answers.CommittedMessage:
        raise NotImplementedError

    def receive(self) -> ReceiveContext[str]:
        return ReceiveContext(Message("body", 1, "id", "locked", 4, NOW, NOW, 1, 0, False), "1.token", LOCK, self)


def test_a_lock_is_renewed_when_half_of_it_has_passed_until_the_block_ends() -> None:
    broker = Broker()

    async def scenario() -> ReceiveContext[str]:
        async with (received := broker.receive()), received.auto_renew():
            await asyncio.sleep(50)
        await asyncio.sleep(100)
        return received

    assert run_virtually(scenario()).state is ReceiveState.COMPLETED
    assert broker.renewed_at == [15, 30, 45]


def test_a_block_whose_lock_is_lost_is_cancelled_and_raises_it() -> None:
    async def scenario() -> tuple[float, ReceiveContext[str]]:
        received = Broker(LOST).receive()
        with pytest.raises(LockLost) as lost:
            async with received.auto_renew():
                await asyncio.sleep(3000)
        assert lost.value is LOST
        current = asyncio.current_task()
        assert current is not None
        assert current.cancelling() == 0
        await asyncio.sleep(1)  # nothing is left of the cancellation
        return asyncio.get_running_loop().time(), received

    at, received = run_virtually(scenario())
    assert (at, received.state, received.error) == (16, ReceiveState.FAULTED, LOST)


def test_a_block_that_swallows_its_cancellation_still_raises_the_lost_lock() -> None:
    async def block() -> None:
        async with Broker(LOST).receive().auto_renew():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(3000)

    async def scenario() -> None:
        with pytest.raises(LockLost):
            await block()
        await asyncio.sleep(1)

    run_virtually(scenario())


def test_an_error_of_the_block_is_raised_and_not_the_lost_lock() -> None:
    async def block() -> None:
        async with Broker(LOST).receive().auto_renew():
            try:
                await asyncio.sleep(3000)
            finally:
                raise ZeroDivisionError

    async def scenario() -> None:
        with pytest.raises(ZeroDivisionError):
            await block()
        await asyncio.sleep(1)

    run_virtually(scenario())


def test_a_cancellation_from_outside_stays_one() -> None:
    broker = Broker()

    async def block() -> None:
        async with broker.receive().auto_renew():
            await asyncio.sleep(3000)

    async def scenario() -> None:
        task = asyncio.create_task(block())
        await asyncio.sleep(20)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(100)

    run_virtually(scenario())
    assert broker.renewed_at == [15]


def test_a_renewal_without_an_answer_is_tried_again_until_the_lock_ends() -> None:
    broker = Broker(*[AWAY] * 1000)

    async def scenario() -> float:
        with pytest.raises(LockLost, match="No server answered"):
            async with broker.receive().auto_renew():
                await asyncio.sleep(3000)
        return asyncio.get_running_loop().time()

    assert run_virtually(scenario()) == pytest.approx(LOCK, abs=1)
    assert len(broker.renewed_at) > 5


def test_a_renewal_that_fails_once_loses_nothing() -> None:
    broker = Broker(AWAY)

    async def scenario() -> ReceiveContext[str]:
        async with (received := broker.receive()), received.auto_renew():
            await asyncio.sleep(20)
        return received

    assert run_virtually(scenario()).state is ReceiveState.COMPLETED
    assert len(broker.renewed_at) == 2


def test_a_renewal_that_is_refused_because_the_block_settles_loses_nothing() -> None:
    broker = Broker(LOST, seconds=1)

    async def scenario() -> ReceiveContext[str]:
        received = broker.receive()
        async with received.auto_renew():
            await asyncio.sleep(15.5)  # the renewal is under way
            await received.complete()
            await asyncio.sleep(10)
        return received

    assert run_virtually(scenario()).state is ReceiveState.COMPLETED


class OpenTransaction:
    """A transaction that a settlement can join."""

    id = "transaction"

    def join(self, receive: Receive) -> None:
        self.joined = receive


def test_a_lock_is_renewed_again_after_its_transaction_is_rolled_back() -> None:
    broker, transaction = Broker(), OpenTransaction()

    async def scenario() -> None:
        async with (received := broker.receive()), received.auto_renew():
            await received.complete(transaction=transaction)
            await asyncio.sleep(20)
            assert broker.renewed_at == []
            transaction.joined.note_rollback()
            await asyncio.sleep(20)

    run_virtually(scenario())
    assert len(broker.renewed_at) == 2


async def test_the_lock_of_a_message_is_prolonged_on_the_server(queue: Queue) -> None:
    await queue.send("slow")
    [received] = await queue.receive(lock_seconds=6)
    async with received, received.auto_renew(lock_seconds=600):
        await until(lambda: received.lock_duration > 500)
        assert await queue.receive() == []
    assert received.state is ReceiveState.COMPLETED


async def test_a_blocking_program_renews_too(server_url: str) -> None:
    def program() -> ReceiveState:
        client = BlockingClient(server_url)
        queue = client.queue("blocking-renewals")
        queue.send("slow")
        [received] = queue.receive(lock_seconds=6)
        with received, received.auto_renew(lock_seconds=600):
            while received.lock_duration < 500:
                time.sleep(POLL_SECONDS)
            assert queue.receive() == []
        client.close()
        return received.state

    async with asyncio.timeout(TIMEOUT_SECONDS):
        assert await asyncio.to_thread(program) is ReceiveState.COMPLETED


async def test_a_blocking_program_learns_of_a_lost_lock_at_the_end_of_its_block(server_url: str) -> None:
    def block(queue: BlockingQueue) -> None:
        [received] = queue.receive(lock_seconds=6)
        with received.auto_renew():
            queue.purge(states=["locked"])
            while not received.has_ended:
                time.sleep(POLL_SECONDS)

    def program() -> None:
        with BlockingClient(server_url) as client:
            queue = client.queue("blocking-losses")
            queue.send("slow")
            block(queue)

    async with asyncio.timeout(TIMEOUT_SECONDS):
        with pytest.raises(LockLost):
            await asyncio.to_thread(program)


async def until(is_so: Callable[[], bool]) -> None:
    """Wait until this is so."""
    for _ in range(MAX_POLLS):
        if is_so():
            return
        await asyncio.sleep(POLL_SECONDS)
    pytest.fail("this did not become so in time")
