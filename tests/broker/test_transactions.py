"""No transaction is open while a receiver works or waits."""

import asyncio

import asyncpg
import pytest

from app.broker.receiving.receive import ReceiveRequest, receive
from app.broker.sending.send import send
from app.domain.message import Envelope
from app.domain.queue import QueueSettings
from app.domain.sending import NewMessage
from app.store.open import open_store
from tests.brokers import build_broker, result_of
from tests.virtual_clock import VirtualClock, run_ready_tasks

IN_TRANSACTION = """
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL AND state <> 'active'
"""


@pytest.mark.behaviour("S2.26")
async def test_a_lock_is_a_row_and_not_a_transaction(postgres_url: str) -> None:
    clock = VirtualClock()
    store = await open_store(postgres_url, clock, 2)
    observer = await asyncpg.connect(postgres_url)
    try:
        broker = build_broker(store, clock)
        queue, _ = await store.queues.create("orders", QueueSettings())
        await send(broker.sending, queue.name, [NewMessage(Envelope(""))])
        (locked,) = (await receive(broker.receiving, queue, ReceiveRequest())).result
        waiting = asyncio.create_task(result_of(receive(broker.receiving, queue, ReceiveRequest(wait_seconds=30))))
        await run_ready_tasks()
        assert broker.wait_queue.wait_keys() == [queue.id]
        assert locked.lock_token is not None
        assert await observer.fetchval(IN_TRANSACTION) == 0
        await clock.advance(30)
        assert await waiting == []
        await broker.queue_cache.close()
    finally:
        await observer.close()
        await store.close()
