"""A message that is sent to a queue is stored in the last queue of a chain of at most four hops."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from app.broker.sending.send import send
from app.broker.sending.target_queue import last_queue
from app.domain.message import Envelope
from app.domain.queue import MAX_FORWARDING_HOPS, Queue, QueueSettings, QueueStatus
from app.domain.refusals import ForwardingTooLong, QueueNotFound, SendDisabled
from app.domain.sending import NewMessage
from tests.brokers import OpenBroker, set_forwarding


async def chain(broker: OpenBroker, hops: int, **last: Any) -> Queue:
    """Return the first queue of a chain."""
    names = [f"queue-{number}" for number in range(hops + 1)]
    await broker.store.queues.create(names[-1], QueueSettings(**last))
    for name, target in reversed(list(pairwise(names))):
        await broker.store.queues.create(name, QueueSettings(forward_to=target))
    queue = await broker.store.queues.by_name(names[0])
    assert queue is not None
    return queue


async def test_a_message_passes_four_hops(broker: OpenBroker) -> None:
    first = await chain(broker, MAX_FORWARDING_HOPS)
    await send(broker.sending, first.name, [NewMessage(Envelope(""))])
    last = await broker.store.queues.by_name(f"queue-{MAX_FORWARDING_HOPS}")
    assert last is not None
    assert await broker.store.queues.total(last.id) == 1


async def test_a_longer_chain_of_an_older_server_is_refused(broker: OpenBroker) -> None:
    first = await chain(broker, MAX_FORWARDING_HOPS)
    await broker.store.queues.create("further", QueueSettings())
    await set_forwarding(broker, f"queue-{MAX_FORWARDING_HOPS}", "further")
    with pytest.raises(ForwardingTooLong):
        await last_queue(broker.queue_cache, first)


async def test_a_closed_queue_on_the_way_refuses_the_message(broker: OpenBroker) -> None:
    first = await chain(broker, 2, status=QueueStatus.SEND_DISABLED)
    with pytest.raises(SendDisabled):
        await last_queue(broker.queue_cache, first)


async def test_the_refusal_names_the_queue_that_is_missing(broker: OpenBroker, queue: Queue) -> None:
    forwarding = replace(queue, settings=QueueSettings(forward_to="gone"))
    with pytest.raises(QueueNotFound, match="Queue orders forwards to queue gone"):
        await last_queue(broker.queue_cache, forwarding)
