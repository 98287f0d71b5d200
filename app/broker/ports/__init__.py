"""What the verbs need of the rooms, in as few words as possible.

Every method of a store port takes effect durably before it returns, raises `StoreUnavailable` when
its room cannot answer, and never lets an exception of a driver through. Lists are answered in the
order of what was asked. Callers of one method in one process share statements; each gets its own
outcome.
"""

from app.broker.ports.archive import Archive
from app.broker.ports.locks import Edition, LockRecord, Locks, NotRenewed, Renewed
from app.broker.ports.messages import Attempt, Extended, Extension, Messages, Once, QueueGone
from app.broker.ports.records import DeletedQueue, Keys, Queues, Taking
from app.broker.ports.signals import Bells, Tally
from app.broker.ports.store import Store
from app.broker.ports.upkeep import Awoken, Edit, Redrive, Unlocked, Upkeep, Withdrawal

__all__ = [
    "Archive",
    "Attempt",
    "Awoken",
    "Bells",
    "DeletedQueue",
    "Edit",
    "Edition",
    "Extended",
    "Extension",
    "Keys",
    "LockRecord",
    "Locks",
    "Messages",
    "NotRenewed",
    "Once",
    "QueueGone",
    "Queues",
    "Redrive",
    "Renewed",
    "Store",
    "Taking",
    "Tally",
    "Unlocked",
    "Upkeep",
    "Withdrawal",
]
