"""Gives each family of verbs, and the background loops, the ports that they use."""

from collections.abc import Callable
from dataclasses import dataclass, field

from app.broker.administration.browse import BrowsePorts, PageLimits
from app.broker.administration.browse_archive import ArchivePorts
from app.broker.administration.edit import EditPorts
from app.broker.administration.expire import ExpirePorts
from app.broker.administration.explain import ExplainPorts
from app.broker.administration.forward_dead_letters import DeadLetterPorts
from app.broker.administration.history import HistoryPorts
from app.broker.administration.plan import PlanPorts
from app.broker.administration.purge import PurgePorts
from app.broker.administration.queues import QueuePorts
from app.broker.administration.redrive import RedrivePorts
from app.broker.administration.restore import RestorePorts
from app.broker.administration.resubmit import ResubmitPorts
from app.broker.administration.trim import TrimPorts
from app.broker.broker import Broker
from app.broker.filtering.search_state import SearchRegistry
from app.broker.notify_receivers import ReceiverNotifier
from app.broker.ports import Counters, LockStore, Notifier, Store
from app.broker.queue_cache import QueueCache
from app.broker.receiving.delivered_ids import DeliveredIds
from app.broker.receiving.receive import ReceivePorts
from app.broker.receiving.receive_filtered import SearchLimits, SearchPorts
from app.broker.receiving.recover import RecoverPorts
from app.broker.receiving.wait import WaitPorts
from app.broker.response_limits import ResponseLimits
from app.broker.sending.durability import DurabilityCheck
from app.broker.sending.send import SendPorts
from app.broker.sending.send_synchronously import SynchronousPorts
from app.broker.sending.volatile_buffer import VolatileBuffer
from app.broker.settling.end_synchronous_send import EndSynchronousSendPorts
from app.broker.settling.release_expired import ReleasePorts
from app.broker.settling.renew import RenewPorts
from app.broker.settling.revoke_locks import RevokePorts
from app.broker.settling.settle import SettlePorts
from app.broker.topics.publish import PublishPorts
from app.broker.topics.topic_cache import TopicCache
from app.broker.topics.topics import TopicPorts
from app.broker.transactions.commit import CommitPorts
from app.broker.transactions.execute import ExecutePorts
from app.broker.transactions.join import JoinPorts
from app.broker.transactions.open_transactions import TransactionPorts
from app.domain.instant import Duration
from app.domain.state import DEFAULT_RETENTION
from app.domain.transaction import OPEN_TRANSACTIONS_PER_PRINCIPAL
from app.maintenance.background_loops import MaintenancePorts
from app.maintenance.expiry import SweepPorts
from app.maintenance.retention import DeletePorts, DeleteVersionsPorts
from app.maintenance.roll_back import RollBackPorts
from app.maintenance.schedule import SchedulePorts
from app.maintenance.seal import SealPorts
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
    state_retention: Duration = DEFAULT_RETENTION
    transactions_per_principal: int = OPEN_TRANSACTIONS_PER_PRINCIPAL


@dataclass(frozen=True, slots=True)
class _SharedPorts:
    """Ports that several families have."""

    receivers: ReceiverNotifier
    releasing: ReleasePorts
    revoking: RevokePorts
    offers: EndSynchronousSendPorts


def assemble_verbs(parts: Components) -> Broker:
    """Return the ports of all verbs."""
    shared = _shared_ports(parts)
    settling = SettlePorts(
        parts.store,
        parts.lock_store,
        shared.releasing,
        shared.offers,
        shared.receivers,
        parts.clock,
        parts.random_fraction,
    )
    renewing = RenewPorts(parts.store, parts.lock_store, settling, parts.counters, parts.clock)
    browsing = BrowsePorts(
        parts.store, parts.lock_store, parts.searches, parts.response_limits, parts.page_limits, parts.clock
    )
    sending = _send_ports(parts, shared.receivers)
    publishing = PublishPorts(
        sending, parts.topic_cache, parts.counters, parts.response_limits.budget, RoundRobinGate()
    )
    executing = ExecutePorts(parts.store, publishing, settling, parts.counters)
    return Broker(
        sending=sending,
        publishing=publishing,
        sending_synchronously=_synchronous_ports(parts, shared.receivers),
        receiving=_receive_ports(parts, settling, renewing),
        recovering=_recover_ports(parts),
        settling=settling,
        renewing=renewing,
        joining=JoinPorts(parts.store.transactions, publishing, settling),
        transactions=TransactionPorts(
            parts.store.transactions,
            settling,
            parts.durability,
            parts.response_limits.budget,
            parts.transactions_per_principal,
            parts.new_id,
        ),
        executing=executing,
        committing=CommitPorts(parts.store, parts.delivered_ids, executing),
        browsing=browsing,
        browsing_archive=ArchivePorts(parts.store.archive, parts.searches, parts.page_limits, parts.clock),
        explaining=ExplainPorts(parts.store, parts.store.queues, parts.store, parts.lock_store, parts.wait_queue),
        reading_history=HistoryPorts(parts.store),
        editing=EditPorts(parts.store, browsing, shared.receivers, parts.counters),
        purging=_purge_ports(parts),
        redriving=_redrive_ports(parts, shared.receivers),
        restoring=_restore_ports(parts, shared.receivers),
        resubmitting=ResubmitPorts(parts.store, browsing, executing),
        planning=PlanPorts(parts.store, parts.store, parts.searches, parts.store.queues, parts.clock),
        queues=QueuePorts(parts.store.queues, parts.queue_cache, parts.notifier, shared.receivers, shared.revoking),
        topics=TopicPorts(parts.store.topics, parts.topic_cache, parts.queue_cache, parts.notifier),
        trimming=TrimPorts(parts.store.archive, parts.counters, parts.clock),
        queue_cache=parts.queue_cache,
        keys=parts.store.keys,
        states=parts.store.states,
        lock_store=parts.lock_store,
        store_clock=parts.store,
        store_description=parts.store,
        store_readiness=parts.store,
        durability=parts.durability,
        clock=parts.clock,
        counters=parts.counters,
        response_limits=parts.response_limits,
    )


