"""What receives use."""

from dataclasses import dataclass

from app.broker.filtering.search_state import SearchRegistry
from app.broker.ports.notifier import Counters
from app.broker.ports.receiving import ReceivingStore
from app.broker.queue_cache import QueueCache
from app.broker.receiving.delivered_ids import DeliveredIds
from app.broker.receiving.search_limits import SearchLimits
from app.broker.response_limits import ResponseLimits
from app.broker.settling.ports import SettlingPorts
from app.runtime.clock import Clock
from app.runtime.wait_queue import WaitQueue


@dataclass(frozen=True, slots=True)
class ReceivingPorts:
    """What receives use."""

    store: ReceivingStore
    settling: SettlingPorts
    wait_queue: WaitQueue[int]
    queue_cache: QueueCache
    searches: SearchRegistry
    search_limits: SearchLimits
    limits: ResponseLimits
    delivered_ids: DeliveredIds
    counters: Counters
    clock: Clock
