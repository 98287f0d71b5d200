"""Messages past their time to live leave as their queue says, and what is past its time is forgotten."""

import pytest

from app.broker.complete import complete
from app.broker.settling import settle_one
from app.domain.instant import SECOND
from app.domain.message import MessageState
from app.domain.refusals import MessageNotFound
from app.maintenance.retention import BATCH_SIZE, FORGET_REST_SECONDS, forget_the_past, retire_messages
from app.maintenance.seal import Sealing
from tests.bounds import bounded
from tests.maintenance.house import House


async def test_a_message_past_its_time_to_live_goes_to_the_archive(house: House) -> None:
    queue = await house.queue()
    (number,) = await house.send(queue, ttl=10 * SECOND)
    (lasting,) = await house.send(queue)
    await house.clock.advance(9.9)
    await retire_messages(house.broker)
    assert await house.state(queue, number) is MessageState.AVAILABLE
    await house.clock.advance(0.1)
    await retire_messages(house.broker)
    assert await house.state(queue, number) is None
    assert await house.state(queue, lasting) is MessageState.AVAILABLE
    assert house.tally["messages_expired"] == 1


async def test_or_to_the_dead_letter_queue_where_its_queue_says_so(house: House) -> None:
    queue = await house.queue(dead_letter_on_expiry=True)
    (number,) = await house.send(queue, ttl=SECOND)
    await house.clock.advance(1)
    await retire_messages(house.broker)
    message = await house.read(queue, number)
    assert (message.state, message.dead_letter_reason) == (MessageState.DEAD_LETTERED, "ttl_expired")
    await house.clock.advance(3600)
    await retire_messages(house.broker)
    assert house.tally["messages_expired"] == 1, "there it stays"


async def test_a_message_of_a_deleted_queue_goes_to_the_archive(house: House) -> None:
    queue = await house.queue(dead_letter_on_expiry=True)
    (number,) = await house.send(queue, ttl=SECOND)
    assert await house.broker.store.queues.delete(queue)
    await house.clock.advance(1)
    await retire_messages(house.broker)
    assert await house.state(queue, number) is None
    assert house.tally["messages_expired"] == 1


async def test_a_message_in_somebodys_hands_is_not_taken_away(house: House) -> None:
    queue = await house.queue()
    await house.send(queue, ttl=SECOND)
    (message,) = await house.receive(queue)
    await house.clock.advance(5)
    await retire_messages(house.broker)
    assert await house.state(queue, message.sequence_number) is MessageState.LOCKED


async def test_it_does_not_rest_while_more_is_overdue_than_one_pass_ends(house: House) -> None:
    queue = await house.queue()
    await house.send(queue, count=BATCH_SIZE + 1, ttl=SECOND)
    await house.clock.advance(1)
    assert await retire_messages(house.broker) == 0.0
    assert await retire_messages(house.broker) is None
    assert house.tally["messages_expired"] == BATCH_SIZE + 1


async def test_what_is_remembered_of_a_settled_message_goes_with_the_archive(house: House) -> None:
    queue = await house.queue(archive_retention=60 * SECOND)
    token = await house.locked(queue)
    await settle_one(house.broker, queue, complete(queue, token))
    await house.clock.advance(59)
    assert await forget_the_past(house.broker) == FORGET_REST_SECONDS
    assert (await settle_one(house.broker, queue, complete(queue, token))).replayed
    await house.clock.advance(3601)
    await forget_the_past(house.broker)
    assert (await settle_one(house.broker, queue, complete(queue, token))).replayed, "it is not sealed yet"
    sealing = Sealing(house.broker, 10)
    for _ in bounded("sealing rests"):
        if await sealing.step():
            break
    await forget_the_past(house.broker)
    with pytest.raises(MessageNotFound):
        await settle_one(house.broker, queue, complete(queue, token))


async def test_it_does_not_rest_while_more_can_be_forgotten(house: House) -> None:
    queue = await house.queue()
    await house.send(queue, count=BATCH_SIZE + 1)
    await house.broker.store.queues.delete(queue)
    assert await forget_the_past(house.broker) == 0.0
    assert await forget_the_past(house.broker) == FORGET_REST_SECONDS
    assert house.tally["rows_forgotten"] == BATCH_SIZE + 1
