"""What the verbs need of the rooms, in as few words as possible.

Every method of a store port takes effect durably before it returns, raises `StoreUnavailable` when
its room cannot answer, and never lets an exception of a driver through. Lists are answered in the
order of what was asked. Callers of one method in one process share statements; each gets its own
outcome.
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
