"""The volatile buffer: messages that were answered already and are stored shortly after.

A crash of the process loses the messages in the buffer; that is the price of the speed of `volatile` (S1.8, S3.9). An
orderly shutdown stores all of them first. If the store's response to a batch is lost, the batch is stored again,
because it is not known whether it was stored: a message may arrive twice.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context
from itertools import islice

from app.broker.ports.sending import QueueGone, SendingStore
from app.domain.message import Draft, Receipt
from app.domain.queue import Queue
from app.domain.refusals import BackendUnavailable, NewerQueue, RateLimited
from app.domain.sending import fit_draft
from app.domain.weight import count_that_fit, weight_of
from app.runtime.clock import Clock

MAX_MESSAGES = 10_000
_MAX_BYTES = 32 << 20
_BATCH_SIZE = 256
_BATCH_BYTES = 4 << 20
"""Bytes per statement: enough to make the cost of a statement small."""
_RETRY_SECONDS = 0.5


class VolatileBuffer:
    """Holds at most `max_messages` drafts of `max_bytes` in total and stores them in order.

    It retries while the store is unavailable.

    If the store refuses a batch, its drafts are stored one by one: only the bad draft is dropped and passed to
    `report`. A draft whose queue is deleted goes into the queue that has its name now (`look_up`). A draft is dropped if
    that queue needs a newer server. `on_stored` is called with the stored drafts and their receipts.
    """

    def __init__(
        self,
        messages: SendingStore,
        look_up: Callable[[str], Awaitable[Queue]],
        clock: Clock,
        report: Callable[[Exception, int], None],
        max_bytes: int = _MAX_BYTES,
        max_messages: int = MAX_MESSAGES,
    ) -> None:
        self._messages = messages
        self._look_up = look_up
        self._clock = clock
        self._report = report
        self._max_bytes = max_bytes
        self._max_messages = max_messages
        self._entries: deque[tuple[Draft, str]] = deque()
        self._bytes = 0
        self._task: asyncio.Task[None] | None = None
        self.on_stored: Callable[[Sequence[Draft], Sequence[Receipt]], None] = _ignore

    def put(self, draft: Draft, queue: str) -> None:
        """Add a draft for the queue of this name. Refuses with `RateLimited` if the buffer is full."""
        weight = weight_of(draft)
        if len(self._entries) >= self._max_messages or (self._entries and self._bytes + weight > self._max_bytes):
            raise RateLimited("Too many volatile messages wait to be stored.")
        self._entries.append((draft, queue))
        self._bytes += weight
        if self._task is None or self._task.done():
            # The task has its own context, because it outlives the request that starts it.
            self._task = asyncio.get_running_loop().create_task(self._store_all(), context=Context())

    async def close(self) -> None:
        """Wait until all drafts are stored. Cancelling this call loses the rest."""
        if self._task is not None:
            await self._task

    async def _store_all(self) -> None:
        while self._entries:
            next_drafts = [draft for draft, _ in islice(self._entries, _BATCH_SIZE)]
            batch = next_drafts[: count_that_fit(map(weight_of, next_drafts), _BATCH_BYTES)]
            if await self._store(batch) is not None:
                for _ in batch:
                    await self._store_first()
            else:
                self._drop(len(batch))

    async def _store_first(self) -> None:
        draft, queue = self._entries[0]
        error = await self._store([draft])
        if isinstance(error, QueueGone):
            error = await self._store_in_current_queue(draft, queue)
        if error:
            self._report(error, 1)
        self._drop(1)

    async def _store_in_current_queue(self, draft: Draft, queue: str) -> Exception | None:
        """Store a draft in the queue that has this name now; return the error if it is not stored."""
        while True:
            try:
                current_queue = await self._look_up(queue)
            except NewerQueue as error:
                return error
            except BackendUnavailable:
                await self._clock.sleep(_RETRY_SECONDS)
            except Exception as error:  # noqa: BLE001  # as below
                return error
            else:
                return await self._store([fit_draft(draft, current_queue)])

    async def _store(self, drafts: Sequence[Draft]) -> Exception | None:
        """Store these drafts as soon as the store is available; return the error if it refuses them."""
        while True:
            try:
                receipts = await self._messages.send(drafts)
            except BackendUnavailable:
                await self._clock.sleep(_RETRY_SECONDS)
            except Exception as error:  # noqa: BLE001  # a bug must not keep every later message from being stored
                return error
            else:
                self.on_stored(drafts, receipts)
                return None

    def _drop(self, count: int) -> None:
        for _ in range(count):
            draft, _ = self._entries.popleft()
            self._bytes -= weight_of(draft)


def _ignore(_drafts: Sequence[Draft], _receipts: Sequence[Receipt]) -> None:
    """Do nothing: no listener is set."""
