"""A lost wake-up delays a receiver only briefly."""

import asyncio

import pytest

from app.broker.receiving.receive import ReceiveRequest, receive
from app.domain.message import Envelope
from app.domain.sending import NewMessage, create_draft
from app.maintenance.schedule import wake_receivers
from tests.brokers import result_of
from tests.maintenance.harness import BrokerHarness
from tests.servers import TIMEOUT_SECONDS
from tests.virtual_clock import run_ready_tasks


async def test_one_receiver_of_each_queue_is_woken(harness: BrokerHarness) -> None:
    wait_queue = harness.broker.wait_queue
    with wait_queue.waiter(1) as first, wait_queue.waiter(1) as second, wait_queue.waiter(2) as other:
        await wake_receivers(harness.broker.wait_queue)
        assert [await each.woken(0) for each in (first, second, other)] == [True, False, True]


@pytest.mark.behaviour("S2.30")
async def test_a_message_without_a_wake_up_is_found(harness: BrokerHarness) -> None:
    queue = await harness.queue()
    receivers = [
        asyncio.create_task(result_of(receive(harness.broker.receiving, queue, ReceiveRequest(wait_seconds=20))))
        for _ in range(3)
    ]
    await run_ready_tasks()
    await harness.broker.store.send([create_draft(NewMessage(Envelope("unheard")), queue, "")] * 2)
    await wake_receivers(harness.broker.wait_queue)
    done, _ = await asyncio.wait(receivers, timeout=TIMEOUT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
    assert [message.envelope.message_id for task in done for message in task.result()] == ["unheard"]
    harness.broker.wait_queue.close()
    await asyncio.gather(*receivers)
