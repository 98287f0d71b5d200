"""A synchronous send whose caller goes away."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from app.broker.ports.attempts import Attempt, AttemptResult
from app.broker.sending.send_synchronously import send_synchronously
from app.domain.instant import HOUR
from app.domain.message import Envelope
from app.domain.queue import Queue
from app.domain.sending import NewMessage
from app.domain.work_unit import WorkUnit, WorkUnitResult
from tests.brokers import ChangedStore, OpenBroker
from tests.virtual_clock import run_ready_tasks


@pytest.mark.parametrize(("attempt", "left"), [(None, 0), (Attempt(b"k" * 32, b"f" * 32, HOUR), 1)])
async def test_a_cancelled_send_ends_as_cancelled_and_leaves_a_message_only_to_a_repeat(
    broker: OpenBroker, queue: Queue, attempt: Attempt | None, left: int
) -> None:
    sending = asyncio.ensure_future(send_synchronously(broker.sending, "orders", NewMessage(Envelope("")), 10, attempt))
    await run_ready_tasks()
    assert await broker.store.queues.total(queue.id) == 1
    sending.cancel()
    await asyncio.wait({sending})
    assert sending.cancelled()
    assert await broker.store.queues.total(queue.id) == left


@pytest.mark.parametrize(("attempt", "left"), [(None, 0), (Attempt(b"k" * 32, b"f" * 32, HOUR), 1)])
async def test_a_send_cancelled_while_it_is_stored_leaves_a_message_only_to_a_repeat(
    broker: OpenBroker, queue: Queue, attempt: Attempt | None, left: int
) -> None:
    store, committed = broker.store, asyncio.Event()

    async def execute(unit: WorkUnit, attempt: Attempt | None) -> AttemptResult[WorkUnitResult]:
        stored = await store.execute(unit, attempt)
        await committed.wait()
        return stored

    ports = replace(broker.sending, store=ChangedStore(store, execute=execute))
    sending = asyncio.ensure_future(send_synchronously(ports, "orders", NewMessage(Envelope("")), 10, attempt))
    await run_ready_tasks()
    sending.cancel()
    await run_ready_tasks()
    committed.set()
    await asyncio.wait({sending})
    assert sending.cancelled()
    assert await store.queues.total(queue.id) == left
