"""The receive of one message, from its lock until its settlement: the state machine of a non-destructive receive (S0).

    Received ── complete, commit ──▶ Completing ──▶ Completed
       │
       └─── abandon, dead_letter, defer, release ──▶ Abandoning ──▶ Abandoned

From each of these states, `fault` leads to Faulted. A settlement that joins a transaction stays in the middle state until the
commit. Completing and Abandoning lead back to Received if the server certainly has not settled the message: its transaction is
rolled back, or the results of a `commit` are refused.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from enum import Enum
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

from msgspec import UNSET

from peeklock_client.encoding import encoded
from peeklock_client.errors import (
    InDoubt,
    LockLost,
    NotSerializable,
    PeeklockError,
    Refusal,
    SettlementRefused,
    TransactionRolledBack,
    WrongEventLoop,
)
from peeklock_client.generated import answers, requests
from peeklock_client.messages import BodyType, Message

log = logging.getLogger("peeklock")

Settlement = (
    requests.CompleteSettlement
    | requests.AbandonSettlement
    | requests.DeadLetterSettlement
    | requests.DeferSettlement
    | requests.ReleaseSettlement
    | requests.RenewSettlement
)
Callback = Callable[[], Awaitable[None] | None]
Ended = TypeVar("Ended", answers.SettledResult, answers.Committed)


UNSETTLED = (TransactionRolledBack, WrongEventLoop)
"""The errors of a settlement after which its message is certainly still locked, and can be settled."""


class ReceiveState(Enum):
    """The state of a receive."""

    RECEIVED = "received"
    COMPLETING = "completing"
    COMPLETED = "completed"
    ABANDONING = "abandoning"
    ABANDONED = "abandoned"
    FAULTED = "faulted"


class WrongState(PeeklockError):
    """The state of the receive does not allow this step, such as a second `complete`."""


class JoinableTransaction(Protocol):
    """A transaction that settlements can join."""

    @property
    def id(self) -> str:
        """Its id on the server."""
        ...

    def join(self, receive: ReceiveContext[Any]) -> None:
        """Note the end of the transaction at this receive, whose settlement has joined."""
        ...


class Settler(Protocol):
    """Sends settlements to the server, alone or together with those of other receives."""

    async def settle(self, settlement: Settlement, transaction_id: str | None) -> answers.SettledResult:
        """Settle a delivery. Raises `Refusal` if the server refuses it, and `InDoubt` if its effect is unknown."""
        ...

    async def renew(self, settlement: requests.RenewSettlement) -> answers.RenewedResult:
        """Prolong a lock. Raises as `settle` does."""
        ...

    async def commit(self, lock_token: str, results: requests.CommitLock) -> answers.Committed:
        """Complete a delivery and store the results of its processing, in one transaction. Raises as `settle` does."""
        ...


DecideRetry = Callable[[requests.AbandonSettlement, BaseException | None], Settlement]
"""Decides about an abandon that has no delay of its own and counts as a failure: the settlement to send instead."""


class ReceiveContext(Generic[BodyType]):
    """A message under lock, and the steps that end its receive.

    With `async with`, the message is completed at the end of the block, or abandoned if the block raises. `lock_duration` is
    the length of the lock in seconds, as it was granted or last renewed. `error` is the error that faulted the receive.
    `outcome` is the outcome on the server: `completed`, `abandoned`, `dead_lettered`, `deferred` or `released`.
    `callback_failed` says that a callback raised `error`, so no settlement was sent.
    """

    def __init__(self, message: Message[BodyType], lock_token: str, lock_seconds: float, settler: Settler) -> None:
        self.message = message
        self.lock_token = lock_token
        self.outcome: str | None = None
        self.error: BaseException | None = None
        self.callback_failed = False
        self._state = ReceiveState.RECEIVED
        self._settler = settler
        self.lock_duration = lock_seconds
        self._lock_ends = asyncio.get_running_loop().time() + lock_seconds
        self._step: type[Settlement] | None = None
        self._joined: tuple[ReceiveState, str] | None = None
        self._decide_retry: DecideRetry | None = None
        self._callbacks: dict[ReceiveState, list[Callback]] = {}

    @property
    def state(self) -> ReceiveState:
        """The state of the receive."""
        return self._state

    @property
    def is_active(self) -> bool:
        """Whether the receive can still be settled."""
        return self._state is ReceiveState.RECEIVED

    @property
    def has_ended(self) -> bool:
        """Whether the receive is completed, abandoned or faulted."""
        return self._state in (ReceiveState.COMPLETED, ReceiveState.ABANDONED, ReceiveState.FAULTED)

    @property
    def in_doubt(self) -> bool:
        """Whether this process does not know if the message is settled (S0.19). The server knows."""
        is_known = self.callback_failed or isinstance(self.error, Refusal)
        return self._state is ReceiveState.FAULTED and not is_known

    @property
    def lock_seconds(self) -> float:
        """The seconds until the lock ends, by the clock of this process. 0 if it has ended."""
        return max(0.0, self._lock_ends - asyncio.get_running_loop().time())

    # ---- callbacks ---------------------------------------------------------------------------------------------------

    def on_complete(self, callback: Callback) -> None:
        """Call `callback` once, before the server completes the message or the completion joins a transaction (S0.10).

        If it raises, the message is not completed. Raises `WrongState` except in Received, because it would not be called.
        """
        self._check_received("takes no callback")
        self._callbacks.setdefault(ReceiveState.COMPLETING, []).append(callback)

    def on_abandon(self, callback: Callback) -> None:
        """Call `callback` once, before the message is abandoned and others can receive it (S0.15). Raises as `on_complete`."""
        self._check_received("takes no callback")
        self._callbacks.setdefault(ReceiveState.ABANDONING, []).append(callback)

    def on_fault(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, when the receive is faulted. What it raises is logged. Raises `TypeError` for a coroutine
        function, which nothing would await.
        """
        check_plain(callback)
        self._callbacks.setdefault(ReceiveState.FAULTED, []).append(callback)

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

    async def commit(self, results: requests.CommitLock) -> answers.Committed:
        """Complete the message and store the results of its processing, messages and the next version of a state, in one
        transaction.

        If the server refuses the results, for example with `VersionConflict`, or if they cannot be encoded as JSON
        (`NotSerializable`), the receive is Received again and the message stays locked. Raises as `complete` does.
        """
        self._check_received("cannot be committed")
        if ReceiveState.COMPLETING in self._callbacks:
            encoded(results)  # raises before the callbacks
        await self._prepare(ReceiveState.COMPLETING)
        committed = await self._answer(self._settler.commit(self.lock_token, results), (Refusal, NotSerializable))
        self._state, self.outcome = ReceiveState.COMPLETED, committed.outcome
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
        await self._give_back(self._retry_of(settlement, None), transaction)

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
        await self._give_back(settlement, transaction)

    async def defer(
        self, properties: Mapping[str, Any] | None = None, transaction: JoinableTransaction | None = None
    ) -> None:
        """Set the message aside. It can only be received by its sequence number (S3.25). Raises as `abandon` does."""
        await self._give_back(requests.DeferSettlement(self.lock_token, _dict(properties)), transaction)

    async def release(self, transaction: JoinableTransaction | None = None) -> None:
        """Return the message unprocessed: it takes its old place, and the delivery does not count (S2.21). Raises as `abandon`
        does."""
        await self._give_back(requests.ReleaseSettlement(self.lock_token), transaction)

    async def renew(self, lock_seconds: float | None = None) -> None:
        """Prolong the lock: it lasts `lock_seconds` from now (S3.15). Raises `WrongState` except in Received, and `LockLost`."""
        self._check_received("does not renew its lock")
        asked_at = asyncio.get_running_loop().time()
        try:
            renewed = await self._settler.renew(requests.RenewSettlement(self.lock_token, _or_unset(lock_seconds)))
        except LockLost as error:
            self.fault(error)
            raise
        self.note_renewal(renewed, asked_at)

    def note_renewal(self, renewed: answers.RenewedResult, asked_at: float) -> None:
        """Record a renewal that was requested at `asked_at`, by the clock of the event loop.

        The lock counts from the time of the request, because the answer may have taken long.
        """
        self.lock_duration = renewed.lock_remaining_ms / 1000
        self._lock_ends = asked_at + self.lock_duration

    def note_commit(self) -> None:
        """Record that the transaction is committed which the settlement has joined."""
        if self._joined is not None and not self.has_ended:
            self._state, self.outcome = self._joined

    def note_rollback(self) -> None:
        """Record that the transaction is rolled back which the settlement has joined: the message is still locked."""
        if self._joined is not None and not self.has_ended:
            self._state, self._joined = ReceiveState.RECEIVED, None

    def fault(self, error: BaseException | None = None) -> None:
        """End the receive without a settlement, in any state (S0.17). It sends nothing to the server.

        A settlement that was already sent may take effect. Otherwise the message is received again when its lock ends
        (S0.21 to S0.23). After the end of the receive it has no effect (S0.18).
        """
        if self.has_ended:
            return
        self._state, self.error = ReceiveState.FAULTED, error
        for callback in self._callbacks.pop(ReceiveState.FAULTED, []):
            try:
                callback()
            except Exception:
                log.exception("a callback for the fault of message %d failed", self.message.sequence_number)

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
            await self._give_back(self._retry_of(settlement, error), None)

    # ---- how a receive ends ------------------------------------------------------------------------------------------

    def _retry_of(self, settlement: requests.AbandonSettlement, error: BaseException | None) -> Settlement:
        """Return what a worker makes of an abandon, for the error that has caused it."""
        has_decided = settlement.delay_seconds is not UNSET or settlement.count is False
        return settlement if self._decide_retry is None or has_decided else self._decide_retry(settlement, error)

    async def _give_back(self, settlement: Settlement, transaction: JoinableTransaction | None) -> None:
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
            self._state, self.outcome = after, settled.outcome
        else:
            self._joined = after, settled.outcome
            transaction.join(self)

    async def _prepare(self, during: ReceiveState) -> None:
        """Call the callbacks of a state. Any error is a fault, and nothing has been sent."""
        self._state = during
        try:
            for callback in self._callbacks.pop(during, []):
                awaited = callback()
                if awaited is not None:
                    await awaited
                self._check_not_faulted()
        except BaseException as error:
            self.callback_failed = isinstance(error, Exception) and not self.has_ended
            self.fault(error)
            raise

    async def _answer(self, sending: Awaitable[Ended], unsettled: tuple[type[PeeklockError], ...]) -> Ended:
        """Return the answer of the server. After an error of `unsettled` the message is still locked; any other is a fault."""
        try:
            answer = await sending
            self._check_not_faulted()
        except BaseException as error:
            if isinstance(error, SettlementRefused) or not isinstance(error, unsettled):
                self.fault(error)
            elif not self.has_ended:
                self._state = ReceiveState.RECEIVED
            raise
        return answer

    def _check_received(self, otherwise: str) -> None:
        if self._state is not ReceiveState.RECEIVED:
            raise WrongState(f"A receive that is {self._state.value} {otherwise}.")

    def _check_not_faulted(self) -> None:
        if self._state is ReceiveState.FAULTED:
            raise InDoubt("The receive was faulted, so it is unknown whether its message is settled.") from self.error


def check_plain(callback: Callable[[], None]) -> None:
    """Raise `TypeError` for a coroutine function: a call of it would run nothing."""
    if inspect.iscoroutinefunction(callback):
        raise TypeError(f"{callback} is a coroutine function. Pass a plain function.")


def reason_of(error: BaseException) -> str:
    """Return the name of an error, as a reason to store with the message."""
    return type(error).__name__[:128]


def _or_unset(value: Any) -> Any:
    return UNSET if value is None else value


def _dict(properties: Mapping[str, Any] | None) -> Any:
    return dict(properties) if properties else UNSET
