"""The ports of all verbs in one process."""

from dataclasses import dataclass

from app.broker.administration.ports import AdministrationPorts
from app.broker.ports.consumer_directory import ConsumerDirectory
from app.broker.ports.lock_store import LockStore
from app.broker.ports.notifier import Counters
from app.broker.ports.store import Store
from app.broker.queue_cache import QueueCache
from app.broker.receiving.ports import ReceivingPorts
from app.broker.response_limits import ResponseLimits
from app.broker.sending.ports import SendingPorts
from app.broker.settling.ports import SettlingPorts
from app.broker.topics.ports import TopicPorts
from app.broker.transactions.ports import TransactionPorts
from app.runtime.clock import Clock


@dataclass(frozen=True, slots=True)
class Broker:
    """The ports of each family of verbs, and what endpoints use without a verb.

    A verb takes the ports of its family, or one part of the store, such as the API keys or the states. Endpoints also use
    the store, the state of the lock store, the directory of consumers, the queue cache, the process's clock, the counters
    and the limits of responses.
    """

    sending: SendingPorts
    receiving: ReceivingPorts
    settling: SettlingPorts
    topics: TopicPorts
    transactions: TransactionPorts
    administration: AdministrationPorts
    store: Store
    lock_store: LockStore
    consumers: ConsumerDirectory
    queue_cache: QueueCache
    clock: Clock
    counters: Counters
    response_limits: ResponseLimits
