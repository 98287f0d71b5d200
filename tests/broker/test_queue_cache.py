"""A first send creates a queue only for messages that it accepts; a deleted queue leaves the cache."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.broker.administration.queues import reload_queue
from app.broker.queue_cache import QueueCache
from app.domain.message import BodyKind, Envelope
from app.domain.queue import DEFAULT_MAX_MESSAGE_BYTES, Queue, QueueSettings
from app.domain.refusals import InvalidRequest, MessageTooLarge, QueueNotFound
from app.domain.sending import NewMessage
from app.store.migrate import migrate
from tests.brokers import OpenBroker, sqlite_broker
from tests.virtual_clock import VirtualClock, run_ready_tasks


async def test_a_refused_first_send_creates_no_queue(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'peeklock.db'}"
    migrate(url)
    async with sqlite_broker(url, VirtualClock()) as broker:
        too_large = NewMessage(Envelope(""), b"x" * (DEFAULT_MAX_MESSAGE_BYTES + 1), BodyKind.BYTES)
        with pytest.raises(MessageTooLarge):
            await broker.queue_cache.by_name_for_send("orders", [too_large])
        assert await broker.store.queues.by_name("orders") is None
        made = await broker.queue_cache.by_name_for_send("orders", [NewMessage(Envelope(""))])
        assert await broker.store.queues.by_name("orders") == made


async def test_a_reload_finds_that_another_process_deleted_the_queue(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'peeklock.db'}"
    migrate(url)
    async with sqlite_broker(url, VirtualClock()) as broker:
        queue, _made = await broker.store.queues.create("orders", QueueSettings())
        assert await broker.queue_cache.by_name("orders") == queue
        await broker.store.queues.delete(queue)
        with pytest.raises(QueueNotFound):
            await reload_queue(broker.administration, "orders")
        with pytest.raises(QueueNotFound):
            await broker.queue_cache.by_name("orders")


async def recreate(broker: OpenBroker, queue: Queue) -> Queue:
    """Replace the queue by a new one of the same name, as another process would."""
    assert await broker.store.queues.delete(queue)
    recreated, _ = await broker.store.queues.create(queue.name, QueueSettings())
    return recreated


@pytest.mark.parametrize(
    "forget", [QueueCache.forget, lambda queue_cache, _queue: queue_cache.clear()], ids=["it", "all"]
)
async def test_a_queue_is_cached_by_name_and_id_until_it_is_removed(
    broker: OpenBroker, forget: Callable[[QueueCache, Queue], None]
) -> None:
    queue_cache = broker.queue_cache
    queue, _ = await broker.store.queues.create("orders", QueueSettings())
    assert (await queue_cache.by_name("orders"), await queue_cache.by_id(queue.id)) == (queue, queue)
    changed = await broker.store.queues.change(queue, QueueSettings(description="changed"))
    assert (await queue_cache.by_name("orders"), await queue_cache.by_id(queue.id)) == (queue, queue)
    forget(queue_cache, queue)
    assert (await queue_cache.by_name("orders"), await queue_cache.by_id(queue.id)) == (changed, changed)
    assert await queue_cache.by_id(queue.id + 1) is None


async def test_reload_for_send_returns_the_recreated_queue(broker: OpenBroker) -> None:
    queue, _ = await broker.store.queues.create("orders", QueueSettings())
    assert await broker.queue_cache.by_name("orders") == queue
    recreated = await recreate(broker, queue)
    assert await broker.queue_cache.by_name("orders") == queue
    assert await broker.queue_cache.reload_for_send("orders") == recreated
    assert await broker.queue_cache.by_name("orders") == recreated


async def test_a_created_queue_replaces_a_cached_miss(broker: OpenBroker) -> None:
    with pytest.raises(QueueNotFound, match="There is no queue named orders"):
        await broker.queue_cache.by_name("orders")
    queue, made = await broker.queue_cache.create("orders", QueueSettings())
    assert made
    assert await broker.queue_cache.by_name("orders") == queue
    assert await broker.queue_cache.create("orders", QueueSettings()) == (queue, False)


async def test_a_queue_is_created_only_for_a_valid_name(broker: OpenBroker) -> None:
    with pytest.raises(InvalidRequest, match="is not a valid queue name"):
        await broker.queue_cache.by_name_for_send("-orders")
    assert await broker.store.queues.by_name("-orders") is None


async def test_no_queue_is_created_without_auto_create() -> None:
    async with sqlite_broker("sqlite://", VirtualClock(), auto_create=False) as broker:
        with pytest.raises(QueueNotFound):
            await broker.queue_cache.by_name_for_send("orders")
        queue, _ = await broker.store.queues.create("repairs", QueueSettings())
        assert await broker.queue_cache.by_name_for_send("repairs") == queue


async def test_a_created_queue_is_found_while_an_earlier_lookup_is_in_progress() -> None:
    made = Queue(1, "orders", QueueSettings(), 1, 0, 0)

    class Slow:
        is_first = True

        async def by_name(self, _name: str) -> Queue | None:
            if self.is_first:
                self.is_first = False
                await asyncio.Event().wait()
            return made

        async def by_id(self, _queue_id: int) -> Queue | None:
            return made

        async def create(self, *_: object) -> tuple[Queue, bool]:
            return made, True

    queues: Any = Slow()
    queue_cache = QueueCache(queues, VirtualClock(), auto_create=False)
    early = asyncio.ensure_future(queue_cache.by_name("orders"))
    await run_ready_tasks()
    await queue_cache.create("orders", made.settings)
    late = asyncio.ensure_future(queue_cache.by_name("orders"))
    await run_ready_tasks()
    assert (early.done(), late.done()) == (False, True)
    assert late.result() == made
    await queue_cache.close()
    await asyncio.wait([early])


async def test_close_cancels_lookups_in_progress() -> None:
    class Hanging:
        async def by_name(self, _name: str) -> Queue | None:
            await asyncio.Event().wait()

        async def by_id(self, _queue_id: int) -> Queue | None:
            await asyncio.Event().wait()

    queues: Any = Hanging()
    queue_cache = QueueCache(queues, VirtualClock(), auto_create=False)
    lookups = [asyncio.ensure_future(queue_cache.by_name("orders")), asyncio.ensure_future(queue_cache.by_id(1))]
    await run_ready_tasks()
    await queue_cache.close()
    await run_ready_tasks()
    assert [lookup.cancelled() for lookup in lookups] == [True, True]
