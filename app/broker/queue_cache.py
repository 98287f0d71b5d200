"""The queues by name and id, cached briefly so that not every message looks up its queue in the store."""

from collections.abc import Callable, Sequence

from app.broker.ports.queues import QueueStore
from app.domain.queue import Queue, QueueSettings, check_known
from app.domain.refusals import QueueNotFound
from app.domain.sending import NewMessage, create_draft
from app.runtime.cache import Cache
from app.runtime.clock import Clock

CACHE_SECONDS = 1.0
"""How long another process may still use settings that were changed here, if the notification is lost."""

_MAX_ENTRIES = 10_000


class QueueCache:
    """Finds queues by name or id. Creates a queue on its first send if the server allows it (`auto_create`).

    `max_queues` is the limit of this server, None for no limit.
    Each method that returns a queue refuses with `NewerQueue` if only a newer server can serve it.
    """

    def __init__(self, queues: QueueStore, clock: Clock, *, auto_create: bool, max_queues: int | None = None) -> None:
        self._queues = queues
        self.max_queues = max_queues
        self._auto_create = auto_create
        self.on_changed: Callable[[], None] = _do_nothing
        """Called when a queue was created, changed or deleted, here or in another process."""
        self._by_name = Cache(queues.by_name, clock, ttl_seconds=CACHE_SECONDS, max_size=_MAX_ENTRIES)
        self._by_id = Cache(queues.by_id, clock, ttl_seconds=CACHE_SECONDS, max_size=_MAX_ENTRIES)

    async def by_name(self, name: str) -> Queue:
        """Return the queue of this name. Refuses with `QueueNotFound`."""
        queue = await self._by_name.get(name)
        if queue is None:
            raise self.not_found(name)
        check_known(queue)
        return queue

    async def reload_for_send(self, name: str) -> Queue:
        """Return the queue of this name from the store, or create it as `by_name_for_send` does."""
        self._by_name.forget(name)
        return await self.by_name_for_send(name)

    def not_found(self, name: str) -> QueueNotFound:
        """Build the refusal for a name without a queue, and remove the name from the cache."""
        self._by_name.forget(name)
        return QueueNotFound(f"There is no queue named {name}.")

    async def by_name_for_send(self, name: str, new_messages: Sequence[NewMessage] = ()) -> Queue:
        """Return the queue of this name, or create it with default settings if the server allows it.

        It is created only for messages that it accepts: a refused send creates no queue.
        """
        queue = await self._by_name.get(name)
        if queue is not None:
            check_known(queue)
            return queue
        refusal = self.not_found(name)
        if not self._auto_create:
            raise refusal
        new_queue = Queue(id=0, name=name, settings=QueueSettings(), version=0, created_at=0, updated_at=0)
        for new_message in new_messages:
            create_draft(new_message, new_queue, "")
        queue, _created = await self.create(name, new_queue.settings)
        return queue

    async def create(self, name: str, settings: QueueSettings) -> tuple[Queue, bool]:
        """Create the queue as `QueueStore.create` does. Refuses with `TooManyQueues` above the limit of this server."""
        queue, created = await self._queues.create(name, settings, self.max_queues)
        if created:
            self.forget(queue)
        check_known(queue)
        return queue, created

    async def by_id(self, queue_id: int) -> Queue | None:
        """Return the queue of this id, or None once it is deleted."""
        queue = await self._by_id.get(queue_id)
        if queue is not None:
            check_known(queue)
        return queue

    def forget(self, queue: Queue) -> None:
        """Remove this queue from the cache."""
        self._by_name.forget(queue.name)
        self._by_id.forget(queue.id)
        self.on_changed()

    def forget_chain(self, queue: Queue) -> None:
        """Remove this queue from the cache, and any to which it forwards."""
        self.forget(queue)
        if queue.settings.forward_to is not None:
            self.clear()

    def clear(self) -> None:
        """Clear the cache after another process has changed a queue."""
        self._by_name.clear()
        self._by_id.clear()
        self.on_changed()

    async def close(self) -> None:
        """Stop the lookups in progress."""
        await self._by_name.close()
        await self._by_id.close()


def _do_nothing() -> None:
    """Ignore a change: no other cache depends on queues."""
