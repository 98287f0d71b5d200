"""The tables, as SQLModel classes. A test compares the migrations with them.

Times are microseconds since 1970 UTC. States are the numbers of `MessageState`. There are no foreign keys: every
message would pay for them. A background loop removes what a deleted queue leaves.
"""

from sqlmodel import SQLModel

from app.store.tables.archive import ArchiveRow, ArchiveSealRow, ExportBatchRow, RestorableRow
from app.store.tables.histories import MessageEventRow
from app.store.tables.messages import (
    DEPTH,
    GROUP_LOCK,
    AcceptedCountRow,
    AttemptRow,
    MessageRow,
    OfferRow,
    RecentIdRow,
    SettlementRow,
    SharedBodyRow,
)
from app.store.tables.move_tasks import MoveTaskRow
from app.store.tables.queues import ApiKeyRow, BrokerRow, DeletedQueueRow, QueueRow, SessionRow
from app.store.tables.states import StateRow, StateVersionRow
from app.store.tables.topics import SubscriptionRow, TopicRow
from app.store.tables.transactions import MessageTransactionRow, TransactionMemberRow

__all__ = [
    "DEPTH",
    "GROUP_LOCK",
    "AcceptedCountRow",
    "ApiKeyRow",
    "ArchiveRow",
    "ArchiveSealRow",
    "AttemptRow",
    "BrokerRow",
    "DeletedQueueRow",
    "ExportBatchRow",
    "MessageEventRow",
    "MessageRow",
    "MessageTransactionRow",
    "MoveTaskRow",
    "OfferRow",
    "QueueRow",
    "RecentIdRow",
    "RestorableRow",
    "SQLModel",
    "SessionRow",
    "SettlementRow",
    "SharedBodyRow",
    "StateRow",
    "StateVersionRow",
    "SubscriptionRow",
    "TopicRow",
    "TransactionMemberRow",
]
