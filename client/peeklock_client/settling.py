"""Sends each settlement at once, in a request of its own."""

from __future__ import annotations

from typing import Protocol

from msgspec import UNSET

from peeklock_client.errors import UnexpectedAnswer, error_of
from peeklock_client.generated import answers, requests
from peeklock_client.generated.operations import Operations
from peeklock_client.tracing import current_traceparent

Settlement = (
    requests.CompleteSettlement
    | requests.AbandonSettlement
    | requests.DeadLetterSettlement
    | requests.DeferSettlement
    | requests.ReleaseSettlement
    | requests.RenewSettlement
)


class Settler(Protocol):
    """Sends settlements to the server, alone or together with those of other receives."""

    async def settle(self, settlement: Settlement, transaction_id: str | None) -> answers.SettledResult:
        """Settle a delivery. Raises `Refusal` if the server refuses it, and `InDoubt` if its effect is unknown."""
        ...

    async def renew(self, settlement: requests.RenewSettlement) -> answers.RenewedResult:
        """Prolong a lock. Raises as `settle` does."""
        ...

    async def commit(self, lock_token: str, results: requests.CommitLock) -> answers.CommittedMessage:
        """Complete a delivery and store the results of its processing, in one transaction. Raises as `settle` does."""
        ...


class DirectSettler:
    """Implements `Settler` for one queue."""

    def __init__(self, api: Operations, queue: str) -> None:
        self._api = api
        self._queue = queue

    async def settle(self, settlement: Settlement, transaction_id: str | None) -> answers.SettledResult:
        """Carry out a settlement with a request of its own."""
        result = result_of((await self._send(settlement, transaction_id))[0])
        if not isinstance(result, answers.SettledResult):
            raise UnexpectedAnswer(f"The answer to a settlement was {result}.")
        return result

    async def renew(self, settlement: requests.RenewSettlement) -> answers.RenewedResult:
        """Prolong a lock with a request of its own."""
        result = result_of((await self._send(settlement, None))[0])
        if not isinstance(result, answers.RenewedResult):
            raise UnexpectedAnswer(f"The answer to a renewal was {result}.")
        return result

    async def commit(self, lock_token: str, results: requests.CommitLock) -> answers.CommittedMessage:
        """Complete a delivery and store the results of its processing, in one transaction."""
        return await self._api.commit_lock(self._queue, lock_token, results, traceparent=current_traceparent())

    async def _send(
        self, settlement: Settlement, transaction_id: str | None
    ) -> list[answers.SettledResult | answers.RenewedResult | answers.RefusedResult]:
        body = requests.SettleMessages([settlement], UNSET if transaction_id is None else transaction_id)
        return (await self._api.settle_messages(self._queue, body)).results


def result_of(
    result: answers.SettledResult | answers.RenewedResult | answers.RefusedResult,
) -> answers.SettledResult | answers.RenewedResult:
    """Return the result of a settlement. Raises the exception of its problem if it was refused."""
    if isinstance(result, answers.RefusedResult):
        raise error_of(result.problem)
    return result
