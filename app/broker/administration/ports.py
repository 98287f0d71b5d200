"""What administrators and background loops use."""

from dataclasses import dataclass

from app.broker.administration.page_limits import PageLimits
from app.broker.filtering.search_state import SearchRegistry
from app.broker.notify_receivers import ReceiverNotifier
from app.broker.ports.lock_store import LockStore
from app.broker.ports.notifier import Counters, Notifier
from app.broker.ports.store import Store
from app.broker.queue_cache import QueueCache
from app.broker.response_limits import ResponseLimits
from app.broker.settling.ports import SettlingPorts
from app.broker.transactions.ports import TransactionPorts
from app.runtime.clock import Clock
from app.runtime.wait_queue import WaitQueue


@dataclass(frozen=True, slots=True)
class AdministrationPorts:
    """What administrators and background loops use: the complete store, and what tells others of a change."""

    store: Store
    settling: SettlingPorts
    transactions: TransactionPorts
    lock_store: LockStore
    queue_cache: QueueCache
    searches: SearchRegistry
    receivers: ReceiverNotifier
    notifier: Notifier
    counters: Counters
    wait_queue: WaitQueue[int]
    limits: ResponseLimits
    page_limits: PageLimits
    clock: Clock
