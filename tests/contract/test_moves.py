"""Messages that were not delivered move to another queue with counts of 0, in the order of their groups."""

import pytest
from msgspec.structs import replace

from app.broker.ports.maintaining import Redrive, UnlockedRow
from app.domain.instant import SECOND
from app.domain.message import Draft, Message, MessageState
from app.domain.queue import Queue, QueueSettings
from app.domain.work_unit import WorkUnit
from tests.contract.store_fixture import StoreFixture, abandonment, bodies, completion, draft, numbers

MOVABLE = [MessageState.AVAILABLE, MessageState.BLOCKED, MessageState.DEAD_LETTERED]


@pytest.fixture
async def fifo(store_fixture: StoreFixture) -> Queue:
    """An empty queue with one message of a group in flight."""
    return await store_fixture.queue(QueueSettings(group_in_flight=1))


def grouped(queue: Queue, group_id: str, body: bytes) -> Draft:
    """A draft in a group."""
    unique = draft(queue, body)
    return replace(unique, envelope=replace(unique.envelope, group_id=group_id), is_in_group=queue.has_groups)


async def send_groups(store_fixture: StoreFixture, queue: Queue, texts: str) -> list[int]:
    """Send a message for each text such as `a1`, whose first letter is its group. Return their numbers."""
    drafts = [grouped(queue, text[0], text.encode()) for text in texts.split()]
    return [receipt.sequence_number for receipt in await store_fixture.store.send(drafts)]


async def redrives_of(store_fixture: StoreFixture, queue: Queue, target: Queue) -> list[Redrive]:
    """Return the redrives of all messages of a queue that can move, as they are now."""
    page = await store_fixture.store.browse_metadata(queue.id, MOVABLE, 0, 100)
    return [Redrive(UnlockedRow(one.sequence_number, queue.id, one.state), target.id) for one in page]


async def move(store_fixture: StoreFixture, queue: Queue, target: Queue) -> list[bool]:
    """Move all messages of a queue that can move to another one. Return whether each has moved."""
    return await store_fixture.store.redrive(await redrives_of(store_fixture, queue, target))


async def drained(store_fixture: StoreFixture, queue: Queue) -> list[str]:
    """Receive and complete all messages of a queue, as few at once as it gives. Return their bodies in order."""
    texts: list[str] = []
    while received := await store_fixture.claim(queue):
        texts += [body.decode() for body in bodies(received)]
        assert all(
            await store_fixture.store.remove([completion(queue, one, is_in_group=queue.has_groups) for one in received])
        )
    return texts


async def counts(store_fixture: StoreFixture, queue: Queue) -> tuple[int, int, int]:
    """Return the numbers of available, locked and blocked messages."""
    counted = (await store_fixture.store.queues.counts([queue.id]))[queue.id]
    return counted.available, counted.locked, counted.blocked


async def failed_once(store_fixture: StoreFixture, queue: Queue) -> Message:
    """Return a message that is available again after a delivery."""
    message = await store_fixture.locked(queue)
    assert await store_fixture.store.move([abandonment(message)]) == [True]
    return message


async def test_an_available_message_moves_with_counts_of_0(store_fixture: StoreFixture, queue: Queue) -> None:
    target = await store_fixture.queue()
    failed = await failed_once(store_fixture, queue)
    assert await move(store_fixture, queue, target) == [True]
    (moved,) = await store_fixture.claim(target)
    assert (moved.sequence_number, moved.envelope, moved.body) == (failed.sequence_number, failed.envelope, failed.body)
    assert (moved.delivery_count, moved.failure_count, moved.last_failure) == (1, 0, None)
    assert await store_fixture.claim(queue) == []


