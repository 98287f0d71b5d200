"""The store knows whether a message was delivered again after a lock was lost."""

import pytest

from app.broker.ports.maintaining import Redrive, UnlockedRow, Withdrawal
from app.domain.instant import DAY, SECOND
from app.domain.message import MessageState
from app.domain.queue import Queue
from app.domain.settlement import Outcome, Tombstone
from tests.contract.store_fixture import LOCK_DURATION, StoreFixture, abandonment, completion, expiry, token

ENDED = LOCK_DURATION // SECOND + 1


async def tombstone_of(store_fixture: StoreFixture, queue: Queue) -> Tombstone:
    """The tombstone of a delivery whose lock expired some time ago."""
    message = await store_fixture.locked(queue)
    await store_fixture.advance_time(ENDED)
    await store_fixture.store.release([expiry(message)])
    (tombstone,) = await store_fixture.store.tombstones([token(message)])
    assert tombstone is not None
    return tombstone


async def test_an_available_message_was_not_delivered_again(store_fixture: StoreFixture, queue: Queue) -> None:
    assert not await store_fixture.store.delivered_since(await tombstone_of(store_fixture, queue))


@pytest.mark.parametrize("retention", [0, DAY])
async def test_a_message_purged_before_a_second_receive_was_not_delivered_again(
    store_fixture: StoreFixture, queue: Queue, retention: int
) -> None:
    tombstone = await tombstone_of(store_fixture, queue)
    row = UnlockedRow(tombstone.token.sequence_number, queue.id, MessageState.AVAILABLE)
    assert await store_fixture.store.withdraw([Withdrawal(row, queue.name, Outcome.PURGED, retention)]) == [True]
    assert not await store_fixture.store.delivered_since(tombstone)


async def test_a_locked_message_was_delivered_again(store_fixture: StoreFixture, queue: Queue) -> None:
    tombstone = await tombstone_of(store_fixture, queue)
    (again,) = await store_fixture.claim(queue)
    assert again.sequence_number == tombstone.token.sequence_number
    assert await store_fixture.store.delivered_since(tombstone)


@pytest.mark.parametrize("retention", [0, DAY])
async def test_a_completed_message_was_delivered_again(
    store_fixture: StoreFixture, queue: Queue, retention: int
) -> None:
    tombstone = await tombstone_of(store_fixture, queue)
    (again,) = await store_fixture.claim(queue)
    assert await store_fixture.store.remove([completion(queue, again, retention=retention)]) == [True]
    assert await store_fixture.store.delivered_since(tombstone)


async def test_a_message_received_before_a_redrive_was_delivered_again(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    tombstone = await tombstone_of(store_fixture, queue)
    (again,) = await store_fixture.claim(queue)
    dead = abandonment(again, outcome=Outcome.DEAD_LETTERED, state=MessageState.DEAD_LETTERED)
    assert await store_fixture.store.move([dead]) == [True]
    other = await store_fixture.queue()
    row = UnlockedRow(again.sequence_number, queue.id, MessageState.DEAD_LETTERED)
    assert await store_fixture.store.redrive([Redrive(row, other.id)]) == [True]
    assert await store_fixture.store.delivered_since(tombstone)
