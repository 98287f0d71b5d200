"""A queue is made on first send only for what it will take, and what another process deleted is not shown from memory."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.broker.broker import Broker
from app.broker.queue_cache import QueueCache
from app.broker.queues import reload_queue
from app.domain.message import BodyKind, Envelope
from app.domain.queue import DEFAULT_MAX_MESSAGE_BYTES, Queue, QueueSettings
from app.domain.refusals import InvalidRequest, MessageTooLarge, QueueNotFound
from app.domain.sending import NewMessage
from app.store.migrate import migrate
from tests.brokers import sqlite_broker
from tests.virtual_clock import VirtualClock, run_ready_tasks


async def test_a_first_send_that_is_refused_leaves_no_queue_behind(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'peeklock.db'}"
    migrate(url)
    async with sqlite_broker(url, VirtualClock()) as broker:
        too_large = NewMessage(Envelope(""), b"x" * (DEFAULT_MAX_MESSAGE_BYTES + 1), BodyKind.BYTES)
        with pytest.raises(MessageTooLarge):
            await broker.queue_cache.by_name_for_send("orders", [too_large])
        assert await broker.store.queues.by_name("orders") is None
        made = await broker.queue_cache.by_name_for_send("orders", [NewMessage(Envelope(""))])
        assert await broker.store.queues.by_name("orders") == made


async def test_a_queue_that_another_process_deleted_is_gone_at_once(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'peeklock.db'}"
    migrate(url)
    async with sqlite_broker(url, VirtualClock()) as broker:
        queue, _made = await broker.store.queues.create("orders", QueueSettings())
        assert await broker.queue_cache.by_name("orders") == queue
        await broker.store.queues.delete(queue)
        with pytest.raises(QueueNotFound):
            await reload_queue(broker, "orders")
        with pytest.raises(QueueNotFound):
            await broker.queue_cache.by_name("orders")


async def recreate(broker: Broker, queue: Queue) -> Queue:
    """The queue that another process makes in the place of this one."""
    assert await broker.store.queues.delete(queue)
    again, _ = await broker.store.queues.create(queue.name, QueueSettings())
    return again


@pytest.mark.parametrize("forget", [QueueCache.forget, lambda catalogue, _queue: catalogue.clear()], ids=["it", "all"])
async def test_a_queue_is_remembered_by_name_and_id_until_it_is_forgotten(
    broker: Broker, forget: Callable[[QueueCache, Queue], None]
) -> None:
    catalogue = broker.queue_cache
    queue, _ = await broker.store.queues.create("orders", QueueSettings())
    assert (await catalogue.by_name("orders"), await catalogue.by_id(queue.id)) == (queue, queue)
    changed = await broker.store.queues.change(queue, QueueSettings(description="changed"))
    assert (await catalogue.by_name("orders"), await catalogue.by_id(queue.id)) == (queue, queue)
    forget(catalogue, queue)
    assert (await catalogue.by_name("orders"), await catalogue.by_id(queue.id)) == (changed, changed)
    assert await catalogue.by_id(queue.id + 1) is None


async def test_a_queue_that_is_looked_up_is_the_one_of_now(broker: Broker) -> None:
    queue, _ = await broker.store.queues.create("orders", QueueSettings())
    assert await broker.queue_cache.by_name("orders") == queue
    again = await recreate(broker, queue)
    assert await broker.queue_cache.by_name("orders") == queue
    assert await broker.queue_cache.reload_for_send("orders") == again
    assert await broker.queue_cache.by_name("orders") == again


async def test_a_queue_that_was_missed_is_known_once_it_is_made(broker: Broker) -> None:
    with pytest.raises(QueueNotFound, match="There is no queue named orders"):
        await broker.queue_cache.by_name("orders")
    queue, made = await broker.queue_cache.create("orders", QueueSettings())
    assert made
    assert await broker.queue_cache.by_name("orders") == queue
    assert await broker.queue_cache.create("orders", QueueSettings()) == (queue, False)


async def test_only_a_valid_name_makes_a_queue(broker: Broker) -> None:
    with pytest.raises(InvalidRequest, match="cannot be the name of a queue"):
        await broker.queue_cache.by_name_for_send("-orders")
    assert await broker.store.queues.by_name("-orders") is None


async def test_no_queue_is_made_where_the_server_may_not() -> None:
    async with sqlite_broker("sqlite://", VirtualClock(), auto_create=False) as broker:
        with pytest.raises(QueueNotFound):
            await broker.queue_cache.by_name_for_send("orders")
        queue, _ = await broker.store.queues.create("repairs", QueueSettings())
        assert await broker.queue_cache.by_name_for_send("repairs") == queue


async def test_a_queue_is_known_once_it_is_made_although_an_earlier_look_up_is_under_way() -> None:
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
    catalogue = QueueCache(queues, VirtualClock(), auto_create=False)
    early = asyncio.ensure_future(catalogue.by_name("orders"))
    await run_ready_tasks()
    await catalogue.create("orders", made.settings)
    late = asyncio.ensure_future(catalogue.by_name("orders"))
    await run_ready_tasks()
    assert (early.done(), late.done()) == (False, True)
    assert late.result() == made
    await catalogue.close()
    await asyncio.wait([early])


async def test_closing_ends_the_look_ups_under_way() -> None:
    class Hanging:
        async def by_name(self, _name: str) -> Queue | None:
            await asyncio.Event().wait()

        async def by_id(self, _queue_id: int) -> Queue | None:
            await asyncio.Event().wait()

    queues: Any = Hanging()
    catalogue = QueueCache(queues, VirtualClock(), auto_create=False)
    asking = [asyncio.ensure_future(catalogue.by_name("orders")), asyncio.ensure_future(catalogue.by_id(1))]
    await run_ready_tasks()
    await catalogue.close()
    await run_ready_tasks()
    assert [one.cancelled() for one in asking] == [True, True]
