"""Transactions: sends and settlements of several queues that take effect together, or not at all."""

from __future__ import annotations

from datetime import datetime
from types import TracebackType
from typing import Self

from peeklock_client.errors import PeeklockError, TransactionRolledBack
from peeklock_client.generated import answers, requests
from peeklock_client.generated.operations import Operations


class Transaction:
    """An open transaction. With `async with` it is committed at the end of the block, or rolled back if the block raises.

    A receive that faults after it has joined does not affect the transaction, whose outcome is always definite (S0.25).
    """

    def __init__(self, api: Operations, opened: answers.TransactionView) -> None:
        self._api = api
        self.id = opened.id
        self.expires_at: datetime = opened.expires_at
        self.committed: answers.CommittedTransaction | None = None

    async def commit(self) -> answers.CommittedTransaction:
        """Carry out every member. Raises `TransactionRolledBack` if that is impossible; then none is carried out."""
        self.committed = await self._api.commit_transaction(self.id, requests.EndTransaction())
        return self.committed

    async def rollback(self) -> None:
        """Discard every member. Messages stay locked by their receivers until their locks end."""
        await self._api.rollback_transaction(self.id, requests.EndTransaction())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            if self.committed is None:
                await self.commit()
            return
        if not isinstance(error, TransactionRolledBack):
            try:
                await self.rollback()
            except PeeklockError as failure:
                error.add_note(f"The rollback failed, so the transaction ends at its deadline: {failure}")
