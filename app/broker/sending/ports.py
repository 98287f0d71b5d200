"""What sends use."""

from collections.abc import Callable
from dataclasses import dataclass

from app.broker.notify_receivers import ReceiverNotifier
from app.broker.ports.queues import QueueStore
from app.broker.ports.sending import SendingStore
from app.broker.queue_cache import QueueCache
from app.broker.sending.durability import DurabilityCheck
from app.broker.sending.volatile_buffer import VolatileBuffer
from app.runtime.clock import Clock
from app.runtime.wait_queue import WaitQueue


@dataclass(frozen=True, slots=True)
class SendingPorts:
    """What sends use. `new_id` returns a new message id."""

    store: SendingStore
    queues: QueueStore
    queue_cache: QueueCache
    volatile_buffer: VolatileBuffer
    durability: DurabilityCheck
    receivers: ReceiverNotifier
    wait_queue: WaitQueue[int]
    clock: Clock
    new_id: Callable[[], str]
