"""A settlement that comes late while the row changes under it still hears what really happened."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.broker.broker import Broker
from app.broker.complete import complete
from app.broker.receive import ReceiveRequest, receive
from app.broker.renew import renew
from app.broker.send import send
from app.broker.settle import release_lost, settle, settle_one
from app.domain.message import Envelope, MessageState
from app.domain.queue import Queue
from app.domain.refusals import LockLost, LossCause, MessageBusy
from app.domain.sending import NewMessage
from app.domain.settlement import MAX_GENERATION, LockedMessage, LockToken, Removal
from app.maintenance.expiry import expire_locks
from app.store.migrate import migrate
from tests.broker.recorders import RecordingLockStore
from tests.brokers import sqlite_broker
from tests.faults.polling import wait_until
from tests.virtual_clock import VirtualClock, run_advancing

LOCK_SECONDS = 30.0


class InterruptedStore:
    """A store in which something happens right after the row was looked at, once."""

    def __init__(self, store: Any, interrupt: Callable[[], Awaitable[object]]) -> None:
        self._store = store
        self._interrupt: Callable[[], Awaitable[object]] | None = interrupt

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def locked_messages(self, tokens: Sequence[LockToken]) -> list[LockedMessage | None]:
        found = await self._store.locked_messages(tokens)
        if self._interrupt is not None:
            interrupt, self._interrupt = self._interrupt, None
            await interrupt()
        return found


@pytest.fixture
async def broker(tmp_path: Path, clock: VirtualClock) -> AsyncIterator[Broker]:
    url = f"sqlite:///{tmp_path / 'peeklock.db'}"
    migrate(url)
    async with sqlite_broker(url, clock) as broker:
        yield broker


async def held_token(broker: Broker, queue: Queue) -> LockToken:
    await send(broker, queue, [NewMessage(Envelope(""))])
    (message,) = await receive(broker, queue, ReceiveRequest())
    return LockToken(message.sequence_number, message.lock_token or b"")


@pytest.mark.behaviour("S3.26", "S3.34")
async def test_a_lock_that_ends_between_two_looks_is_lost_and_its_row_is_free(
    broker: Broker, queue: Queue, clock: VirtualClock
) -> None:
    token = await held_token(broker, queue)
    await renew(broker, queue, token)  # a renewed lock is what takes the second look
    watched = replace(broker, store=InterruptedStore(broker.store, lambda: clock.advance(LOCK_SECONDS)))
    (answer,) = await settle(watched, queue, [complete(queue, token)])
    assert isinstance(answer, LockLost)
    assert answer.cause is LossCause.EXPIRED
    (message,) = await broker.store.browse(queue.id, list(MessageState), 0, 10)
    assert message.state is MessageState.AVAILABLE


async def test_a_sweeper_that_is_faster_takes_nothing_from_the_answer(
    broker: Broker, queue: Queue, clock: VirtualClock
) -> None:
    token = await held_token(broker, queue)
    await clock.advance(LOCK_SECONDS)
    watched = replace(broker, store=InterruptedStore(broker.store, lambda: expire_locks(broker)))
    (answer,) = await settle(watched, queue, [complete(queue, token)])
    assert isinstance(answer, LockLost)
    assert answer.lost_at == clock.now()


@pytest.mark.behaviour("S0.6")
async def test_a_copy_that_is_faster_lets_the_other_one_hear_the_same_outcome(broker: Broker, queue: Queue) -> None:
    token = await held_token(broker, queue)
    await renew(broker, queue, token)
    watched = replace(
        broker, store=InterruptedStore(broker.store, lambda: settle_one(broker, queue, complete(queue, token)))
    )
    answer = await settle_one(watched, queue, complete(queue, token))
    assert answer.replayed


async def test_a_renewal_of_a_lock_that_ends_meanwhile_is_lost(
    broker: Broker, queue: Queue, clock: VirtualClock
) -> None:
    token = await held_token(broker, queue)
    watched = replace(broker, store=InterruptedStore(broker.store, lambda: clock.advance(LOCK_SECONDS)))
    with pytest.raises(LockLost):
        await renew(watched, queue, token)


async def test_a_lock_that_lives_is_lost_on_evidence_against_its_own_generation_alone(
    broker: Broker, queue: Queue
) -> None:
    token = await held_token(broker, queue)
    await renew(broker, queue, token)
    (held,) = await broker.store.locked_messages([token])
    assert held is not None
    assert await release_lost(broker, held, held.lock_generation + 1) is None
    lost = await release_lost(broker, held, held.lock_generation)
    assert lost is not None
    assert (lost.cause, lost.delivered_again) == (LossCause.EXPIRED, False)


async def test_the_record_of_a_renewed_lock_is_dropped_once_it_is_settled(broker: Broker, queue: Queue) -> None:
    token = await held_token(broker, queue)
    await renew(broker, queue, token)
    locks = RecordingLockStore(broker.lock_store)
    await settle_one(replace(broker, lock_store=locks), queue, complete(queue, token))
    assert locks.dropped == [(token, MAX_GENERATION)]


class BusyStore:
    """A store in which another request holds the row of every settlement."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def remove(self, removals: Sequence[Removal]) -> list[bool]:
        return [False] * len(removals)


async def test_a_settlement_pauses_before_it_looks_at_a_held_row_again(
    broker: Broker, queue: Queue, clock: VirtualClock
) -> None:
    token = await held_token(broker, queue)
    watched = replace(broker, store=BusyStore(broker.store))
    settling = asyncio.create_task(settle(watched, queue, [complete(queue, token)]))
    await wait_until(lambda: clock.timers or settling.done(), "it pauses")
    assert not settling.done()
    assert [type(answer) for answer in await run_advancing(clock, settling)] == [MessageBusy]