@pytest.mark.fence("queue", "state")
async def test_a_message_that_has_changed_since_it_was_read_does_not_move(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    target, third = await store_fixture.queue(), await store_fixture.queue()
    await failed_once(store_fixture, queue)
    (redrive,) = await redrives_of(store_fixture, queue, target)
    (held,) = await store_fixture.claim(queue)
    assert await store_fixture.store.redrive([redrive]) == [False]
    assert await store_fixture.store.move([abandonment(held)]) == [True]
    elsewhere = Redrive(UnlockedRow(held.sequence_number, third.id, MessageState.AVAILABLE), target.id)
    assert await store_fixture.store.redrive([elsewhere]) == [False]
    assert await store_fixture.store.redrive([redrive, redrive]) == [True, False]


@pytest.mark.fence("time")
async def test_an_expired_message_does_not_move(store_fixture: StoreFixture, queue: Queue) -> None:
    """It would live on: in the target, messages do not expire."""
    target = await store_fixture.queue()
    await store_fixture.send(queue, b"expired", ttl=1 * SECOND)
    (living,) = await store_fixture.send(queue, b"living", ttl=100 * SECOND)
    redrives = await redrives_of(store_fixture, queue, target)
    await store_fixture.advance_time(2)
    assert await store_fixture.store.redrive(redrives) == [False, True]
    await store_fixture.advance_time(100)
    assert numbers(await store_fixture.claim(target)) == [living]


@pytest.mark.fence("offer")
async def test_a_message_whose_sender_waits_does_not_move(store_fixture: StoreFixture, queue: Queue) -> None:
    target = await store_fixture.queue()
    offer = WorkUnit(drafts=[draft(queue, ttl=60 * SECOND, offer_retention=60 * SECOND)])
    await store_fixture.store.execute(offer, None)
    assert await move(store_fixture, queue, target) == [False]
    assert await counts(store_fixture, queue) == (1, 0, 0)


async def test_groups_move_whole_and_in_order(store_fixture: StoreFixture, fifo: Queue) -> None:
    target = await store_fixture.queue(QueueSettings(group_in_flight=1))
    await send_groups(store_fixture, fifo, "a1 b1 a2 a3 b2")
    assert await move(store_fixture, fifo, target) == [True] * 5
    assert await counts(store_fixture, fifo) == (0, 0, 0)
    assert await counts(store_fixture, target) == (2, 0, 3)
    received = await drained(store_fixture, target)
    assert [text for text in received if text[0] == "a"] == ["a1", "a2", "a3"]
    assert [text for text in received if text[0] == "b"] == ["b1", "b2"]


async def test_messages_without_a_limit_enter_the_groups_of_the_target(
    store_fixture: StoreFixture, queue: Queue, fifo: Queue
) -> None:
    await send_groups(store_fixture, queue, "a1 a2 b1")
    assert await move(store_fixture, queue, fifo) == [True] * 3
    assert await counts(store_fixture, fifo) == (2, 0, 1)
    assert await move(store_fixture, fifo, queue) == [True] * 3
    assert await counts(store_fixture, queue) == (3, 0, 0)


async def test_messages_behind_one_in_flight_stay_behind_it(
    store_fixture: StoreFixture, fifo: Queue, queue: Queue
) -> None:
    await send_groups(store_fixture, fifo, "a1 a2 b1 b2")
    (held, other) = await store_fixture.claim(fifo)
    assert bodies([held, other]) == [b"a1", b"b1"]
    assert await store_fixture.store.move([abandonment(other, is_in_group=True)]) == [True]
    assert await move(store_fixture, fifo, queue) == [False, True, True]
    assert await drained(store_fixture, queue) == ["b1", "b2"]
    assert await store_fixture.store.remove([completion(fifo, held, is_in_group=True)]) == [True]
    assert await drained(store_fixture, fifo) == ["a2"]


async def test_messages_behind_one_that_does_not_move_stay_behind_it(
    store_fixture: StoreFixture, fifo: Queue, queue: Queue
) -> None:
    """Such as one that is too large for the target."""
    await send_groups(store_fixture, fifo, "a1 a2 a3 b1 b2")
    redrives = await redrives_of(store_fixture, fifo, queue)
    assert await store_fixture.store.redrive([redrives[0], *redrives[2:]]) == [True, False, True, True]
    assert await drained(store_fixture, queue) == ["a1", "b1", "b2"]
    assert await drained(store_fixture, fifo) == ["a2", "a3"]


async def test_the_next_message_of_a_group_follows_when_the_first_has_moved(
    store_fixture: StoreFixture, fifo: Queue, queue: Queue
) -> None:
    first, second = await send_groups(store_fixture, fifo, "a1 a2")
    redrives = await redrives_of(store_fixture, fifo, queue)
    admitted: list[int] = []
    store_fixture.store.on_admitted = lambda messages: admitted.extend(one.sequence_number for one in messages)
    assert await store_fixture.store.redrive(redrives[:1]) == [True]
    assert admitted == [second]
    assert await counts(store_fixture, fifo) == (1, 0, 0)
    assert await store_fixture.store.redrive(redrives[1:]) == [True], "it was read as blocked"
    assert numbers(await store_fixture.claim(queue)) == [first, second]
