"""What settlements, renewals and ended locks use."""

from collections.abc import Callable
from dataclasses import dataclass

from app.broker.notify_receivers import ReceiverNotifier
from app.broker.ports.lock_store import LockStore
from app.broker.ports.notifier import Counters, Notifier
from app.broker.ports.queues import QueueStore
from app.broker.ports.settling import SettlingStore
from app.broker.queue_cache import QueueCache
from app.runtime.clock import Clock


@dataclass(frozen=True, slots=True)
class SettlingPorts:
    """What settlements, renewals and ended locks use. `random_fraction` returns a fraction in [0, 1)."""

    store: SettlingStore
    queues: QueueStore
    lock_store: LockStore
    queue_cache: QueueCache
    receivers: ReceiverNotifier
    notifier: Notifier
    counters: Counters
    clock: Clock
    random_fraction: Callable[[], float]
