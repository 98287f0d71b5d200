"""A broker over real rooms, and what tests of its background passes do with it."""

from dataclasses import replace
from typing import Any

from app.broker.broker import Broker
from app.broker.receive import ReceiveRequest, receive
from app.broker.send import send
from app.domain.instant import SECOND
from app.domain.message import Envelope, Message, MessageState
from app.domain.queue import Queue, QueueSettings
from app.domain.sending import NewMessage
from app.domain.settlement import LockToken
from tests.brokers import CountingTally
from tests.virtual_clock import VirtualClock

LOCK_DURATION = 30 * SECOND


class BrokerHarness:
    """A broker whose SQL goes by a virtual clock."""

    def __init__(self, broker: Broker, clock: VirtualClock) -> None:
        self.broker = broker
        self.clock = clock
        self.schedule_changes = 0
        broker.notifier.on_schedule_changed = self._schedule_changed

    def _schedule_changed(self) -> None:
        self.schedule_changes += 1

    @property
    def counters(self) -> CountingTally:
        """What was counted."""
        return self.broker.counters

    async def queue(self, name: str = "orders", **settings: Any) -> Queue:
        """A new queue whose locks last `D`."""
        queue, _ = await self.broker.store.queues.create(
            name, replace(QueueSettings(lock_duration=LOCK_DURATION), **settings)
        )
        return queue

    async def send(self, queue: Queue, count: int = 1, **letter: Any) -> list[int]:
        """Send messages; their sequence numbers."""
        receipts = await send(self.broker, queue, [NewMessage(Envelope(""), **letter)] * count)
        return [receipt.sequence_number for receipt in receipts]

    async def receive(self, queue: Queue, most: int = 1) -> list[Message]:
        """Receive messages under lock."""
        return await receive(self.broker, queue, ReceiveRequest(max_messages=most))

    async def send_and_lock(self, queue: Queue) -> LockToken:
        """The token of a message that was just sent and received."""
        await self.send(queue)
        (message,) = await self.receive(queue)
        return token_of(message)

    async def read(self, queue: Queue, number: int) -> Message | None:
        """The message as it stands."""
        return await self.broker.store.read(queue.id, number)

    async def state(self, queue: Queue, number: int) -> MessageState | None:
        """Where the message is; None when it has left the queue."""
        message = await self.read(queue, number)
        return message and message.state


def token_of(message: Message) -> LockToken:
    """The token of a locked message."""
    return LockToken(message.sequence_number, message.lock_token)
