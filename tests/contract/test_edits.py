"""An edit changes the named fields of an unlocked message, if the message is unchanged since it was read."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from app.broker.ports.maintaining import Edit
from app.broker.ports.store import Store
from app.domain.instant import HOUR, MINUTE, SECOND
from app.domain.message import BodyKind, Draft, Envelope, Message, MessageState
from app.domain.queue import Queue
from tests.contract.store_fixture import StoreFixture, abandonment, bodies


async def sent(store_fixture: StoreFixture, queue: Queue, **fields: Any) -> Message:
    """A sent message as a reader gets it."""
    envelope = Envelope("id", properties=b'{"a":1}')
    (receipt,) = await store_fixture.store.send([Draft(queue.id, envelope, b"body", BodyKind.JSON, **fields)])
    message = await store_fixture.store.read(queue.id, receipt.sequence_number)
    assert message is not None
    return message


async def edited(store_fixture: StoreFixture, edit: Edit) -> Message:
    """Make an edit that takes effect. Return the message."""
    after = await store_fixture.store.edit(edit)
    assert after is not None
    assert after == replace(await read(store_fixture, after), read_at=after.read_at), (
        "the answer is the message as it is stored"
    )
    return after


async def read(store_fixture: StoreFixture, message: Message) -> Message:
    """Read the message as it is now."""
    found = await store_fixture.store.read(message.queue_id, message.sequence_number)
    assert found is not None
    return found


async def test_a_new_priority_changes_nothing_else(store_fixture: StoreFixture, queue: Queue) -> None:
    message = await sent(store_fixture, queue, ttl=HOUR)
    after = await edited(store_fixture, Edit(message, priority=9))
    assert after == replace(message, priority=9, read_at=after.read_at)


@pytest.mark.parametrize("properties", [b'{"b":2}', b""])
async def test_new_properties_change_nothing_else(store_fixture: StoreFixture, queue: Queue, properties: bytes) -> None:
    message = await sent(store_fixture, queue, delay=HOUR)
    after = await edited(store_fixture, Edit(message, properties=properties))
    assert after == replace(message, envelope=replace(message.envelope, properties=properties), read_at=after.read_at)


async def test_a_later_due_time_schedules_and_moves_the_expiry(store_fixture: StoreFixture, queue: Queue) -> None:
    message = await sent(store_fixture, queue, ttl=MINUTE)
    due = message.available_at + HOUR
    after = await edited(store_fixture, Edit(message, available_at=due))
    assert (after.state, after.available_at, after.expires_at) == (MessageState.SCHEDULED, due, due + MINUTE)
    await store_fixture.advance_time(3601)
    await store_fixture.store.promote(10)
    assert bodies(await store_fixture.claim(queue)) == [b"body"]


async def test_a_delay_counts_from_now(store_fixture: StoreFixture, queue: Queue) -> None:
    await store_fixture.advance_time(100)
    message = await sent(store_fixture, queue, delay=HOUR)
    after = await edited(store_fixture, Edit(message, delay=MINUTE))
    assert after.state is MessageState.SCHEDULED
    assert store_fixture.is_close(after.available_at, await store_fixture.store.now() + MINUTE)


async def test_a_past_due_time_makes_the_message_available_now(store_fixture: StoreFixture, queue: Queue) -> None:
    message = await sent(store_fixture, queue, delay=HOUR)
    await store_fixture.send(queue, b"before")
    await store_fixture.advance_time(1)
    after = await edited(store_fixture, Edit(await read(store_fixture, message), available_at=1))
    assert after.state is MessageState.AVAILABLE
    assert store_fixture.is_close(after.available_at, await store_fixture.store.now())
    assert bodies(await store_fixture.claim(queue)) == [b"before", b"body"]


async def test_an_edit_of_a_deferred_or_dead_lettered_message_keeps_its_state(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    message = await store_fixture.locked(queue)
    await store_fixture.store.move([abandonment(message, state=MessageState.DEFERRED)])
    after = await edited(store_fixture, Edit(await read(store_fixture, message), priority=0, properties=b'{"c":3}'))
    assert (after.state, after.priority, after.envelope.properties) == (MessageState.DEFERRED, 0, b'{"c":3}')


@pytest.mark.fence("queue", "state")
async def test_a_message_that_has_changed_since_is_not_edited(store_fixture: StoreFixture, queue: Queue) -> None:
    other = await store_fixture.queue()
    message = await sent(store_fixture, queue)
    await edited(store_fixture, Edit(message, priority=7))
    current = await read(store_fixture, message)
    for stale in (
        message,
        replace(current, available_at=current.available_at - SECOND),
        replace(current, delivery_count=1),
        replace(current, failure_count=1),
        replace(current, lock_generation=1),
        replace(current, envelope=replace(current.envelope, properties=b'{"A":1}')),
        replace(current, envelope=replace(current.envelope, properties=b"")),
        replace(current, state=MessageState.SCHEDULED),
        replace(current, queue_id=other.id),
        replace(current, sequence_number=10**15),
    ):
        assert await store_fixture.store.edit(Edit(stale, priority=1)) is None
        assert not await store_fixture.store.cancel(stale, queue)
        assert stale.etag != current.etag
    assert (await read(store_fixture, message)).priority == 7


@pytest.mark.fence("locked")
async def test_a_locked_message_is_not_edited_even_if_otherwise_unchanged(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    message = await store_fixture.locked(queue)
    locked = await read(store_fixture, message)
    assert locked.state is MessageState.LOCKED
    assert await store_fixture.store.edit(Edit(locked, priority=9)) is None
    assert await store_fixture.store.edit(Edit(replace(locked, state=MessageState.AVAILABLE), priority=9)) is None
    assert (await read(store_fixture, message)).priority == locked.priority


async def test_of_concurrent_edits_one_takes_effect(
    store_fixture: StoreFixture, stores: list[Store], queue: Queue
) -> None:
    message = await sent(store_fixture, queue, priority=0)
    answers = await asyncio.gather(*(stores[p % 2].edit(Edit(message, priority=p)) for p in range(1, 9)))
    (only,) = [answer for answer in answers if answer]
    assert (await read(store_fixture, message)).priority == only.priority


async def test_of_concurrent_edits_of_the_same_properties_one_takes_effect(
    store_fixture: StoreFixture, stores: list[Store], queue: Queue
) -> None:
    message = await sent(store_fixture, queue)
    edits = [Edit(message, properties=b'{"b":%d}' % index) for index in range(8)]
    answers = await asyncio.gather(*(stores[index % 2].edit(edit) for index, edit in enumerate(edits)))
    (only,) = [answer for answer in answers if answer]
    assert (await read(store_fixture, message)).envelope == only.envelope


async def test_a_message_that_was_delivered_since_is_neither_edited_nor_cancelled(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    message = await sent(store_fixture, queue)
    (delivered,) = await store_fixture.claim(queue)
    assert await store_fixture.store.move([abandonment(delivered)]) == [True]
    current = await read(store_fixture, message)
    assert (current.state, current.priority, current.available_at) == (
        message.state,
        message.priority,
        message.available_at,
    )
    assert await store_fixture.store.edit(Edit(message, priority=9)) is None
    assert not await store_fixture.store.cancel(message, queue)
    assert (await edited(store_fixture, Edit(current, priority=9))).priority == 9


async def test_a_cancelled_message_is_in_the_archive(store_fixture: StoreFixture, queue: Queue) -> None:
    message = await sent(store_fixture, queue)
    assert await store_fixture.store.cancel(message, queue)
    assert await store_fixture.archived(message.sequence_number, "queue", "outcome") == [(queue.name, "cancelled")]
    assert await store_fixture.store.read(queue.id, message.sequence_number) is None
    assert not await store_fixture.store.cancel(message, queue)


async def test_a_locked_message_is_not_cancelled_even_if_otherwise_unchanged(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    message = await store_fixture.locked(queue)
    locked = await read(store_fixture, message)
    assert not await store_fixture.store.cancel(locked, queue)
    assert not await store_fixture.store.cancel(replace(locked, state=MessageState.AVAILABLE), queue)
    assert await read(store_fixture, message)


async def test_of_a_concurrent_edit_and_cancellation_one_takes_effect(
    store_fixture: StoreFixture, stores: list[Store], queue: Queue
) -> None:
    for _ in range(5):
        message = await sent(store_fixture, queue)
        edit, cancelled = await asyncio.gather(
            stores[0].edit(Edit(message, priority=9)), stores[1].cancel(message, queue)
        )
        assert (edit is None) is cancelled
        assert (await store_fixture.store.read(queue.id, message.sequence_number) is None) is cancelled
