"""A synchronous send in progress, for tests."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from tests.api.api_server import ApiServer
from tests.virtual_clock import run_ready_tasks

PATH = "/queues/orders/messages"


class Sender:
    """A synchronous send in progress."""

    def __init__(self, api: ApiServer, **fields: Any) -> None:
        headers = fields.pop("headers", {})
        body = {"body": "question", "delivery": "synchronous", "wait_seconds": 10, **fields}
        self.api = api
        self.task = asyncio.ensure_future(api.request("POST", PATH, body, headers=headers))

    async def answer(self) -> httpx.Response:
        """Return the answer, which must follow without any time passing."""
        await run_ready_tasks()
        assert self.task.done(), "the sender still waits"
        return self.task.result()


@asynccontextmanager
async def sending(api: ApiServer, **fields: Any) -> AsyncIterator[Sender]:
    """Send, and go on when the message is offered."""
    sender = Sender(api, **fields)
    await run_ready_tasks()
    yield sender
    if not sender.task.done():
        sender.task.cancel()
        await asyncio.wait({sender.task})


async def assert_nothing_is_stored(api: ApiServer) -> None:
    assert await api.counts() == {}
    assert (await api.request_json("GET", "/queues/orders/messages"))["items"] == []
    await api.advance_time(3600)
    assert await api.receive() == []
    assert await api.receive(source="dead_letter") == []
