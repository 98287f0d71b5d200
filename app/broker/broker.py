"""The ports of all verbs in one process."""

from dataclasses import dataclass

from app.broker.browse import BrowsePorts
from app.broker.browse_archive import ArchivePorts
from app.broker.commit import CommitPorts
from app.broker.durability import DurabilityCheck
from app.broker.edit import EditPorts
from app.broker.execute import ExecutePorts
from app.broker.explain import ExplainPorts
from app.broker.history import HistoryPorts
from app.broker.join import JoinPorts
from app.broker.plan import PlanPorts
from app.broker.ports import (
    ApiKeyStore,
    Counters,
    LockStoreState,
    StateStore,
    StoreClock,
    StoreDescription,
    StoreReadiness,
)
from app.broker.publish import PublishPorts
from app.broker.purge import PurgePorts
from app.broker.queue_cache import QueueCache
from app.broker.queues import QueuePorts
from app.broker.receive import ReceivePorts
from app.broker.recover import RecoverPorts
from app.broker.redrive import RedrivePorts
from app.broker.renew import RenewPorts
from app.broker.response_limits import ResponseLimits
from app.broker.restore import RestorePorts
from app.broker.resubmit import ResubmitPorts
from app.broker.send import SendPorts
from app.broker.send_synchronously import SynchronousPorts
from app.broker.settle import SettlePorts
from app.broker.topics import TopicPorts
from app.broker.transactions import TransactionPorts
from app.broker.trim import TrimPorts
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
