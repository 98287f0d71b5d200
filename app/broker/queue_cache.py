"""The queues by name, remembered for a moment so that no message pays for looking its queue up."""

from collections.abc import Sequence

from app.broker.ports import QueueStore
from app.domain.queue import Queue, QueueSettings
from app.domain.refusals import QueueNotFound
from app.domain.sending import NewMessage, create_draft
from app.runtime.cache import Cache
from app.runtime.clock import Clock

CACHE_SECONDS = 1.0
"""How long another process may still act on settings that were changed here, if the notice is lost."""

MAX_ENTRIES = 10_000


class QueueCache:
    """Finds queues by name or id; makes one on first send where the server may (`auto_create`)."""

    def __init__(self, queues: QueueStore, clock: Clock, *, auto_create: bool, max_queues: int | None = None) -> None:
        self._queues = queues
        self._most_queues = max_queues
        self._auto_create = auto_create
        self._by_name = Cache(queues.by_name, clock, ttl_seconds=CACHE_SECONDS, max_size=MAX_ENTRIES)
        self._by_id = Cache(queues.by_id, clock, ttl_seconds=CACHE_SECONDS, max_size=MAX_ENTRIES)

    async def by_name(self, name: str) -> Queue:
        """The queue of this name; refuses with `QueueNotFound`."""
        queue = await self._by_name.get(name)
        if queue is None:
            raise self.not_found(name)
        return queue

    async def reload_for_send(self, name: str) -> Queue:
        """The queue of this name as the store knows it now, made where `by_name_for_send` makes one."""
        self._by_name.forget(name)
        return await self.by_name_for_send(name)

    def not_found(self, name: str) -> QueueNotFound:
        """The refusal for a name that the store does not know; what was remembered under it is forgotten."""
        self._by_name.forget(name)
        return QueueNotFound(f"There is no queue named {name}.")

    async def by_name_for_send(self, name: str, new_messages: Sequence[NewMessage] = ()) -> Queue:
        """The queue of this name, made with default settings where that is allowed.

        It is made only for letters that it will take: a send that is refused leaves nothing behind.
        """
        try:
            return await self.by_name(name)
        except QueueNotFound:
            if not self._auto_create:
                raise
        new_queue = Queue(id=0, name=name, settings=QueueSettings(), version=0, created_at=0, updated_at=0)
        for new_message in new_messages:
            create_draft(new_message, new_queue, "")
        queue, _made = await self.create(name, new_queue.settings)
        return queue

    async def create(self, name: str, settings: QueueSettings) -> tuple[Queue, bool]:
        """See `Queues`. Refuses with `TooManyQueues` above the limit of this server."""
        queue, made = await self._queues.create(name, settings, self._most_queues)
        if made:
            self.forget(queue)
        return queue, made

    async def by_id(self, queue_id: int) -> Queue | None:
        """The queue of this id, None once it is deleted."""
        return await self._by_id.get(queue_id)

    def forget(self, queue: Queue) -> None:
        """Look this queue up anew next time."""
        self._by_name.forget(queue.name)
        self._by_id.forget(queue.id)

    def clear(self) -> None:
        """Look everything up anew: another process has changed something."""
        self._by_name.clear()
        self._by_id.clear()

    async def close(self) -> None:
        """End the look-ups under way."""
        await self._by_name.close()
        await self._by_id.close()
