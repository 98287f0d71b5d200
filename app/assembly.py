"""Gives each family of verbs the ports that it uses."""

from collections.abc import Callable
from dataclasses import dataclass, field

from app.broker.administration.page_limits import PageLimits
from app.broker.administration.ports import AdministrationPorts
from app.broker.broker import Broker
from app.broker.filtering.search_state import SearchRegistry
from app.broker.notify_receivers import ReceiverNotifier
from app.broker.ports.consumer_directory import ConsumerDirectory
from app.broker.ports.lock_store import LockStore
from app.broker.ports.notifier import Counters, Notifier
from app.broker.ports.store import Store
from app.broker.queue_cache import QueueCache
from app.broker.receiving.delivered_ids import DeliveredIds
from app.broker.receiving.ports import ReceivingPorts
from app.broker.receiving.search_limits import SearchLimits
from app.broker.response_limits import ResponseLimits
from app.broker.sending.durability import DurabilityCheck
from app.broker.sending.ports import SendingPorts
from app.broker.sending.volatile_buffer import VolatileBuffer
from app.broker.settling.ports import SettlingPorts
from app.broker.topics.ports import TopicPorts
from app.broker.topics.topic_cache import TopicCache
from app.broker.transactions.ports import TransactionPorts
from app.domain.transaction import OPEN_TRANSACTIONS_PER_PRINCIPAL
from app.runtime.clock import Clock
from app.runtime.round_robin_gate import RoundRobinGate
from app.runtime.wait_queue import WaitQueue


@dataclass(frozen=True)
class Components:
    """The backends and the shared state of one process.

    `random_fraction` returns a fraction in [0, 1). `new_id` returns a new message id.
    """

    store: Store
    lock_store: LockStore
    consumers: ConsumerDirectory
    notifier: Notifier
    counters: Counters
    clock: Clock
    wait_queue: WaitQueue[int]
    searches: SearchRegistry
    queue_cache: QueueCache
    topic_cache: TopicCache
    volatile_buffer: VolatileBuffer
    durability: DurabilityCheck
    response_limits: ResponseLimits
    random_fraction: Callable[[], float]
    new_id: Callable[[], str]
    delivered_ids: DeliveredIds = field(default_factory=DeliveredIds)
    page_limits: PageLimits = field(default_factory=PageLimits)
    search_limits: SearchLimits = field(default_factory=SearchLimits)
    transactions_per_principal: int = OPEN_TRANSACTIONS_PER_PRINCIPAL


def assemble(parts: Components) -> Broker:
    """Return the ports of all verbs."""
    store = parts.store
    receivers = _receivers(parts)
    sending = SendingPorts(
        store=store,
        queues=store.queues,
        queue_cache=parts.queue_cache,
        volatile_buffer=parts.volatile_buffer,
        durability=parts.durability,
        receivers=receivers,
        wait_queue=parts.wait_queue,
        clock=parts.clock,
        new_id=parts.new_id,
    )
    settling = SettlingPorts(
        store=store,
        queues=store.queues,
        lock_store=parts.lock_store,
        queue_cache=parts.queue_cache,
        receivers=receivers,
        notifier=parts.notifier,
        counters=parts.counters,
        clock=parts.clock,
        random_fraction=parts.random_fraction,
    )
    receiving = ReceivingPorts(
        store=store,
        settling=settling,
        wait_queue=parts.wait_queue,
        queue_cache=parts.queue_cache,
        searches=parts.searches,
        search_limits=parts.search_limits,
        limits=parts.response_limits,
        delivered_ids=parts.delivered_ids,
        counters=parts.counters,
        clock=parts.clock,
    )
    topics = TopicPorts(
        store=store.topics,
        sending=sending,
        topic_cache=parts.topic_cache,
        notifier=parts.notifier,
        counters=parts.counters,
        budget=parts.response_limits.budget,
        gate=RoundRobinGate(),
    )
    transactions = TransactionPorts(
        store=store.transactions,
        sending=sending,
        topics=topics,
        settling=settling,
        delivered_ids=parts.delivered_ids,
        principal_limit=parts.transactions_per_principal,
    )
    administration = AdministrationPorts(
        store=store,
        settling=settling,
        transactions=transactions,
        lock_store=parts.lock_store,
        queue_cache=parts.queue_cache,
        searches=parts.searches,
        receivers=receivers,
        notifier=parts.notifier,
        counters=parts.counters,
        wait_queue=parts.wait_queue,
        limits=parts.response_limits,
        page_limits=parts.page_limits,
        clock=parts.clock,
    )
    return Broker(
        sending=sending,
        receiving=receiving,
        settling=settling,
        topics=topics,
        transactions=transactions,
        administration=administration,
        store=store,
        lock_store=parts.lock_store,
        consumers=parts.consumers,
        queue_cache=parts.queue_cache,
        clock=parts.clock,
        counters=parts.counters,
        response_limits=parts.response_limits,
    )


def connect_notifications(parts: Components) -> None:
    """Also notify receivers of volatile messages once they are stored, and of messages that the store releases.

    Topics are read again when a queue changes, because they are cached with their queues.
    """
    parts.queue_cache.on_changed = parts.topic_cache.clear
    receivers = _receivers(parts)
    parts.volatile_buffer.on_stored = receivers.notify_sent
    parts.store.on_moved = receivers.notify_moved
    parts.store.on_admitted = receivers.notify_admitted


def _receivers(parts: Components) -> ReceiverNotifier:
    return ReceiverNotifier(parts.notifier, parts.searches, parts.counters)
