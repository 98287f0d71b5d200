"""A queue is made on first send only for what it will take, and what another process deleted is not shown from memory."""

from pathlib import Path

import pytest

from app.broker.queues import fresh
from app.domain.message import BodyKind, Envelope
from app.domain.queue import LARGEST_MESSAGE_DEFAULT, QueueSettings
from app.domain.refusals import MessageTooLarge, QueueNotFound
from app.domain.sending import Letter
from app.store.migrate import migrate
from tests.clock import VirtualClock
from tests.rooms import sqlite_broker


async def test_a_first_send_that_is_refused_leaves_no_queue_behind(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'peeklock.db'}"
    migrate(url)
    async with sqlite_broker(url, VirtualClock()) as broker:
        too_large = Letter(Envelope(""), b"x" * (LARGEST_MESSAGE_DEFAULT + 1), BodyKind.BYTES)
        with pytest.raises(MessageTooLarge):
            await broker.catalogue.named_for_send("orders", [too_large])
        assert await broker.store.queues.find("orders") is None
        made = await broker.catalogue.named_for_send("orders", [Letter(Envelope(""))])
        assert await broker.store.queues.find("orders") == made


async def test_a_queue_that_another_process_deleted_is_gone_at_once(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'peeklock.db'}"
    migrate(url)
    async with sqlite_broker(url, VirtualClock()) as broker:
        queue, _made = await broker.store.queues.create("orders", QueueSettings())
        assert await broker.catalogue.named("orders") == queue
        await broker.store.queues.delete(queue)
        with pytest.raises(QueueNotFound):
            await fresh(broker, "orders")
        with pytest.raises(QueueNotFound):
            await broker.catalogue.named("orders")
