"""The interfaces of the backends, as the broker needs them.

Every method of a store port takes effect durably before it returns. It raises `StoreUnavailable` if the backend cannot
answer, and never an exception of a driver. Lists of results have the order of the arguments. Concurrent calls of one
method in one process share statements; each call gets its own result.
"""

from app.broker.ports.archive_store import ArchiveStore
from app.broker.ports.lock_store import LockRecord, LockStore, NotRenewed, QueueVersion, Renewed
from app.broker.ports.maintenance_store import Edit, MaintenanceStore, Promoted, Redrive, UnlockedRow, Withdrawal
from app.broker.ports.message_store import Attempt, AttemptResult, Extended, Extension, MessageStore, QueueGone
from app.broker.ports.notifier import Counters, Notifier
from app.broker.ports.queue_store import ApiKeyStore, DeletedQueue, LockRevocation, QueueStore
from app.broker.ports.store import Store

__all__ = [
    "ApiKeyStore",
    "ArchiveStore",
    "Attempt",
    "AttemptResult",
    "Counters",
    "DeletedQueue",
    "Edit",
    "Extended",
    "Extension",
    "LockRecord",
    "LockRevocation",
    "LockStore",
    "MaintenanceStore",
    "MessageStore",
    "NotRenewed",
    "Notifier",
    "Promoted",
    "QueueGone",
    "QueueStore",
    "QueueVersion",
    "Redrive",
    "Renewed",
    "Store",
    "UnlockedRow",
    "Withdrawal",
]
