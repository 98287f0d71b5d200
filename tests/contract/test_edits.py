"""An edit changes what it names of an unlocked message, and only while the message is as it was seen."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from app.broker.ports import Edit, Store
from app.domain.instant import HOUR, MINUTE, SECOND
from app.domain.message import BodyKind, Draft, Envelope, Message, MessageState
from app.domain.queue import Queue
from tests.contract.store_fixture import StoreFixture, abandonment, bodies, is_close


async def sent(store_fixture: StoreFixture, queue: Queue, **fields: Any) -> Message:
    """A message as a reader sees it."""
    envelope = Envelope("id", properties=b'{"a":1}')
    (receipt,) = await store_fixture.store.send([Draft(queue.id, envelope, b"body", BodyKind.JSON, **fields)])
    message = await store_fixture.store.read(queue.id, receipt.sequence_number)
    assert message is not None
    return message


async def edited(store_fixture: StoreFixture, edit: Edit) -> Message:
    """The message after an edit that takes effect."""
    after = await store_fixture.store.edit(edit)
    assert after is not None
    assert after == replace(await read(store_fixture, after), read_at=after.read_at), (
        "the answer is the message as it is stored"
    )
    return after


async def read(store_fixture: StoreFixture, message: Message) -> Message:
    """The message as it is now."""
    found = await store_fixture.store.read(message.queue_id, message.sequence_number)
    assert found is not None
    return found


async def test_a_new_priority_changes_nothing_else(store_fixture: StoreFixture, queue: Queue) -> None:
    seen = await sent(store_fixture, queue, ttl=HOUR)
    after = await edited(store_fixture, Edit(seen, priority=9))
    assert after == replace(seen, priority=9, read_at=after.read_at)


@pytest.mark.parametrize("properties", [b'{"b":2}', b""])
async def test_new_properties_change_nothing_else(store_fixture: StoreFixture, queue: Queue, properties: bytes) -> None:
    seen = await sent(store_fixture, queue, delay=HOUR)
    after = await edited(store_fixture, Edit(seen, properties=properties))
    assert after == replace(seen, envelope=replace(seen.envelope, properties=properties), read_at=after.read_at)


async def test_a_later_due_time_schedules_and_takes_the_life_along(store_fixture: StoreFixture, queue: Queue) -> None:
    seen = await sent(store_fixture, queue, ttl=MINUTE)
    due = seen.available_at + HOUR
    after = await edited(store_fixture, Edit(seen, available_at=due))
    assert (after.state, after.available_at, after.expires_at) == (MessageState.SCHEDULED, due, due + MINUTE)
    await store_fixture.advance_time(3601)
    await store_fixture.store.promote(10)
    assert bodies(await store_fixture.claim(queue)) == [b"body"]


async def test_a_delay_counts_from_now(store_fixture: StoreFixture, queue: Queue) -> None:
    await store_fixture.advance_time(100)
    seen = await sent(store_fixture, queue, delay=HOUR)
    after = await edited(store_fixture, Edit(seen, delay=MINUTE))
    assert after.state is MessageState.SCHEDULED
    assert is_close(after.available_at, await store_fixture.store.now() + MINUTE)


async def test_a_due_time_that_has_come_makes_available_now(store_fixture: StoreFixture, queue: Queue) -> None:
    seen = await sent(store_fixture, queue, delay=HOUR)
    await store_fixture.send(queue, b"before")
    await store_fixture.advance_time(1)
    after = await edited(store_fixture, Edit(await read(store_fixture, seen), available_at=1))
    assert after.state is MessageState.AVAILABLE
    assert is_close(after.available_at, await store_fixture.store.now())
    assert bodies(await store_fixture.claim(queue)) == [b"before", b"body"]


async def test_an_edit_of_a_set_aside_message_leaves_it_there(store_fixture: StoreFixture, queue: Queue) -> None:
    message = await store_fixture.locked(queue)
    await store_fixture.store.move([abandonment(message, state=MessageState.DEFERRED)])
    after = await edited(store_fixture, Edit(await read(store_fixture, message), priority=0, properties=b'{"c":3}'))
    assert (after.state, after.priority, after.envelope.properties) == (MessageState.DEFERRED, 0, b'{"c":3}')


async def test_a_message_that_has_changed_since_is_left_alone(store_fixture: StoreFixture, queue: Queue) -> None:
    other = await store_fixture.queue()
    seen = await sent(store_fixture, queue)
    await edited(store_fixture, Edit(seen, priority=7))
    current = await read(store_fixture, seen)
    for stale in (
        seen,
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
    assert (await read(store_fixture, seen)).priority == 7


async def test_a_locked_message_is_not_edited_even_as_it_was_seen(store_fixture: StoreFixture, queue: Queue) -> None:
    message = await store_fixture.locked(queue)
    locked = await read(store_fixture, message)
    assert locked.state is MessageState.LOCKED
    assert await store_fixture.store.edit(Edit(locked, priority=9)) is None
    assert await store_fixture.store.edit(Edit(replace(locked, state=MessageState.AVAILABLE), priority=9)) is None
    assert (await read(store_fixture, message)).priority == locked.priority


async def test_of_edits_at_once_one_takes_effect(
    store_fixture: StoreFixture, stores: list[Store], queue: Queue
) -> None:
    seen = await sent(store_fixture, queue, priority=0)
    answers = await asyncio.gather(*(stores[p % 2].edit(Edit(seen, priority=p)) for p in range(1, 9)))
    (only,) = [answer for answer in answers if answer]
    assert (await read(store_fixture, seen)).priority == only.priority


async def test_of_edits_at_once_that_change_the_same_properties_one_takes_effect(
    store_fixture: StoreFixture, stores: list[Store], queue: Queue
) -> None:
    seen = await sent(store_fixture, queue)
    edits = [Edit(seen, properties=b'{"b":%d}' % place) for place in range(8)]
    answers = await asyncio.gather(*(stores[place % 2].edit(wish) for place, wish in enumerate(edits)))
    (only,) = [answer for answer in answers if answer]
    assert (await read(store_fixture, seen)).envelope == only.envelope


async def test_a_message_that_was_delivered_since_is_neither_edited_nor_cancelled(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    seen = await sent(store_fixture, queue)
    (message,) = await store_fixture.claim(queue)
    assert await store_fixture.store.move([abandonment(message)]) == [True]
    current = await read(store_fixture, seen)
    assert (current.state, current.priority, current.available_at) == (seen.state, seen.priority, seen.available_at)
    assert await store_fixture.store.edit(Edit(seen, priority=9)) is None
    assert not await store_fixture.store.cancel(seen, queue)
    assert (await edited(store_fixture, Edit(current, priority=9))).priority == 9


async def test_a_message_that_was_cancelled_is_in_the_archive(store_fixture: StoreFixture, queue: Queue) -> None:
    seen = await sent(store_fixture, queue)
    assert await store_fixture.store.cancel(seen, queue)
    assert await store_fixture.archived(seen.sequence_number, "queue", "outcome") == [(queue.name, "cancelled")]
    assert await store_fixture.store.read(queue.id, seen.sequence_number) is None
    assert not await store_fixture.store.cancel(seen, queue)


async def test_a_locked_message_is_not_cancelled_even_as_it_was_seen(store_fixture: StoreFixture, queue: Queue) -> None:
    message = await store_fixture.locked(queue)
    locked = await read(store_fixture, message)
    assert not await store_fixture.store.cancel(locked, queue)
    assert not await store_fixture.store.cancel(replace(locked, state=MessageState.AVAILABLE), queue)
    assert await read(store_fixture, message)


async def test_of_an_edit_and_a_cancellation_at_once_one_takes_effect(
    store_fixture: StoreFixture, stores: list[Store], queue: Queue
) -> None:
    for _ in range(5):
        seen = await sent(store_fixture, queue)
        edit, cancelled = await asyncio.gather(stores[0].edit(Edit(seen, priority=9)), stores[1].cancel(seen, queue))
        assert (edit is None) is cancelled
        assert (await store_fixture.store.read(queue.id, seen.sequence_number) is None) is cancelled
