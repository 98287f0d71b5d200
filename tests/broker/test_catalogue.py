"""A queue that is made on first send is made only for what it will take."""

from pathlib import Path

import pytest

from app.domain.message import BodyKind, Envelope
from app.domain.queue import LARGEST_MESSAGE_DEFAULT
from app.domain.refusals import MessageTooLarge
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
