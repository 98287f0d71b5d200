"""What work units and transactions use."""

from dataclasses import dataclass

from app.broker.ports.transactions import TransactionStore
from app.broker.receiving.delivered_ids import DeliveredIds
from app.broker.sending.ports import SendingPorts
from app.broker.settling.ports import SettlingPorts
from app.broker.topics.ports import TopicPorts


@dataclass(frozen=True, slots=True)
class TransactionPorts:
    """What work units and transactions use.

    `principal_limit` is the largest number of open transactions of one principal.
    """

    store: TransactionStore
    sending: SendingPorts
    topics: TopicPorts
    settling: SettlingPorts
    delivered_ids: DeliveredIds
    principal_limit: int
