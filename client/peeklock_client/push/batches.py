"""Collects events of one queue into batches, and gives each event the answer to its batch."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

from peeklock_client.push.answers import Decision
from peeklock_client.push.delivery import Delivery
from peeklock_client.push.events import BATCH_TYPE, batch_of
from peeklock_client.push.signing import webhook_id

LINGER_SECONDS = 0.05
"""How long a batch waits for further events."""

MAX_BATCH_BYTES = 1 << 20
"""The bytes of the events in one batch. A larger event is sent alone."""

SendBatch = Callable[[dict[str, bytes]], Awaitable[Decision]]
"""Sends events by the ids of their messages."""


@dataclass(slots=True)
class Batch:
    """Events that are sent together, each with the future of its answer."""

    events: dict[asyncio.Future[Decision], tuple[str, bytes]] = field(
        default_factory=dict[asyncio.Future[Decision], tuple[str, bytes]]
    )
    size: int = 1  # the bracket before the events
    is_full: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None

    def add(self, message_id: str, event: bytes) -> asyncio.Future[Decision]:
        """Add an event, and return the future of the answer."""
        answer: asyncio.Future[Decision] = asyncio.get_running_loop().create_future()
        self.events[answer] = (message_id, event)
        self.size += len(event) + 1  # and the comma or bracket after it
        return answer

    def waiting(self) -> dict[str, bytes]:
        """Return the events whose messages still wait for an answer."""
        return dict(event for answer, event in self.events.items() if not answer.done())


class Batches:
    """The batches of one queue, of at most `max_events` each. `slots` limits how many requests are under way at a time."""

    def __init__(self, send: SendBatch, max_events: int, slots: asyncio.Semaphore) -> None:
        self._send = send
        self._max_events = max_events
        self._slots = slots
        self._open: Batch | None = None

    async def send(self, message_id: str, event: bytes) -> Decision:
        """Send an event with others, and return what the answer means.

        A call that is cancelled takes its event out of a batch that is not sent yet. If all calls of a batch are cancelled,
        its request is, too.
        """
        batch = self._batch_for(event)
        answer = batch.add(message_id, event)
        if len(batch.events) >= self._max_events or batch.size >= MAX_BATCH_BYTES:
            self._close(batch)
        try:
            return await answer
        finally:
            if batch.task is not None and not batch.waiting():
                self._close(batch)
                if answer.cancelled():
                    batch.task.cancel()

    def _batch_for(self, event: bytes) -> Batch:
        """Return the batch for an event: the open one if the event fits, else a new one."""
        batch = self._open
        if batch is not None and batch.size + len(event) + 1 > MAX_BATCH_BYTES:
            self._close(batch)
            batch = None
        if batch is None:
            batch = self._open = Batch()
            batch.task = asyncio.create_task(self._run(batch), name="push of a batch")
        return batch

    def _close(self, batch: Batch) -> None:
        batch.is_full.set()
        if self._open is batch:
            self._open = None

    async def _run(self, batch: Batch) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(LINGER_SECONDS):
                await batch.is_full.wait()
        try:
            async with self._slots:
                self._close(batch)
                events = batch.waiting()
                if not events:
                    return
                decision = await self._send(events)
        except Exception as error:  # noqa: BLE001 - each message of the batch raises it
            for answer in batch.events:
                if not answer.done():
                    answer.set_exception(error)
            return
        for answer in batch.events:
            if not answer.done():
                answer.set_result(decision)


def sender_of(delivery: Delivery, queue: str) -> SendBatch:
    """Return the function that sends the events of a queue to a target as one request."""

    async def send(events: dict[str, bytes]) -> Decision:
        headers = [(b"content-type", BATCH_TYPE), (b"peeklock-queue", queue.encode())]
        return await delivery.deliver(webhook_id("batch", *events), headers, batch_of([*events.values()]))

    return send
