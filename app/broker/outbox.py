"""Volatile messages on their way to the store: answered already, stored within moments.

Whatever is in here when the process dies is lost; that is what `volatile` buys its speed with
(S1.8, S3.9). A process that stops in order stores all of it first. What was being stored when the store's answer was
lost is stored again, because nothing tells whether it was: a message may come twice.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context
from dataclasses import replace
from itertools import islice

from app.broker.ports import Messages, QueueGone
from app.domain.message import Draft, Receipt
from app.domain.queue import Queue
from app.domain.refusals import RateLimited, RoomUnavailable
from app.domain.weight import fitting, weight_of
from app.runtime.clock import Clock

MOST_KEPT = 10_000
LARGEST_VOLATILE = 32 << 20
LARGEST_BATCH = 256
HEAVIEST_BATCH = 4 << 20
"""Bytes that are stored at a time: as much as makes a statement worth its while."""
REST_AFTER_FAILURE_SECONDS = 0.5


class Outbox:
    """Keeps at most `MOST_KEPT` drafts of `most_bytes` in all and stores them in order.

    It tries again while the store is away.

    A batch that the store refuses is stored one by one, so that a bad draft takes no neighbour along; it alone goes to
    `report` and is dropped. A draft whose queue is gone goes into the queue that has its name now (`look_up`).
    `on_stored` hears of what was stored, with its receipts.
    """

    def __init__(
        self,
        messages: Messages,
        look_up: Callable[[str], Awaitable[Queue]],
        clock: Clock,
        report: Callable[[Exception, int], None],
        most_bytes: int = LARGEST_VOLATILE,
    ) -> None:
        self._messages = messages
        self._look_up = look_up
        self._clock = clock
        self._report = report
        self._most_bytes = most_bytes
        self._kept: deque[tuple[Draft, str]] = deque()
        self._bytes = 0
        self._task: asyncio.Task[None] | None = None
        self.on_stored: Callable[[Sequence[Draft], Sequence[Receipt]], None] = _unheard

    def put(self, draft: Draft, queue: str) -> None:
        """Take a draft for the queue of this name; refuses with `RateLimited` when too many are waiting for the store."""
        weight = weight_of(draft)
        if len(self._kept) >= MOST_KEPT or (self._kept and self._bytes + weight > self._most_bytes):
            raise RateLimited("Too many volatile messages wait to be stored.")
        self._kept.append((draft, queue))
        self._bytes += weight
        if self._task is None or self._task.done():
            # In a context of its own: it outlives the request that happens to start it.
            self._task = asyncio.get_running_loop().create_task(self._store_all(), context=Context())

    async def close(self) -> None:
        """Return when everything kept is stored; whoever cannot wait that long cancels, and loses the rest."""
        if self._task is not None:
            await self._task

    async def _store_all(self) -> None:
        while self._kept:
            next_ones = [draft for draft, _ in islice(self._kept, LARGEST_BATCH)]
            batch = next_ones[: fitting(map(weight_of, next_ones), HEAVIEST_BATCH)]
            if await self._store(batch) is not None:
                for _ in batch:
                    await self._store_first()
            else:
                self._drop(len(batch))

    async def _store_first(self) -> None:
        draft, queue = self._kept[0]
        error = await self._store([draft])
        if isinstance(error, QueueGone):
            error = await self._store_where_present(draft, queue)
        if error:
            self._report(error, 1)
        self._drop(1)

    async def _store_where_present(self, draft: Draft, queue: str) -> Exception | None:
        """Store a draft in the queue that has this name now; why it is not stored."""
        while True:
            try:
                present = await self._look_up(queue)
            except RoomUnavailable:
                await self._clock.sleep(REST_AFTER_FAILURE_SECONDS)
            except Exception as error:  # noqa: BLE001  # as below
                return error
            else:
                return await self._store([replace(draft, queue_id=present.id)])

    async def _store(self, drafts: Sequence[Draft]) -> Exception | None:
        """Store these drafts, once the store is there; why it will not have them."""
        while True:
            try:
                receipts = await self._messages.send(drafts)
            except RoomUnavailable:
                await self._clock.sleep(REST_AFTER_FAILURE_SECONDS)
            except Exception as error:  # noqa: BLE001  # a bug must not keep every later message from being stored
                return error
            else:
                self.on_stored(drafts, receipts)
                return None

    def _drop(self, count: int) -> None:
        for _ in range(count):
            draft, _ = self._kept.popleft()
            self._bytes -= weight_of(draft)


def _unheard(_drafts: Sequence[Draft], _receipts: Sequence[Receipt]) -> None:
    """No listener is set."""
