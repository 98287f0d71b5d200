"""A message under lock: the steps that renew its lock and end its receive. `receive_state.py` has the states that they lead to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Generic, Self

from msgspec import UNSET

from peeklock_client.encoding import encoded
from peeklock_client.errors import LockLost, NotSerializable, Refusal, TransactionRolledBack, WrongEventLoop
from peeklock_client.generated import answers, requests
from peeklock_client.messages import BodyType, Message
from peeklock_client.receive_state import JoinableTransaction, Receive, ReceiveState
from peeklock_client.renewal import Renewal
from peeklock_client.settling import Settlement, Settler

UNSETTLED = (TransactionRolledBack, WrongEventLoop)
"""The errors of a settlement after which its message is certainly still locked, and can be settled."""


DecideRetry = Callable[[requests.AbandonSettlement, BaseException | None], Settlement]
"""Decides about an abandon that has no delay of its own and counts as a failure: the settlement to send instead."""


class ReceiveContext(Receive, Generic[BodyType]):
    """A message under lock, and the steps that end its receive.

    With `async with`, the message is completed at the end of the block, or abandoned if the block raises. `lock_duration` is
    the length of the lock in seconds, as it was granted or last renewed.
    """

    def __init__(self, message: Message[BodyType], lock_token: str, lock_seconds: float, settler: Settler) -> None:
        super().__init__(message.sequence_number)
        self.message = message
        self.lock_token = lock_token
        self._settler = settler
        self.lock_duration = lock_seconds
        self._lock_ends = asyncio.get_running_loop().time() + lock_seconds
        self._step: type[Settlement] | None = None
        self._decide_retry: DecideRetry | None = None

    @property
    def lock_seconds(self) -> float:
        """The seconds until the lock ends, by the clock of this process. 0 if it has ended."""
        return max(0.0, self._lock_ends - asyncio.get_running_loop().time())

    def decide_retries_by(self, decide: DecideRetry | None) -> None:
        """Let a worker decide about abandons that count and have no delay of their own, while its handler runs."""
        self._decide_retry = decide

    # ---- steps -------------------------------------------------------------------------------------------------------

    async def complete(self, reply: Any = UNSET, transaction: JoinableTransaction | None = None) -> None:
        """Complete the message: it leaves its queue, at once or with the commit of the transaction (S0.7, S0.8).

        `reply` answers a sender that waits for the settlement. Raises `WrongState` except in Received (S0.5, S0.6),
        `LockLost` if the lock has ended, and `InDoubt` if the answer is lost or the receive is faulted meanwhile. With a
        reply that cannot be encoded as JSON (`NotSerializable`), the receive stays Received.
        """
        self._check_received("cannot be completed")
        settlement = requests.CompleteSettlement(self.lock_token, reply)
        await self._settle(ReceiveState.COMPLETING, ReceiveState.COMPLETED, settlement, transaction)

    async def commit(self, results: requests.CommitLock) -> answers.CommittedMessage:
        """Complete the message and store the results of its processing, messages and the next version of a state, in one
        transaction.

        If the server refuses the results, for example with `VersionConflict`, or if they cannot be encoded as JSON
        (`NotSerializable`), the receive is Received again and the message stays locked. Raises as `complete` does.
        """
        self._check_received("cannot be committed")
        if self._has_callbacks(ReceiveState.COMPLETING):
            encoded(results)  # raises before the callbacks
        await self._prepare(ReceiveState.COMPLETING)
        committed = await self._answer(self._settler.commit(self.lock_token, results), (Refusal, NotSerializable))
        self._end(ReceiveState.COMPLETED, committed.outcome)
        return committed

    async def abandon(
        self,
        *,
        delay_seconds: float | None = None,
        count: bool = True,
        reason: str | None = None,
        properties: Mapping[str, Any] | None = None,
        transaction: JoinableTransaction | None = None,
    ) -> None:
        """Return the message to its queue, to be received again at once or after `delay_seconds` (S0.14).

        In a worker with a retry strategy, that decides about an abandon without `delay_seconds`: after which delay the message
        is received again, or that it is dead-lettered (S2.7, S2.8). With `count=False`, this does not count as a failure of
        the message, and the strategy is not asked. A second call has no effect (S0.13). Raises `WrongState` if the receive is
        completing, completed, faulted (S0.12) or ended by another step, and otherwise as `complete` does.
        """
        settlement = requests.AbandonSettlement(
            self.lock_token, _or_unset(delay_seconds), count, _or_unset(reason), _dict(properties)
        )
        await self._abandon_by(self._retry_of(settlement, None), transaction)

    async def dead_letter(
        self,
        reason: str | None = None,
        description: str | None = None,
        properties: Mapping[str, Any] | None = None,
        transaction: JoinableTransaction | None = None,
    ) -> None:
        """Move the message to the dead-letter queue, with a reason (S3.24). Raises as `abandon` does."""
        settlement = requests.DeadLetterSettlement(
            self.lock_token, _or_unset(reason), _or_unset(description), _dict(properties)
        )
        await self._abandon_by(settlement, transaction)

    async def defer(
        self, properties: Mapping[str, Any] | None = None, transaction: JoinableTransaction | None = None
    ) -> None:
        """Set the message aside. It can only be received by its sequence number (S3.25). Raises as `abandon` does."""
        await self._abandon_by(requests.DeferSettlement(self.lock_token, _dict(properties)), transaction)

    async def release(self, transaction: JoinableTransaction | None = None) -> None:
        """Return the message unprocessed to its old position, without counting the delivery (S2.21). Raises as `abandon` does."""
        await self._abandon_by(requests.ReleaseSettlement(self.lock_token), transaction)

    async def renew(self, lock_seconds: float | None = None, *, exact: bool = False) -> None:
        """Prolong the lock: it lasts `lock_seconds` from now (S3.15). Raises `WrongState` except in Received, and `LockLost`.

        With `exact` it ends exactly then, even if that is earlier than before.
        """
        self._check_received("does not renew its lock")
        try:
            await self.prolong(lock_seconds, exact=exact)
        except LockLost as error:
            self.fault(error)
            raise

    def auto_renew(self, lock_seconds: float | None = None) -> Renewal:
        """Renew the lock in time while a block runs: `async with received, received.auto_renew():`.

        If the lock is lost, the receive is faulted and the block is cancelled, and `LockLost` is raised at its end. Renewals
        that fail otherwise are logged, and tried again until the lock ends.
        """
        return Renewal(self, lock_seconds)

    async def prolong(self, lock_seconds: float | None, *, exact: bool = False) -> None:
        """Prolong the lock as `renew` does, in any state, and leave the state as it is."""
        asked_at = asyncio.get_running_loop().time()
        renewal = requests.RenewSettlement(self.lock_token, _or_unset(lock_seconds), exact or UNSET)
        renewed = await self._settler.renew(renewal)
        self.note_renewal(renewed, asked_at)

    def note_renewal(self, renewed: answers.RenewedResult, asked_at: float) -> None:
        """Record a renewal that was requested at `asked_at`, by the clock of the event loop.

        The lock counts from the time of the request, because the answer may have taken long.
        """
        self.lock_duration = renewed.lock_remaining_ms / 1000
        self._lock_ends = asked_at + self.lock_duration

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._state is not ReceiveState.RECEIVED:
            return
        if error is None:
            await self.complete()
        elif isinstance(error, asyncio.CancelledError):
            self.fault(error)
        else:
            settlement = requests.AbandonSettlement(self.lock_token, reason=reason_of(error))
            await self._abandon_by(self._retry_of(settlement, error), None)

    def _retry_of(self, settlement: requests.AbandonSettlement, error: BaseException | None) -> Settlement:
        """Return the settlement that a worker sends instead of an abandon, for the error that has caused it."""
        has_decided = settlement.delay_seconds is not UNSET or settlement.count is False
        return settlement if self._decide_retry is None or has_decided else self._decide_retry(settlement, error)

    async def _abandon_by(self, settlement: Settlement, transaction: JoinableTransaction | None) -> None:
        if self._state in (ReceiveState.ABANDONING, ReceiveState.ABANDONED) and type(settlement) is self._step:
            return
        self._check_received(f"takes no {settlement.__struct_config__.tag}")
        await self._settle(ReceiveState.ABANDONING, ReceiveState.ABANDONED, settlement, transaction)

    async def _settle(
        self,
        during: ReceiveState,
        after: ReceiveState,
        settlement: Settlement,
        transaction: JoinableTransaction | None,
    ) -> None:
        """Pass through `during` to `after`, at once or with the commit. Raises `NotSerializable` before the state changes."""
        encoded(settlement)
        self._step = type(settlement)
        await self._prepare(during)
        transaction_id = None if transaction is None else transaction.id
        settled = await self._answer(self._settler.settle(settlement, transaction_id), UNSETTLED)
        if transaction is None:
            self._end(after, settled.outcome)
        else:
            self._join(transaction, after, settled.outcome)


def reason_of(error: BaseException) -> str:
    """Return the name of an error, as a reason to store with the message."""
    return type(error).__name__[:128]


def _or_unset(value: Any) -> Any:
    return UNSET if value is None else value


def _dict(properties: Mapping[str, Any] | None) -> Any:
    return dict(properties) if properties else UNSET
