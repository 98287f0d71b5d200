"""The receive of one message, from its lock until its settlement: the state machine of a non-destructive receive (S0).

    Received ── complete ──▶ Completing ──▶ Completed
       │
       └─── abandon, dead_letter, defer ──▶ Abandoning ──▶ Abandoned

From each of these states, `fault` leads to Faulted. No other step exists, and none leads back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from enum import Enum
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

from msgspec import UNSET, UnsetType

from peeklock_client.errors import InDoubt, LockLost, PeeklockError, Refusal, SettlementRefused
from peeklock_client.generated import answers, requests
from peeklock_client.messages import BodyType, Message, to_json

Settlement = (
    requests.CompleteSettlement
    | requests.AbandonSettlement
    | requests.DeadLetterSettlement
    | requests.DeferSettlement
    | requests.RenewSettlement
)
Callback = Callable[[], Awaitable[None] | None]
Ended = TypeVar("Ended", answers.SettledResult, answers.Committed)


class ReceiveState(Enum):
    """Where a receive is."""

    RECEIVED = "received"
    COMPLETING = "completing"
    COMPLETED = "completed"
    ABANDONING = "abandoning"
    ABANDONED = "abandoned"
    FAULTED = "faulted"


class WrongState(PeeklockError):
    """A receive is not in the state that this step begins from, such as a second `complete`."""


class JoinableTransaction(Protocol):
    """A transaction that settlements can join."""

    @property
    def id(self) -> str:
        """The id by which the server knows it."""
        ...


class Settler(Protocol):
    """Carries settlements out, alone or together with those of other receives."""

    async def settle(self, settlement: Settlement, transaction_id: str | None) -> answers.SettledResult:
        """Carry out a settlement. Raises `Refusal` or `InDoubt` if it does not take effect, or may not."""
        ...

    async def renew(self, settlement: requests.RenewSettlement) -> answers.RenewedResult:
        """Prolong a lock. Raises as `settle` does."""
        ...

    async def commit(self, lock_token: str, results: requests.CommitLock) -> answers.Committed:
        """Complete a delivery, and store what its processing has made, together. Raises as `settle` does."""
        ...


class ReceiveContext(Generic[BodyType]):
    """A message under lock, and the steps that end its receive. With `async with`, it is completed at the end of the block,
    or abandoned if the block raises.

    `lock_duration` is for how many seconds the lock was granted, or renewed last. `error` is why the receive is faulted.
    `outcome` is what the server did with the message: `completed`, `abandoned`, `dead_lettered` or `deferred`.
    """

    def __init__(self, message: Message[BodyType], lock_token: str, lock_seconds: float, settler: Settler) -> None:
        self.message = message
        self.lock_token = lock_token
        self.outcome: str | None = None
        self.error: BaseException | None = None
        self._state = ReceiveState.RECEIVED
        self._settler = settler
        self.lock_duration = lock_seconds
        self._lock_ends = asyncio.get_running_loop().time() + lock_seconds
        self._is_committing = False
        self._callbacks: dict[ReceiveState, list[Callback]] = {}

    @property
    def state(self) -> ReceiveState:
        """Where the receive is."""
        return self._state

    @property
    def is_active(self) -> bool:
        """Whether the receive can still be settled."""
        return self._state is ReceiveState.RECEIVED and not self._is_committing

    @property
    def has_ended(self) -> bool:
        """Whether the receive is completed, abandoned or faulted."""
        return self._state in (ReceiveState.COMPLETED, ReceiveState.ABANDONED, ReceiveState.FAULTED)

    @property
    def in_doubt(self) -> bool:
        """Whether this process cannot know if the message is settled (S0.19). The server knows."""
        return self._state is ReceiveState.FAULTED and not isinstance(self.error, Refusal)

    @property
    def lock_seconds(self) -> float:
        """How many seconds the lock lasts from now, 0 if it has ended by the clock of this process."""
        return max(0.0, self._lock_ends - asyncio.get_running_loop().time())

    # ---- callbacks ---------------------------------------------------------------------------------------------------

    def on_complete(self, callback: Callback) -> None:
        """Call this once while completing, before the message is gone. If it raises, the message is not completed (S0.10)."""
        self._callbacks.setdefault(ReceiveState.COMPLETING, []).append(callback)

    def on_abandon(self, callback: Callback) -> None:
        """Call this once while abandoning, before others can receive the message (S0.15)."""
        self._callbacks.setdefault(ReceiveState.ABANDONING, []).append(callback)

    def on_fault(self, callback: Callable[[], None]) -> None:
        """Call this once the receive is faulted."""
        self._callbacks.setdefault(ReceiveState.FAULTED, []).append(callback)

    # ---- steps -------------------------------------------------------------------------------------------------------

    async def complete(self, reply: Any = UNSET, transaction: JoinableTransaction | None = None) -> None:
        """Complete the message: it leaves its queue, at once or with the commit of the transaction (S0.7, S0.8).

        `reply` answers a sender that waits for the settlement. Raises `WrongState` except in Received (S0.5, S0.6),
        `LockLost` if the lock has ended, and `InDoubt` if the answer is lost or the receive is faulted meanwhile.
        """
        if not self.is_active:
            raise WrongState(f"A receive that is {self._state.value} cannot be completed.")
        given = UNSET if isinstance(reply, UnsetType) else to_json(reply)
        settlement = requests.CompleteSettlement(self.lock_token, given)
        await self._end(ReceiveState.COMPLETING, ReceiveState.COMPLETED, self._settling(settlement, transaction))

    async def commit(self, results: requests.CommitLock) -> answers.Committed:
        """Complete the message, and store together with that what its processing has made: messages, and the next version
        of a state. All of it takes effect, or nothing.

        The receive stays Received until the server has committed; then the callbacks run, in Completing. A refusal of the
        results, such as `VersionConflict`, leaves it Received: the message is still locked. Raises as `complete` does.
        """
        if not self.is_active:
            raise WrongState(f"A receive that is {self._state.value} cannot be committed.")
        self._is_committing = True
        try:
            committed = await self._settler.commit(self.lock_token, results)
            self._check_not_faulted()
        except Refusal as error:
            if isinstance(error, SettlementRefused):
                self.fault(error)
            raise
        except BaseException as error:
            self.fault(error)
            raise
        finally:
            self._is_committing = False
        return await self._end(ReceiveState.COMPLETING, ReceiveState.COMPLETED, lambda: _ready(committed))

    async def abandon(
        self,
        *,
        delay_seconds: float | None = None,
        count: bool = True,
        reason: str | None = None,
        properties: Mapping[str, Any] | None = None,
        transaction: JoinableTransaction | None = None,
    ) -> None:
        """Give the message back, to be received again at once or after `delay_seconds` (S0.14).

        With `count` false it is not a failure of the message. Again has no effect (S0.13). Raises `WrongState` if the
        receive is completing, completed or faulted (S0.12), and as `complete` does.
        """
        await self._give_back(
            requests.AbandonSettlement(
                self.lock_token, _or_unset(delay_seconds), count, _or_unset(reason), _dict(properties)
            ),
            transaction,
        )

    async def dead_letter(
        self,
        reason: str | None = None,
        description: str | None = None,
        properties: Mapping[str, Any] | None = None,
        transaction: JoinableTransaction | None = None,
    ) -> None:
        """Set the message aside as one that cannot be processed, with the reason (S3.24). Raises as `abandon` does."""
        settlement = requests.DeadLetterSettlement(
            self.lock_token, _or_unset(reason), _or_unset(description), _dict(properties)
        )
        await self._give_back(settlement, transaction)

    async def defer(
        self, properties: Mapping[str, Any] | None = None, transaction: JoinableTransaction | None = None
    ) -> None:
        """Set the message aside, to be received by its sequence number (S3.25). Raises as `abandon` does."""
        await self._give_back(requests.DeferSettlement(self.lock_token, _dict(properties)), transaction)

    async def renew(self, lock_seconds: float | None = None) -> None:
        """Prolong the lock, counted from now (S3.15). Raises `WrongState` except in Received, and `LockLost`."""
        if self._state is not ReceiveState.RECEIVED:
            raise WrongState(f"The lock of a receive that is {self._state.value} cannot be renewed.")
        asked_at = asyncio.get_running_loop().time()
        try:
            renewed = await self._settler.renew(requests.RenewSettlement(self.lock_token, _or_unset(lock_seconds)))
        except LockLost as error:
            self.fault(error)
            raise
        self.note_renewal(renewed, asked_at)

    def note_renewal(self, renewed: answers.RenewedResult, asked_at: float) -> None:
        """Note how long a lock lasts that was renewed at `asked_at` or later, by the clock of the event loop.

        The time of the request counts, because the answer may have been long on its way.
        """
        self.lock_duration = renewed.lock_remaining_ms / 1000
        self._lock_ends = asked_at + self.lock_duration

    def fault(self, error: BaseException | None = None) -> None:
        """Leave the outcome in doubt, in any state (S0.17). Nothing is sent: what is on its way to the server may take
        effect, and if nothing is, the lock ends at its time and the message is received again (S0.21 to S0.23).

        After the end of the receive it has no effect (S0.18).
        """
        if self.has_ended:
            return
        self._state, self.error = ReceiveState.FAULTED, error
        for callback in self._callbacks.pop(ReceiveState.FAULTED, []):
            callback()

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
            await self.abandon(reason=reason_of(error))

    # ---- how a receive ends ------------------------------------------------------------------------------------------

    async def _give_back(self, settlement: Settlement, transaction: JoinableTransaction | None) -> None:
        if self._state in (ReceiveState.ABANDONING, ReceiveState.ABANDONED):
            return
        if not self.is_active:
            raise WrongState(f"A receive that is {self._state.value} cannot be abandoned.")
        await self._end(ReceiveState.ABANDONING, ReceiveState.ABANDONED, self._settling(settlement, transaction))

    def _settling(
        self, settlement: Settlement, transaction: JoinableTransaction | None
    ) -> Callable[[], Awaitable[answers.SettledResult]]:
        return lambda: self._settler.settle(settlement, None if transaction is None else transaction.id)

    async def _end(self, during: ReceiveState, after: ReceiveState, settle: Callable[[], Awaitable[Ended]]) -> Ended:
        """Pass through `during` to `after`: the callbacks first, then the server. Any error in between is a fault."""
        self._state = during
        try:
            for callback in self._callbacks.pop(during, []):
                awaited = callback()
                if awaited is not None:
                    await awaited
                self._check_not_faulted()
            result = await settle()
            self._check_not_faulted()
        except BaseException as error:
            self.fault(error)
            raise
        self._state, self.outcome = after, result.outcome
        return result

    def _check_not_faulted(self) -> None:
        if self._state is ReceiveState.FAULTED:
            raise InDoubt(
                "The receive was faulted, so whether its message is settled is not known here."
            ) from self.error


async def _ready(result: answers.Committed) -> answers.Committed:
    return result


def reason_of(error: BaseException) -> str:
    """Return the name of an error, as a reason that is kept with the message."""
    return type(error).__name__[:128]


def _or_unset(value: Any) -> Any:
    return UNSET if value is None else value


def _dict(properties: Mapping[str, Any] | None) -> Any:
    return dict(properties) if properties else UNSET
