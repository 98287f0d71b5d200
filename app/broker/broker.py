"""The ports of all verbs in one process."""

from dataclasses import dataclass

from app.broker.administration.browse import BrowsePorts
from app.broker.administration.browse_archive import ArchivePorts
from app.broker.administration.edit import EditPorts
from app.broker.administration.explain import ExplainPorts
from app.broker.administration.history import HistoryPorts
from app.broker.administration.plan import PlanPorts
from app.broker.administration.purge import PurgePorts
from app.broker.administration.queues import QueuePorts
from app.broker.administration.redrive import RedrivePorts
from app.broker.administration.restore import RestorePorts
from app.broker.administration.resubmit import ResubmitPorts
from app.broker.administration.trim import TrimPorts
from app.broker.ports import (
    ApiKeyStore,
    Counters,
    LockStoreState,
    StateStore,
    StoreClock,
    StoreDescription,
    StoreReadiness,
)
from app.broker.queue_cache import QueueCache
from app.broker.receiving.receive import ReceivePorts
from app.broker.receiving.recover import RecoverPorts
from app.broker.response_limits import ResponseLimits
from app.broker.sending.durability import DurabilityCheck
from app.broker.sending.send import SendPorts
from app.broker.sending.send_synchronously import SynchronousPorts
from app.broker.settling.renew import RenewPorts
from app.broker.settling.settle import SettlePorts
from app.broker.topics.publish import PublishPorts
from app.broker.topics.topics import TopicPorts
from app.broker.transactions.commit import CommitPorts
from app.broker.transactions.execute import ExecutePorts
from app.broker.transactions.join import JoinPorts
from app.broker.transactions.open_transactions import TransactionPorts
from app.runtime.clock import Clock


@dataclass(frozen=True, slots=True)
class Broker:
    """The ports of each family of verbs. A verb takes only those of its family.

    An endpoint that calls no verb uses the stores of queues, keys and locks, the store's clock, description,
    readiness and durability, the process's clock, the counters or the limits of responses.
    """

    sending: SendPorts
    publishing: PublishPorts
    sending_synchronously: SynchronousPorts
    receiving: ReceivePorts
    recovering: RecoverPorts
    settling: SettlePorts
    renewing: RenewPorts
    executing: ExecutePorts
    joining: JoinPorts
    transactions: TransactionPorts
    committing: CommitPorts
    browsing: BrowsePorts
    browsing_archive: ArchivePorts
    explaining: ExplainPorts
    reading_history: HistoryPorts
    editing: EditPorts
    purging: PurgePorts
    redriving: RedrivePorts
    restoring: RestorePorts
    resubmitting: ResubmitPorts
    planning: PlanPorts
    queues: QueuePorts
    topics: TopicPorts
    trimming: TrimPorts
    queue_cache: QueueCache
    keys: ApiKeyStore
    states: StateStore
    lock_store: LockStoreState
    store_clock: StoreClock
    store_description: StoreDescription
    store_readiness: StoreReadiness
    durability: DurabilityCheck
    clock: Clock
    counters: Counters
    response_limits: ResponseLimits
