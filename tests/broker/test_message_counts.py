"""What happens to messages is counted for each queue, once, by the process that does it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.broker.administration.edit import cancel
from app.broker.administration.purge import purge
from app.broker.administration.queues import change_queue
from app.broker.administration.select_messages import MessageSelection
from app.broker.filtering.filters import MatchAll
from app.broker.ports.attempts import Attempt
from app.broker.receiving.receive import ReceiveMode, ReceiveRequest, receive
from app.broker.receiving.recover import recover
from app.broker.sending.send import send
from app.broker.sending.send_synchronously import send_synchronously
from app.broker.settling.outcomes import Abandonment, abandon, complete, dead_letter, defer
from app.broker.settling.settle import SettlementRequest, settle_one
from app.domain.instant import DAY, SECOND
from app.domain.message import Envelope, Message, MessageState
from app.domain.queue import Queue
from app.domain.refusals import NoReceiver
from app.domain.sending import NewMessage
from app.domain.settlement import token_of
from app.maintenance.expiry import expire_locks
from app.maintenance.retention import expire_overdue
from tests.brokers import CountingTally, OpenBroker
from tests.virtual_clock import VirtualClock


class Counted:
    """A broker with one queue, and what it has counted."""

    def __init__(self, broker: OpenBroker, clock: VirtualClock, queue: Queue) -> None:
        self.broker = broker
        self.clock = clock
        self.queue = queue

    @property
    def events(self) -> dict[str, int]:
        counters = self.broker.counters
        assert isinstance(counters, CountingTally)
        return {event: count for (queue_id, event), count in counters.messages.items() if queue_id == self.queue.id}

    async def change(self, **settings: object) -> None:
        self.queue = await change_queue(self.broker.administration, self.queue, lambda old: replace(old, **settings))

    async def send(self, *message_ids: str, **fields: object) -> None:
        new = [NewMessage(Envelope(one), **fields) for one in message_ids]
        await send(self.broker.sending, self.queue.name, new)

    async def receive(self, **wanted: object) -> list[Message]:
        request = ReceiveRequest(**{"max_messages": 10, **wanted})
        return (await receive(self.broker.receiving, self.queue, request)).result

    async def settle(self, request: SettlementRequest) -> None:
        await settle_one(self.broker.settling, self.queue, request)


@pytest.fixture
def counted(broker: OpenBroker, clock: VirtualClock, queue: Queue) -> Counted:
    return Counted(broker, clock, queue)


async def test_sends_deliveries_and_completions(counted: Counted) -> None:
    await counted.send("a", "b", "c")
    for message in await counted.receive(max_messages=2):
        await counted.settle(complete(counted.queue, token_of(message)))
    assert counted.events == {"sent": 3, "delivered": 2, "completed": 2}


async def test_repeats_count_nothing(counted: Counted) -> None:
    await counted.change(duplicate_detection_window=DAY)
    await counted.send("a")
    await counted.send("a")
    attempt = Attempt("key", b"digest" * 3, DAY)
    for _ in range(2):
        once = await receive(counted.broker.receiving, counted.queue, ReceiveRequest(max_messages=1), attempt)
    for _ in range(2):
        await counted.settle(complete(counted.queue, token_of(once.result[0])))
    assert counted.events == {"sent": 1, "delivered": 1, "completed": 1}


async def test_a_repeat_of_a_send_with_its_key_counts_nothing(counted: Counted) -> None:
    sending, name, message = counted.broker.sending, counted.queue.name, NewMessage(Envelope(""))
    for _ in range(2):
        await send(sending, name, [message], Attempt(b"key", b"digest" * 3, DAY))
    assert counted.events["sent"] == 1
    for _ in range(2):
        with pytest.raises(NoReceiver):
            await send_synchronously(sending, name, message, 0.0, Attempt(b"other", b"digest" * 3, DAY))
    assert counted.events["sent"] == 2


async def test_each_other_settlement(counted: Counted) -> None:
    await counted.send("a", "b", "c")
    first, second, third = await counted.receive()
    await counted.settle(abandon(counted.queue, token_of(first), Abandonment()))
    await counted.settle(defer(counted.queue, token_of(second)))
    await counted.settle(dead_letter(counted.queue, token_of(third), "bad", None))
    assert counted.events == {"sent": 3, "delivered": 3, "abandoned": 1, "deferred": 1, "dead_lettered": 1}


async def test_a_message_at_its_limit_counts_as_dead_lettered_once(counted: Counted) -> None:
    await counted.change(max_delivery_count=1)
    await counted.send("a")
    for source in (MessageState.AVAILABLE, MessageState.DEAD_LETTERED):
        [message] = await counted.receive(source=source)
        await counted.settle(abandon(counted.queue, token_of(message), Abandonment()))
    assert counted.events == {"sent": 1, "delivered": 2, "abandoned": 2, "dead_lettered": 1}


async def test_receive_and_delete(counted: Counted) -> None:
    await counted.send("a")
    await receive(
        counted.broker.receiving, counted.queue, ReceiveRequest(max_messages=1, mode=ReceiveMode.RECEIVE_AND_DELETE)
    )
    assert counted.events == {"sent": 1, "delivered": 1, "received": 1}


async def test_locks_that_end(counted: Counted) -> None:
    await counted.send("a")
    await counted.receive()
    await counted.clock.advance(3600)
    for _ in range(2):
        await expire_locks(counted.broker.settling)
    assert counted.events == {"sent": 1, "delivered": 1, "lock_expired": 1}


async def test_locks_that_a_change_of_settings_ends(counted: Counted) -> None:
    await counted.send("a")
    await counted.receive()
    await counted.change(max_delivery_count=3)
    assert counted.events == {"sent": 1, "delivered": 1, "entity_changed": 1}


@pytest.mark.parametrize(
    ("dead_letters", "events"), [(False, {"expired": 1}), (True, {"expired": 1, "dead_lettered": 1})]
)
async def test_messages_that_outlive_their_time(counted: Counted, dead_letters: bool, events: dict[str, int]) -> None:
    await counted.change(dead_letter_on_expiry=dead_letters)
    await counted.send("a", ttl=SECOND)
    await counted.clock.advance(10)
    for _ in range(2):
        await expire_overdue(counted.broker.administration)
    assert counted.events == {"sent": 1, **events}


async def test_purges_and_cancellations(counted: Counted) -> None:
    await counted.send("a", "b", "c")
    await cancel(counted.broker.administration, counted.queue, 1)
    await purge(counted.broker.administration, counted.queue, MessageSelection([MessageState.AVAILABLE], MatchAll()))
    assert counted.events == {"sent": 3, "cancelled": 1, "purged": 2}


async def test_recovered_messages_are_delivered_again(counted: Counted) -> None:
    await counted.send("a")
    await counted.receive(receiver_id="clerk")
    await recover(counted.broker.receiving, counted.queue, "clerk", 10)
    assert counted.events == {"sent": 1, "delivered": 2, "recovered": 1}
