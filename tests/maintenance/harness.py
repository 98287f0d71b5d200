"""A broker over a real store, with the steps that tests of its background loops need."""

from dataclasses import replace
from typing import Any

from app.broker.receiving.receive import ReceiveRequest, receive
from app.broker.sending.send import send
from app.domain.instant import SECOND
from app.domain.message import Envelope, Message, MessageState
from app.domain.queue import Queue, QueueSettings
from app.domain.sending import NewMessage
from app.domain.settlement import LockToken
from tests.brokers import CountingTally, OpenBroker
from tests.virtual_clock import VirtualClock

LOCK_DURATION = 30 * SECOND


class BrokerHarness:
    """A broker whose SQL uses a virtual clock."""

    def __init__(self, broker: OpenBroker, clock: VirtualClock) -> None:
        self.broker = broker
        self.clock = clock
        self.schedule_changes = 0
        broker.notifier.on_schedule_changed = self._schedule_changed

    def _schedule_changed(self) -> None:
        self.schedule_changes += 1

    @property
    def counters(self) -> CountingTally:
        """The counters of the broker."""
        return self.broker.counters

    async def queue(self, name: str = "orders", **settings: Any) -> Queue:
        """Create a queue whose locks last `LOCK_DURATION`."""
        queue, _ = await self.broker.store.queues.create(
            name, replace(QueueSettings(lock_duration=LOCK_DURATION), **settings)
        )
        return queue

    async def send(self, queue: Queue, count: int = 1, **new_message: Any) -> list[int]:
        """Send messages; return their sequence numbers."""
        receipts = (
            await send(self.broker.sending, queue.name, [NewMessage(Envelope(""), **new_message)] * count)
        ).result
        return [receipt.sequence_number for receipt in receipts]

    async def receive(self, queue: Queue, max_messages: int = 1) -> list[Message]:
        """Receive messages under lock."""
        return (await receive(self.broker.receiving, queue, ReceiveRequest(max_messages=max_messages))).result

    async def send_and_lock(self, queue: Queue) -> LockToken:
        """Send and receive a message; return its token."""
        await self.send(queue)
        (message,) = await self.receive(queue)
        return token_of(message)

    async def read(self, queue: Queue, number: int) -> Message | None:
        """Return the message in its current state."""
        return await self.broker.store.read(queue.id, number)

    async def state(self, queue: Queue, number: int) -> MessageState | None:
        """Return the state of the message, or None if it has left the queue."""
        message = await self.read(queue, number)
        return message and message.state


def token_of(message: Message) -> LockToken:
    """Return the token of a locked message."""
    return LockToken(message.sequence_number, message.lock_token)
