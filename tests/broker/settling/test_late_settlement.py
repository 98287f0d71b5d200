"""A late settlement reports what really happened, even if the row changes during the request."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.broker.receiving.receive import ReceiveRequest, receive
from app.broker.sending.send import send
from app.broker.settling.outcomes import complete
from app.broker.settling.renew import renew
from app.broker.settling.settle import release_lost, settle, settle_one
from app.domain.message import Envelope, MessageState
from app.domain.queue import Queue
from app.domain.refusals import LockLost, LossCause, MessageBusy
from app.domain.sending import NewMessage
from app.domain.settlement import MAX_GENERATION, LockedMessage, LockToken, Removal
from app.maintenance.expiry import expire_locks
from app.store.migrate import migrate
from tests.broker.recorders import RecordingLockStore
from tests.brokers import OpenBroker, sqlite_broker
from tests.faults.polling import wait_until
from tests.virtual_clock import VirtualClock, run_advancing

LOCK_SECONDS = 30.0


class InterruptedStore:
    """A store in which something happens once, right after the row was read."""

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
async def broker(tmp_path: Path, clock: VirtualClock) -> AsyncIterator[OpenBroker]:
    url = f"sqlite:///{tmp_path / 'peeklock.db'}"
    migrate(url)
    async with sqlite_broker(url, clock) as broker:
        yield broker


async def held_token(broker: OpenBroker, queue: Queue) -> LockToken:
    await send(broker.sending, queue.name, [NewMessage(Envelope(""))])
    (message,) = (await receive(broker.receiving, queue, ReceiveRequest())).result
    return LockToken(message.sequence_number, message.lock_token or b"")


@pytest.mark.behaviour("S3.26", "S3.34")
async def test_a_lock_that_expires_during_a_settlement_is_lost_and_its_row_freed(
    broker: OpenBroker, queue: Queue, clock: VirtualClock
) -> None:
    token = await held_token(broker, queue)
    await renew(broker.settling, queue, token)  # only a renewed lock needs a second try
    interrupted = replace(broker, store=InterruptedStore(broker.store, lambda: clock.advance(LOCK_SECONDS)))
    (answer,) = await settle(interrupted.settling, queue, [complete(queue, token)])
    assert isinstance(answer, LockLost)
    assert answer.cause is LossCause.EXPIRED
    (message,) = await broker.store.browse(queue.id, list(MessageState), 0, 10)
    assert message.state is MessageState.AVAILABLE


async def test_a_late_settlement_reports_lock_lost_after_a_concurrent_sweep(
    broker: OpenBroker, queue: Queue, clock: VirtualClock
) -> None:
    token = await held_token(broker, queue)
    await clock.advance(LOCK_SECONDS)
    interrupted = replace(broker, store=InterruptedStore(broker.store, lambda: expire_locks(broker.settling)))
    (answer,) = await settle(interrupted.settling, queue, [complete(queue, token)])
    assert isinstance(answer, LockLost)
    assert answer.lost_at == clock.now()


@pytest.mark.behaviour("S0.6")
async def test_a_concurrent_copy_of_a_settlement_gets_the_same_outcome(broker: OpenBroker, queue: Queue) -> None:
    token = await held_token(broker, queue)
    await renew(broker.settling, queue, token)
    interrupted = replace(
        broker, store=InterruptedStore(broker.store, lambda: settle_one(broker.settling, queue, complete(queue, token)))
    )
    answer = await settle_one(interrupted.settling, queue, complete(queue, token))
    assert answer.replayed


async def test_a_renewal_of_a_lock_that_expires_meanwhile_is_refused(
    broker: OpenBroker, queue: Queue, clock: VirtualClock
) -> None:
    token = await held_token(broker, queue)
    interrupted = replace(broker, store=InterruptedStore(broker.store, lambda: clock.advance(LOCK_SECONDS)))
    with pytest.raises(LockLost):
        await renew(interrupted.settling, queue, token)


async def test_a_live_lock_is_lost_only_if_its_own_generation_has_expired(broker: OpenBroker, queue: Queue) -> None:
    token = await held_token(broker, queue)
    await renew(broker.settling, queue, token)
    (locked,) = await broker.store.locked_messages([token])
    assert locked is not None
    assert await release_lost(broker.settling, locked, locked.lock_generation + 1) is None
    lost = await release_lost(broker.settling, locked, locked.lock_generation)
    assert lost is not None
    assert (lost.cause, lost.delivered_again) == (LossCause.EXPIRED, False)


async def test_settling_deletes_the_record_of_a_renewed_lock(broker: OpenBroker, queue: Queue) -> None:
    token = await held_token(broker, queue)
    await renew(broker.settling, queue, token)
    locks = RecordingLockStore(broker.lock_store)
    await settle_one(replace(broker, lock_store=locks).settling, queue, complete(queue, token))
    assert locks.dropped == [(token, MAX_GENERATION)]


class BusyStore:
    """A store in which another request holds the row of every settlement."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def remove(self, removals: Sequence[Removal]) -> list[bool]:
        return [False] * len(removals)


async def test_a_settlement_pauses_before_it_tries_a_held_row_again(
    broker: OpenBroker, queue: Queue, clock: VirtualClock
) -> None:
    token = await held_token(broker, queue)
    interrupted = replace(broker, store=BusyStore(broker.store))
    settling = asyncio.create_task(settle(interrupted.settling, queue, [complete(queue, token)]))
    await wait_until(lambda: clock.timers or settling.done(), "it pauses")
    assert not settling.done()
    assert [type(answer) for answer in await run_advancing(clock, settling)] == [MessageBusy]
