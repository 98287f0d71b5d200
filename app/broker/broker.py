"""The context that every operation receives: the open backends, behind their ports."""

from collections.abc import Callable
from dataclasses import dataclass

from app.broker.ports import Counters, LockStore, Notifier, Store
from app.broker.queue_cache import QueueCache
from app.broker.search_state import SearchRegistry
from app.broker.volatile_buffer import VolatileBuffer
from app.domain.weight import MAX_RESPONSE_BYTES
from app.runtime.byte_budget import ByteBudget
from app.runtime.clock import Clock
from app.runtime.wait_queue import WaitQueue


@dataclass(frozen=True, slots=True)
class Broker:
    """The backends and shared state of one process.

    `random_fraction` returns a fraction in [0, 1). `new_id` returns a new message id. `response_budget` counts the
    bytes of responses that are being read or written. The messages of one response weigh at most `max_response_bytes`,
    unless the response is a single message.
    """

    store: Store
    lock_store: LockStore
    queue_cache: QueueCache
    wait_queue: WaitQueue[int]
    notifier: Notifier
    volatile_buffer: VolatileBuffer
    searches: SearchRegistry
    counters: Counters
    clock: Clock
    random_fraction: Callable[[], float]
    new_id: Callable[[], str]
    response_budget: ByteBudget
    max_response_bytes: int = MAX_RESPONSE_BYTES
