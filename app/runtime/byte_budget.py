"""How many bytes of one kind a process may hold at a time."""

import asyncio
from collections import deque
from types import TracebackType


class ByteBudget:
    """Counts bytes that are held, up to `most`. `add` may exceed it, for bytes that are in memory already.

    Callers that wait for room are served in order of arrival, and wait at most `patience_seconds`. A caller for which
    there is no room gets an exception of the type `refusal`.
    """

    def __init__(self, limit: int, refusal: type[Exception], timeout_seconds: float = 5.0) -> None:
        self.limit = limit
        self.held = 0
        self._refusal = refusal
        self._timeout_seconds = timeout_seconds
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def acquire(self, size: int) -> None:
        """Hold these bytes too. Raises where there is no room for them."""
        if self.held + size > self.limit:
            raise self._refusal
        self.held += size

    def acquire_unchecked(self, size: int) -> None:
        """Hold bytes that are in memory already, also where there is no room: the next caller waits for them."""
        self.held += size

    def release(self, size: int) -> None:
        """Hold these bytes no more."""
        self.held -= size
        self._admit_waiting()

    def reserve(self, size: int) -> "Reservation":
        """Room for these bytes, to be used with `async with`; more than `most` of them wait until nothing is held.

        Raises where there is none in time.
        """
        return Reservation(self, min(size, self.limit))

    async def wait_and_acquire(self, size: int) -> None:
        """Called by a room: hold these bytes once there is room and earlier callers have theirs."""
        if not self._waiting and self.held + size <= self.limit:
            self.held += size
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (size, future)
        self._waiting.append(entry)
        try:
            async with asyncio.timeout(self._timeout_seconds):
                await future
        except BaseException as error:
            self._cancel(entry)
            if isinstance(error, TimeoutError):
                raise self._refusal from error
            raise

    def _cancel(self, entry: tuple[int, asyncio.Future[None]]) -> None:
        size, future = entry
        if future.done() and not future.cancelled():
            self.release(size)
        else:
            self._waiting.remove(entry)
            self._admit_waiting()

    def _admit_waiting(self) -> None:
        while self._waiting and self.held + self._waiting[0][0] <= self.limit:
            size, future = self._waiting[0]
            if future.cancelled():
                # Its own task removes it.
                return
            self._waiting.popleft()
            self.held += size
            future.set_result(None)


class Reservation:
    """Bytes that are held while something is under way."""

    __slots__ = ("_budget", "_size")

    def __init__(self, budget: ByteBudget, size: int) -> None:
        self._budget = budget
        self._size = size

    async def __aenter__(self) -> None:
        await self._budget.wait_and_acquire(self._size)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._budget.release(self._size)
