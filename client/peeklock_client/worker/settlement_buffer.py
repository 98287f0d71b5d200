"""Collects settlements, so one request carries many: the next receive, or a request of their own (S2.18)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import msgspec

from peeklock_client.encoding import encoded
from peeklock_client.errors import InDoubt, Refusal, UnexpectedAnswer, WrongEventLoop, error_of
from peeklock_client.generated import answers, requests
from peeklock_client.http_pools import running_loop
from peeklock_client.settling import DirectSettler, Settlement

MAX_SETTLEMENTS = 1000
"""Settlements in one request."""

MAX_BYTES = 4 << 20
"""Bytes of the settlements in one request, mostly replies. By default a server accepts 16 MiB."""

Result = answers.SettledResult | answers.RenewedResult | answers.RefusedResult


@dataclass(slots=True)
class WaitingSettlement:
    """A settlement as JSON, and the future that gets its result."""

    content: bytes
    result: asyncio.Future[answers.SettledResult | answers.RenewedResult]


class SettlementBuffer:
    """Implements `settling.Settler` for one queue. Commits, and settlements that join a transaction, are sent at once."""

    def __init__(self, direct: DirectSettler) -> None:
        self._direct = direct
        self._loop = running_loop()
        self._waiting: list[WaitingSettlement] = []
        self._filled = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    async def settle(self, settlement: Settlement, transaction_id: str | None) -> answers.SettledResult:
        """Return the result of the request that carries this settlement."""
        if transaction_id is not None:
            return await self._direct.settle(settlement, transaction_id)
        result = await self.add(settlement)
        if not isinstance(result, answers.SettledResult):
            raise UnexpectedAnswer(f"The answer to a settlement was {result}.")
        return result

    async def renew(self, settlement: requests.RenewSettlement) -> answers.RenewedResult:
        """Return the result of the request that carries this renewal."""
        result = await self.add(settlement)
        if not isinstance(result, answers.RenewedResult):
            raise UnexpectedAnswer(f"The answer to a renewal was {result}.")
        return result

    async def commit(self, lock_token: str, results: requests.CommitLock) -> answers.CommittedMessage:
        """Commit at once. The server itself batches the commits of many receivers."""
        return await self._direct.commit(lock_token, results)

    def add(self, settlement: Settlement) -> asyncio.Future[answers.SettledResult | answers.RenewedResult]:
        """Add a settlement, and return the future of its result. Raises `NotSerializable`, and `WrongEventLoop` in another
        event loop than that of the worker, such as one that a handler in a thread runs.
        """
        if running_loop() is not self._loop:
            raise WrongEventLoop("The receives of a worker are settled in its event loop. Let the handler be `async`.")
        content, result = encoded(settlement), self._loop.create_future()
        self._waiting.append(WaitingSettlement(content, result))
        self._filled.set()
        return result

    async def wait(self) -> None:
        """Return once there is a settlement."""
        await self._filled.wait()

    def take(self) -> list[WaitingSettlement]:
        """Return the settlements that the next request carries. A settlement that is too large for any request is sent alone."""
        sizes = accumulate(len(one.content) for one in self._waiting[:MAX_SETTLEMENTS])
        count = max(1, sum(size <= MAX_BYTES for size in sizes))
        taken, self._waiting = self._waiting[:count], self._waiting[count:]
        if not self._waiting:
            self._filled.clear()
        return taken

    def requeue(self, taken: Sequence[WaitingSettlement]) -> None:
        """Let settlements whose request failed wait again. Repeating them is harmless."""
        self._waiting[:0] = taken
        if self._waiting:
            self._filled.set()

    def finish(self, taken: Sequence[WaitingSettlement], results: Sequence[Result]) -> None:
        """Set the result of each settlement. If their numbers differ, the effect of all settlements is unknown."""
        if len(results) != len(taken):
            self.fail(taken, InDoubt(f"{len(taken)} settlements got {len(results)} results."))
            return
        for waiting, result in zip(taken, results, strict=True):
            if waiting.result.done():
                continue
            if isinstance(result, answers.RefusedResult):
                waiting.result.set_exception(error_of(result.problem))
            else:
                waiting.result.set_result(result)

    def fail(self, taken: Sequence[WaitingSettlement], error: Exception) -> None:
        """Raise an error in each waiting task. The effect of its settlement is unknown."""
        definite = (
            error if isinstance(error, Refusal | InDoubt) else InDoubt(f"The settlement was not answered: {error}")
        )
        for waiting in taken:
            if not waiting.result.done():
                waiting.result.set_exception(definite)


def entries_of(taken: Sequence[WaitingSettlement]) -> list[Any]:
    """Return the settlements for the body of a request."""
    return [msgspec.Raw(waiting.content) for waiting in taken]
