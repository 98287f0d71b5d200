"""Settlements that are sent at once, one request for each."""

from __future__ import annotations

from peeklock_client.errors import UnexpectedAnswer, error_of
from peeklock_client.generated import answers, requests
from peeklock_client.generated.operations import Operations
from peeklock_client.receive_context import Settlement
from peeklock_client.tracing import current_traceparent


class DirectSettler:
    """Implements `receive_context.Settler` for one queue."""

    def __init__(self, api: Operations, queue: str) -> None:
        self._api = api
        self._queue = queue

    async def settle(self, settlement: Settlement, transaction_id: str | None) -> answers.SettledResult:
        """Carry out a settlement with a request of its own."""
        result = result_of((await self._send(settlement, transaction_id))[0])
        if not isinstance(result, answers.SettledResult):
            raise UnexpectedAnswer(f"A settlement was answered with {result}.")
        return result

    async def renew(self, settlement: requests.RenewSettlement) -> answers.RenewedResult:
        """Prolong a lock with a request of its own."""
        result = result_of((await self._send(settlement, None))[0])
        if not isinstance(result, answers.RenewedResult):
            raise UnexpectedAnswer(f"A renewal was answered with {result}.")
        return result

    async def commit(self, lock_token: str, results: requests.CommitLock) -> answers.Committed:
        """Complete a delivery, and store what its processing has made, together."""
        return await self._api.commit_lock(self._queue, lock_token, results, traceparent=current_traceparent())

    async def _send(
        self, settlement: Settlement, transaction_id: str | None
    ) -> list[answers.SettledResult | answers.RenewedResult | answers.RefusedResult]:
        body = requests.SettleMessages([settlement], transaction_id)
        return (await self._api.settle_messages(self._queue, body)).results


def result_of(
    result: answers.SettledResult | answers.RenewedResult | answers.RefusedResult,
) -> answers.SettledResult | answers.RenewedResult:
    """Return the result of a settlement. Raises the exception of its problem if it was refused."""
    if isinstance(result, answers.RefusedResult):
        raise error_of(result.problem)
    return result
