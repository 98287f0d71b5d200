"""How many bytes of one kind a process may hold at a time."""

import asyncio
from collections import deque
from types import TracebackType


class ByteBudget:
    """Counts bytes that are held, up to `most`. `add` may exceed it, for bytes that are in memory already.

    Callers that wait for room are served in order of arrival, and wait at most `patience_seconds`. A caller for which
    there is no room gets an exception of the type `refusal`.
    """

    def __init__(self, most: int, refusal: type[Exception], patience_seconds: float = 5.0) -> None:
        self.most = most
        self.held = 0
        self._refusal = refusal
        self._patience_seconds = patience_seconds
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def take(self, size: int) -> None:
        """Hold these bytes too. Raises where there is no room for them."""
        if self.held + size > self.most:
            raise self._refusal
        self.held += size

    def add(self, size: int) -> None:
        """Hold bytes that are in memory already, also where there is no room: the next caller waits for them."""
        self.held += size

    def give(self, size: int) -> None:
        """Hold these bytes no more."""
        self.held -= size
        self._serve()

    def room(self, size: int) -> "Room":
        """Room for these bytes, to be used with `async with`; more than `most` of them wait until nothing is held.

        Raises where there is none in time.
        """
        return Room(self, min(size, self.most))

    async def wait_for(self, size: int) -> None:
        """Called by a room: hold these bytes once there is room and earlier callers have theirs."""
        if not self._waiting and self.held + size <= self.most:
            self.held += size
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (size, turn)
        self._waiting.append(entry)
        try:
            async with asyncio.timeout(self._patience_seconds):
                await turn
        except BaseException as error:
            self._leave(entry)
            if isinstance(error, TimeoutError):
                raise self._refusal from error
            raise

    def _leave(self, entry: tuple[int, asyncio.Future[None]]) -> None:
        size, turn = entry
        if turn.done() and not turn.cancelled():
            self.give(size)
        else:
            self._waiting.remove(entry)
            self._serve()

    def _serve(self) -> None:
        while self._waiting and self.held + self._waiting[0][0] <= self.most:
            size, turn = self._waiting[0]
            if turn.cancelled():
                # Its own task removes it.
                return
            self._waiting.popleft()
            self.held += size
            turn.set_result(None)


class Room:
    """Bytes that are held while something is under way."""

    __slots__ = ("_budget", "_size")

    def __init__(self, budget: ByteBudget, size: int) -> None:
        self._budget = budget
        self._size = size

    async def __aenter__(self) -> None:
        await self._budget.wait_for(self._size)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._budget.give(self._size)
