"""Nothing acknowledged is stored where no queue is: not by an id that was remembered, and not beside a deletion."""

import asyncio
import secrets
from collections.abc import AsyncIterator

import pytest

from app.broker.broker import Broker
from app.broker.filters import Everything
from app.broker.ports import Attempt, QueueGone, Redrive, Store, Unlocked
from app.broker.purge import Choice, redrive
from app.broker.send import post, send, send_each, send_once
from app.domain.instant import HOUR, MINUTE
from app.domain.message import Envelope, MessageState
from app.domain.queue import Queue, QueueSettings
from app.domain.refusals import QueueNotFound
from app.domain.sending import Letter
from tests.clock import VirtualClock
from tests.contract.subject import Subject, abandonment, draft
from tests.rooms import assemble

LETTER = Letter(Envelope(""))


def attempt() -> Attempt:
    """An attempt that nobody has made."""
    return Attempt(secrets.token_bytes(32), secrets.token_bytes(32), HOUR)


@pytest.fixture
async def gone(subject: Subject) -> Queue:
    """A queue that was deleted."""
    queue = await subject.queue()
    assert await subject.store.queues.delete(queue)
    return queue


# ---- the store -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("window", [0, MINUTE])
async def test_nothing_is_stored_in_a_queue_that_is_gone(
    subject: Subject, queue: Queue, gone: Queue, window: int
) -> None:
    lost = draft(gone, duplicate_window=window)
    for drafts in ([lost], [draft(queue, duplicate_window=window), lost]):
        with pytest.raises(QueueGone):
            await subject.store.send(drafts)
        with pytest.raises(QueueGone):
            await subject.store.send_once(drafts, attempt())
    assert await subject.execute("SELECT sequence_number FROM message") == []
    assert await subject.execute("SELECT message_id FROM recent_id WHERE remove_at > 0") == []
    assert await subject.execute("SELECT queue FROM accepted_count") == []
    assert await subject.execute("SELECT attempt_key FROM attempt") == []


@pytest.mark.parametrize("window", [0, MINUTE])
async def test_a_queue_that_is_gone_fails_no_neighbour(
    subject: Subject, queue: Queue, gone: Queue, window: int
) -> None:
    """Callers at the same moment share a statement."""
    sends = [subject.store.send([draft(one, duplicate_window=window)]) for one in (queue, gone) * 10]
    answers = await asyncio.gather(*sends, return_exceptions=True)
    assert [isinstance(answer, QueueGone) for answer in answers] == [False, True] * 10
    assert len(await subject.store.browse(queue.id, [MessageState.AVAILABLE], 0, 100)) == 10
    assert await subject.execute(f"SELECT sequence_number FROM message WHERE queue_id = {gone.id}") == []


async def dead_letter(subject: Subject, queue: Queue) -> Unlocked:
    """Send a message and dead-letter it."""
    message = await subject.locked(queue)
    assert await subject.store.move([abandonment(message, state=MessageState.DEAD_LETTERED)]) == [True]
    return Unlocked(message.sequence_number, queue.id, MessageState.DEAD_LETTERED)


async def test_nothing_is_redriven_into_a_queue_that_is_gone_or_out_of_one(
    subject: Subject, queue: Queue, gone: Queue
) -> None:
    row = await dead_letter(subject, queue)
    with pytest.raises(QueueGone):
        await subject.store.redrive([Redrive(row, gone.id)])
    (message,) = await subject.store.browse(queue.id, [MessageState.DEAD_LETTERED], 0, 10)
    assert message.sequence_number == row.sequence_number
    other = await subject.queue()
    assert await subject.store.queues.delete(queue)
    assert await subject.store.redrive([Redrive(row, other.id)]) == [False]
    assert await subject.execute(f"SELECT sequence_number FROM message WHERE queue_id = {other.id}") == []


# ---- a replica that remembers the id ---------------------------------------------------------------------------------


@pytest.fixture
async def broker(subject: Subject) -> AsyncIterator[Broker]:
    """A process that makes no queues by itself, over the store."""
    broker = assemble(subject.store, VirtualClock(), auto_create=False)
    yield broker
    await broker.outbox.close()
    await broker.catalogue.close()


async def remembered(broker: Broker, store: Store) -> Queue:
    """A queue that the process has looked up and another process has deleted since."""
    queue, _ = await store.queues.create(f"queue-{secrets.token_hex(4)}", QueueSettings())
    assert await broker.catalogue.named(queue.name) == queue
    assert await store.queues.delete(queue)
    return queue


async def made_again(broker: Broker, store: Store) -> tuple[Queue, Queue]:
    """A queue that the process remembers, and the one that has its name now."""
    before = await remembered(broker, store)
    after, _ = await store.queues.create(before.name, QueueSettings())
    return before, after


async def there(subject: Subject, queue: Queue) -> int:
    """How many messages can be received from a queue."""
    return len(await subject.store.browse(queue.id, [MessageState.AVAILABLE], 0, 100))


async def test_a_send_goes_to_the_queue_that_was_made_again(subject: Subject, broker: Broker) -> None:
    before, after = await made_again(broker, subject.store)
    await send(broker, before, [LETTER, LETTER])
    assert await there(subject, after) == 2
    before, after = await made_again(broker, subject.store)
    assert len(await send_each(broker, before, [LETTER])) == 1
    assert await there(subject, after) == 1


async def test_an_attempt_goes_to_the_queue_that_was_made_again(subject: Subject, broker: Broker) -> None:
    before, after = await made_again(broker, subject.store)
    once = attempt()
    for replayed in (False, True):
        assert (await send_once(broker, before.name, [LETTER], once)).replayed is replayed
    assert await there(subject, after) == 1


async def test_volatile_messages_go_to_the_queue_that_was_made_again(subject: Subject, broker: Broker) -> None:
    other = await subject.queue()
    before, after = await made_again(broker, subject.store)
    for queue in (before, other, before):
        await post(broker, queue, LETTER)
    await broker.outbox.close()
    assert (await there(subject, after), await there(subject, other)) == (2, 1)


async def test_a_redrive_goes_to_the_queue_that_was_made_again(subject: Subject, broker: Broker, queue: Queue) -> None:
    before, after = await made_again(broker, subject.store)
    await dead_letter(subject, queue)
    choice = Choice([MessageState.DEAD_LETTERED], Everything())
    assert await redrive(broker, queue, before, choice, None) == 1
    assert await there(subject, after) == 1


async def test_a_send_into_a_queue_that_is_gone_is_told_so(subject: Subject, broker: Broker, queue: Queue) -> None:
    before = await remembered(broker, subject.store)
    with pytest.raises(QueueNotFound, match=before.name):
        await send(broker, before, [LETTER])
    before = await remembered(broker, subject.store)
    with pytest.raises(QueueNotFound, match=before.name):
        await send_each(broker, before, [LETTER])
    before = await remembered(broker, subject.store)
    with pytest.raises(QueueNotFound, match=before.name):
        await send_once(broker, before.name, [LETTER], attempt())
    before = await remembered(broker, subject.store)
    await dead_letter(subject, queue)
    with pytest.raises(QueueNotFound, match=before.name):
        await redrive(broker, queue, before, Choice([MessageState.DEAD_LETTERED], Everything()), None)
    assert await subject.execute("SELECT sequence_number FROM message WHERE state = 1") == []
