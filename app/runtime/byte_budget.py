"""Limits how many bytes of one kind a process holds at a time."""

import asyncio
from collections import deque
from types import TracebackType
from typing import Self


class ByteBudget:
    """Counts the bytes that are held, up to `limit`. `acquire_unchecked` may exceed the limit.

    Callers that wait for free bytes are served in order of arrival, and wait at most `timeout_seconds`. A caller that
    does not get its bytes gets an exception of the type `refusal`.
    """

    def __init__(self, limit: int, refusal: type[Exception], timeout_seconds: float = 5.0) -> None:
        self.limit = limit
        self.held = 0
        self._refusal = refusal
        self._timeout_seconds = timeout_seconds
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def acquire(self, size: int) -> None:
        """Hold these bytes too. Raises `refusal` if they exceed the limit."""
        if self.held + size > self.limit:
            raise self._refusal
        self.held += size

    def acquire_unchecked(self, size: int) -> None:
        """Hold bytes that are in memory already, even above the limit: the next caller waits for their release."""
        self.held += size

    def release(self, size: int) -> None:
        """Release these bytes, and serve callers that wait."""
        self.held -= size
        if self._waiting:
            self._admit_waiting()

    def reserve(self, size: int) -> "Reservation":
        """Return a reservation of these bytes, to use with `async with`. More than `limit` bytes wait until nothing is held.

        Entering raises `refusal` after `timeout_seconds`.
        """
        return Reservation(self, min(size, self.limit))

    def reserve_more(self) -> "GrowingReservation":
        """Return a reservation that holds nothing yet, to use with `async with`."""
        return GrowingReservation(self)

    async def wait_and_acquire(self, size: int) -> None:
        """Called by a reservation: hold these bytes once they fit and earlier callers have theirs."""
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
    """Bytes that are held inside an `async with` block."""

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


class GrowingReservation:
    """A reservation whose size is set later. It is held until the `async with` block ends."""

    __slots__ = ("_budget", "_size")

    def __init__(self, budget: ByteBudget) -> None:
        self._budget = budget
        self._size = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._size:
            self._budget.release(self._size)

    async def grow(self, size: int) -> None:
        """Hold at least this many bytes. Bytes above the limit of the budget are not counted.

        Raises as entering a `Reservation` does.
        """
        missing = min(size, self._budget.limit) - self._size
        if missing > 0:
            await self._budget.wait_and_acquire(missing)
            self._size += missing
