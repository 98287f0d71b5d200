"""A wake-up that was lost costs a receiver no more than a moment."""

import asyncio

import pytest

from app.broker.receive import Wish, receive
from app.domain.message import Envelope
from app.domain.sending import Letter, accept
from app.maintenance.look import let_one_look
from tests.clock import settle
from tests.maintenance.house import House
from tests.servers import PATIENCE


async def test_one_receiver_of_each_queue_looks(house: House) -> None:
    bell = house.broker.waiting
    with bell.waiter(1) as first, bell.waiter(1) as second, bell.waiter(2) as other:
        await let_one_look(house.broker)
        assert [await each.rung(0) for each in (first, second, other)] == [True, False, True]


@pytest.mark.behaviour("S2.30")
async def test_a_message_that_came_without_a_wake_up_is_found(house: House) -> None:
    queue = await house.queue()
    receivers = [asyncio.create_task(receive(house.broker, queue, Wish(patience_seconds=20))) for _ in range(3)]
    await settle()
    await house.broker.store.send([accept(Letter(Envelope("unheard")), queue, "")] * 2)
    await let_one_look(house.broker)
    done, _ = await asyncio.wait(receivers, timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
    assert [message.envelope.message_id for task in done for message in task.result()] == ["unheard"]
    house.broker.waiting.close()
    await asyncio.gather(*receivers)