def assemble_loops(parts: Components) -> MaintenancePorts:
    """Return the ports of the background loops."""
    shared = _shared_ports(parts)
    store, counters = parts.store, parts.counters
    return MaintenancePorts(
        sweeping=SweepPorts(store, parts.lock_store, shared.releasing, shared.revoking),
        scheduling=SchedulePorts(store, shared.receivers, counters),
        expiring=ExpirePorts(store, parts.queue_cache, store.queues, shared.receivers, counters),
        deleting=DeletePorts(store, store.archive, counters),
        forwarding_dead_letters=DeadLetterPorts(
            store, store.queues, parts.queue_cache, store.queues, shared.receivers, counters
        ),
        rolling_back=RollBackPorts(store.transactions, counters),
        deleting_versions=DeleteVersionsPorts(store.states, parts.state_retention, counters),
        sealing=SealPorts(store.archive, counters),
        wait_queue=parts.wait_queue,
        clock=parts.clock,
    )


def connect_notifications(parts: Components) -> None:
    """Also notify receivers of volatile messages once they are stored, and of messages that the store releases.

    Topics are read again when a queue changes, because they are cached with their queues.
    """
    parts.queue_cache.on_changed = parts.topic_cache.clear
    receivers = ReceiverNotifier(parts.notifier, parts.searches, parts.counters)
    parts.volatile_buffer.on_stored = receivers.notify_sent
    parts.store.on_moved = receivers.notify_moved
    parts.store.on_admitted = receivers.notify_admitted


def _shared_ports(parts: Components) -> _SharedPorts:
    store, counters = parts.store, parts.counters
    receivers = ReceiverNotifier(parts.notifier, parts.searches, parts.counters)
    offers = EndSynchronousSendPorts(store, parts.notifier)
    return _SharedPorts(
        receivers,
        ReleasePorts(store, parts.queue_cache, offers, receivers, counters, parts.random_fraction),
        RevokePorts(store, store.queues, parts.lock_store, offers, receivers, counters),
        offers,
    )


def _send_ports(parts: Components, receivers: ReceiverNotifier) -> SendPorts:
    return SendPorts(
        parts.store,
        parts.queue_cache,
        parts.store.queues,
        parts.volatile_buffer,
        parts.durability,
        receivers,
        parts.new_id,
    )


def _synchronous_ports(parts: Components, receivers: ReceiverNotifier) -> SynchronousPorts:
    return SynchronousPorts(
        parts.store,
        parts.queue_cache,
        parts.store.queues,
        receivers,
        parts.wait_queue,
        parts.clock,
        parts.new_id,
    )


def _receive_ports(parts: Components, settling: SettlePorts, renewing: RenewPorts) -> ReceivePorts:
    waiting = WaitPorts(parts.wait_queue, parts.queue_cache, parts.clock)
    searching = SearchPorts(parts.store, parts.searches, waiting, settling, parts.response_limits, parts.search_limits)
    return ReceivePorts(
        parts.store,
        waiting,
        searching,
        settling,
        renewing,
        parts.delivered_ids,
        parts.response_limits,
        parts.counters,
    )


def _recover_ports(parts: Components) -> RecoverPorts:
    return RecoverPorts(
        parts.store,
        parts.lock_store,
        parts.queue_cache,
        parts.notifier,
        parts.response_limits,
        parts.counters,
        parts.clock,
    )


def _purge_ports(parts: Components) -> PurgePorts:
    return PurgePorts(
        parts.store,
        parts.searches,
        parts.queue_cache,
        parts.notifier,
        parts.lock_store,
        EndSynchronousSendPorts(parts.store, parts.notifier),
        parts.counters,
        parts.clock,
    )


def _redrive_ports(parts: Components, receivers: ReceiverNotifier) -> RedrivePorts:
    return RedrivePorts(
        parts.store,
        parts.searches,
        parts.queue_cache,
        parts.store.queues,
        receivers,
        parts.counters,
        parts.clock,
    )


def _restore_ports(parts: Components, receivers: ReceiverNotifier) -> RestorePorts:
    return RestorePorts(
        parts.store,
        parts.store,
        parts.searches,
        parts.queue_cache,
        parts.store.queues,
        parts.response_limits,
        receivers,
        parts.counters,
        parts.clock,
    )
