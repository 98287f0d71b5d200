"""No transaction is open while a receiver works, and none while one waits."""

import asyncio

import asyncpg
import pytest

from app.broker.receive import Wish, receive
from app.broker.send import send
from app.domain.message import Envelope
from app.domain.queue import QueueSettings
from app.domain.sending import Letter
from app.store.open import open_store
from tests.clock import VirtualClock, settle
from tests.rooms import assemble

IN_TRANSACTION = """
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL AND state <> 'active'
"""


@pytest.mark.behaviour("S2.26")
async def test_a_lock_is_a_row_and_not_a_transaction(postgres_url: str) -> None:
    clock = VirtualClock()
    store = await open_store(postgres_url, clock, 2)
    onlooker = await asyncpg.connect(postgres_url)
    try:
        broker = assemble(store, clock)
        queue, _ = await store.queues.create("orders", QueueSettings())
        await send(broker, queue, [Letter(Envelope(""))])
        (held,) = await receive(broker, queue, Wish())
        waiting = asyncio.create_task(receive(broker, queue, Wish(patience_seconds=30)))
        await settle()
        assert broker.waiting.waiting() == [queue.id]
        assert held.lock_token is not None
        assert await onlooker.fetchval(IN_TRANSACTION) == 0
        await clock.advance(30)
        assert await waiting == []
        await broker.catalogue.close()
    finally:
        await onlooker.close()
        await store.close()
