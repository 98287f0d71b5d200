"""The interfaces of the backends, as the verbs need them: each verb names the narrowest one that it uses.

Every method of a store port takes effect durably before it returns. It raises `StoreUnavailable` if the backend cannot
answer, and never an exception of a driver. Lists of results have the order of the arguments. Concurrent calls of one
method in one process share statements; each call gets its own result.
"""

from app.broker.ports.archive_store import ArchiveStore
from app.broker.ports.lock_store import LockRecord, LockStore, LockStoreState, NotRenewed, QueueVersion, Renewed
from app.broker.ports.maintenance_store import (
    BrowseStore,
    Edit,
    EditStore,
    ExpireStore,
    MaintenanceStore,
    PlanStore,
    Promoted,
    PurgeStore,
    Redrive,
    RedriveStore,
    RetentionStore,
    RevokeStore,
    ScheduleStore,
    SelectStore,
    SweepStore,
    UnlockedRow,
    Withdrawal,
)
from app.broker.ports.message_store import (
    Attempt,
    AttemptResult,
    ClaimStore,
    Extended,
    Extension,
    MessageStore,
    QueueGone,
    ReleaseStore,
    RenewStore,
    SearchStore,
    SendStore,
    SettleStore,
)
from app.broker.ports.notifier import Counters, Notifier
from app.broker.ports.queue_store import (
    ApiKeyStore,
    DeletedQueue,
    DeletedQueues,
    LockRevocation,
    LockRevocations,
    QueueStore,
    QueueTotals,
)
from app.broker.ports.store import Store, StoreClock, StoreDescription

__all__ = [
    "ApiKeyStore",
    "ArchiveStore",
    "Attempt",
    "AttemptResult",
    "BrowseStore",
    "ClaimStore",
    "Counters",
    "DeletedQueue",
    "DeletedQueues",
    "Edit",
    "EditStore",
    "ExpireStore",
    "Extended",
    "Extension",
    "LockRecord",
    "LockRevocation",
    "LockRevocations",
    "LockStore",
    "LockStoreState",
    "MaintenanceStore",
    "MessageStore",
    "NotRenewed",
    "Notifier",
    "PlanStore",
    "Promoted",
    "PurgeStore",
    "QueueGone",
    "QueueStore",
    "QueueTotals",
    "QueueVersion",
    "Redrive",
    "RedriveStore",
    "ReleaseStore",
    "RenewStore",
    "Renewed",
    "RetentionStore",
    "RevokeStore",
    "ScheduleStore",
    "SearchStore",
    "SelectStore",
    "SendStore",
    "SettleStore",
    "Store",
    "StoreClock",
    "StoreDescription",
    "SweepStore",
    "UnlockedRow",
    "Withdrawal",
]
