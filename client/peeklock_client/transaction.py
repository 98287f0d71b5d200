"""Transactions: sends and settlements of several queues that take effect together, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from types import TracebackType
from typing import Self

from peeklock_client.errors import InDoubt, PeeklockError, TransactionNotFound, TransactionRolledBack
from peeklock_client.generated import answers, requests
from peeklock_client.generated.operations import Operations
from peeklock_client.receive_state import Receive


class Transaction:
    """An open transaction. With `async with` it is committed at the end of the block, or rolled back if the block raises.

    A block that has called `commit` or `rollback` itself ends without another request.

    Receives that have joined end with the commit, and are Received again after a rollback. A receive that faults after it has
    joined does not affect the transaction, whose outcome is always definite (S0.25).
    """

    def __init__(self, api: Operations, opened: answers.TransactionView) -> None:
        self._api = api
        self.id = opened.id
        self.expires_at: datetime = opened.expires_at
        self.committed: answers.CommittedTransaction | None = None
        self._receives: list[Receive] = []
        self._has_ended = False

    def join(self, receive: Receive) -> None:
        """Add a receive whose settlement has joined: it ends with the transaction."""
        self._receives.append(receive)

    async def commit(self) -> answers.CommittedTransaction:
        """Carry out every member. Raises `TransactionRolledBack` if that is impossible; then none is carried out.

        If it is unknown whether the transaction is committed, its receives are faulted.
        """
        try:
            self.committed = await self._api.commit_transaction(self.id, requests.EndTransaction())
        except TransactionRolledBack:
            self._end(Receive.note_rollback)
            raise
        except (InDoubt, TransactionNotFound) as error:
            for receive in self._receives:
                receive.fault(error)
            raise
        self._end(Receive.note_commit)
        return self.committed

    async def rollback(self) -> None:
        """Discard every member. Messages stay locked by their receivers, who can settle them."""
        await self._api.rollback_transaction(self.id, requests.EndTransaction())
        self._end(Receive.note_rollback)

    def _end(self, note: Callable[[Receive], None]) -> None:
        self._has_ended = True
        for receive in self._receives:
            note(receive)
        self._receives.clear()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._has_ended:
            return
        if error is None:
            await self.commit()
            return
        try:
            await self.rollback()
        except PeeklockError as failure:
            error.add_note(f"The rollback failed, so the transaction ends at its deadline: {failure}")
