"""Dead letters move to the queue that the settings of their queue name, and stay as long as it does not accept them."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from app.broker.administration.forward_dead_letters import PAGE_SIZE, forward_dead_letters
from app.broker.administration.queues import change_queue
from app.broker.receiving.receive import ReceiveRequest, receive
from app.broker.sending.send import send
from app.broker.settling.outcomes import complete, dead_letter
from app.broker.settling.settle import settle_one
from app.domain.message import BodyKind, Envelope, MessageState
from app.domain.queue import Queue, QueueSettings, QueueStatus
from app.domain.sending import NewMessage
from app.domain.settlement import token_of
from app.maintenance.dead_letters import DeadLetterForwarder
from tests.brokers import OpenBroker, dead_letter_all, result_of
from tests.virtual_clock import run_ready_tasks

FORWARDS = QueueSettings(forward_dead_letters_to="failures")


@pytest.fixture
async def failures(broker: OpenBroker) -> Queue:
    """The queue to which dead letters are forwarded."""
    queue, _ = await broker.store.queues.create("failures", QueueSettings())
    return queue


@pytest.fixture
async def orders(broker: OpenBroker, failures: Queue) -> Queue:
    """A queue that forwards its dead letters."""
    queue, _ = await broker.store.queues.create("orders", FORWARDS)
    return queue


async def dead_letters(broker: OpenBroker, queue: Queue, *bodies: bytes) -> None:
    """Send messages to a queue, and dead-letter them."""
    await send(broker.sending, queue.name, [NewMessage(Envelope(""), body, BodyKind.BYTES) for body in bodies])
    assert await dead_letter_all(broker.store, queue) == len(bodies)


async def run_pass(broker: OpenBroker) -> float | None:
    """Run one pass of the background loop. Return the delay after it."""
    return await DeadLetterForwarder(broker.administration).step()


async def configure(broker: OpenBroker, queue: Queue, **settings: Any) -> None:
    """Change settings of a queue, as an administrator does."""
    await change_queue(broker.administration, queue, lambda before: replace(before, **settings))


async def counts(broker: OpenBroker, *queues: Queue) -> list[tuple[int, int]]:
    """Return the numbers of available and dead-lettered messages in each queue."""
    counted = await broker.store.queues.counts([queue.id for queue in queues])
    return [(counted[queue.id].available, counted[queue.id].dead_lettered) for queue in queues]


async def test_a_forwarded_message_says_why_it_failed_and_where(
    broker: OpenBroker, orders: Queue, failures: Queue
) -> None:
    await send(broker.sending, orders.name, [NewMessage(Envelope("id", properties=b'{"region":"eu"}'), b"body")])
    (held,) = (await receive(broker.receiving, orders, ReceiveRequest())).result
    await settle_one(broker.settling, orders, dead_letter(orders, token_of(held), "no-stock", "Sold out."))
    await run_pass(broker)
    (moved,) = (await receive(broker.receiving, failures, ReceiveRequest())).result
    assert (moved.sequence_number, moved.body, moved.delivery_count) == (held.sequence_number, b"body", 1)
    assert (moved.dead_letter_reason, moved.dead_letter_description) == ("no-stock", "Sold out.")
    assert moved.dead_lettered_at is not None
    assert json.loads(moved.envelope.properties) == {"region": "eu", "dead_letter_queue": "orders"}


async def test_a_waiting_receiver_of_the_target_is_woken(broker: OpenBroker, orders: Queue, failures: Queue) -> None:
    waiting = asyncio.create_task(result_of(receive(broker.receiving, failures, ReceiveRequest(wait_seconds=5))))
    await run_ready_tasks()
    await dead_letters(broker, orders, b"1")
    await run_pass(broker)
    await run_ready_tasks()
    assert waiting.done()
    assert [message.body for message in await waiting] == [b"1"]


async def test_dead_letters_from_before_the_setting_move_too(broker: OpenBroker, failures: Queue) -> None:
    queue, _ = await broker.store.queues.create("orders", QueueSettings())
    await dead_letters(broker, queue, b"1", b"2")
    assert await run_pass(broker) is None
    assert await counts(broker, queue, failures) == [(0, 2), (0, 0)]
    await configure(broker, queue, forward_dead_letters_to="failures")
    await run_pass(broker)
    assert await counts(broker, queue, failures) == [(0, 0), (2, 0)]
    assert broker.counters["dead_letters_forwarded"] == 2  # type: ignore[index]


async def test_more_than_a_page_moves_in_order_at_once(broker: OpenBroker, orders: Queue, failures: Queue) -> None:
    await dead_letters(broker, orders, *(str(number).encode() for number in range(PAGE_SIZE + 1)))
    forwarder = DeadLetterForwarder(broker.administration)
    assert await forwarder.step() == 0.0
    assert await counts(broker, orders, failures) == [(0, 1), (PAGE_SIZE, 0)]
    assert await forwarder.step() is None
    received = (await receive(broker.receiving, failures, ReceiveRequest(max_messages=1000))).result
    assert [message.body for message in received] == [str(number).encode() for number in range(PAGE_SIZE + 1)]


@pytest.mark.parametrize("closed", [{"status": QueueStatus.SEND_DISABLED}, {"max_messages": 1}])
async def test_what_the_target_does_not_accept_stays_until_it_does(
    broker: OpenBroker, orders: Queue, failures: Queue, closed: dict[str, Any]
) -> None:
    await send(broker.sending, failures.name, [NewMessage(Envelope(""))])
    await configure(broker, failures, **closed)
    await dead_letters(broker, orders, b"1", b"2")
    assert await run_pass(broker) is None
    assert await counts(broker, orders, failures) == [(0, 2), (1, 0)]
    assert broker.counters["dead_letters_forwarded"] == 0  # type: ignore[index]
    await configure(broker, failures, status=QueueStatus.ACTIVE, max_messages=2)
    await run_pass(broker)
    assert await counts(broker, orders, failures) == [(0, 1), (2, 0)]


async def test_dead_letters_stay_while_the_target_does_not_exist(
    broker: OpenBroker, orders: Queue, failures: Queue
) -> None:
    await dead_letters(broker, orders, b"1")
    assert await broker.store.queues.delete(failures)
    broker.queue_cache.clear()
    assert await run_pass(broker) is None
    assert await counts(broker, orders) == [(0, 1)]
    again, _ = await broker.store.queues.create("failures", QueueSettings())
    broker.queue_cache.clear()
    await run_pass(broker)
    assert await counts(broker, orders, again) == [(0, 0), (1, 0)]


@pytest.mark.parametrize("target", [None, "others"])
async def test_a_setting_that_is_changed_meanwhile_moves_nothing(
    broker: OpenBroker, orders: Queue, failures: Queue, target: str | None
) -> None:
    """A process has read the queues, and was paused before it moves a page."""
    await broker.store.queues.create("others", QueueSettings())
    await dead_letters(broker, orders, b"1")
    await configure(broker, orders, forward_dead_letters_to=target)
    assert await forward_dead_letters(broker.administration, orders, 0) is None
    assert await counts(broker, orders, failures) == [(0, 1), (0, 0)]


async def test_a_target_that_is_deleted_meanwhile_is_read_again(
    broker: OpenBroker, orders: Queue, failures: Queue
) -> None:
    await dead_letters(broker, orders, b"1")
    await broker.queue_cache.by_name("failures")
    assert await broker.store.queues.delete(failures)
    again, _ = await broker.store.queues.create("failures", QueueSettings())
    assert await run_pass(broker) is None
    assert await counts(broker, orders) == [(0, 1)]
    await run_pass(broker)
    assert await counts(broker, orders, again) == [(0, 0), (1, 0)]


async def test_messages_that_are_too_large_hold_up_no_others(
    broker: OpenBroker, orders: Queue, failures: Queue
) -> None:
    await configure(broker, failures, max_message_bytes=3)
    await dead_letters(broker, orders, *[b"large"] * PAGE_SIZE)
    await dead_letters(broker, orders, b"fit")
    forwarder = DeadLetterForwarder(broker.administration)
    assert [await forwarder.step() for _ in range(3)] == [0.0, None, 0.0]
    assert await counts(broker, orders, failures) == [(0, PAGE_SIZE), (1, 0)]


async def test_the_next_page_begins_after_the_last_message_of_a_page(
    broker: OpenBroker, orders: Queue, failures: Queue
) -> None:
    await configure(broker, failures, max_message_bytes=3)
    await dead_letters(broker, orders, *[b"large"] * (PAGE_SIZE + 1))
    page = await broker.store.browse_metadata(orders.id, [MessageState.DEAD_LETTERED], 0, PAGE_SIZE)
    after = await forward_dead_letters(broker.administration, orders, 0)
    assert after == page[-1].sequence_number
    assert await forward_dead_letters(broker.administration, orders, after) is None


async def test_a_target_that_forwards_is_followed(broker: OpenBroker, orders: Queue, failures: Queue) -> None:
    last, _ = await broker.store.queues.create("last", QueueSettings())
    await configure(broker, failures, forward_to="last")
    await dead_letters(broker, orders, b"1")
    await run_pass(broker)
    assert await counts(broker, orders, failures, last) == [(0, 0), (0, 0), (1, 0)]


async def test_a_dead_letter_that_a_receiver_holds_stays(broker: OpenBroker, orders: Queue, failures: Queue) -> None:
    await dead_letters(broker, orders, b"1")
    source = ReceiveRequest(source=MessageState.DEAD_LETTERED)
    (held,) = (await receive(broker.receiving, orders, source)).result
    await run_pass(broker)
    assert await counts(broker, failures) == [(0, 0)]
    await settle_one(broker.settling, orders, complete(orders, token_of(held)))
    assert await broker.store.queues.total(orders.id) == 0
