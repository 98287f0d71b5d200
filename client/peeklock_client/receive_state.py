"""The state of a receive, from the lock of its message until its settlement: the state machine of a non-destructive receive (S0).

    Received ── complete, commit ──▶ Completing ──▶ Completed
       │
       └─── abandon, dead_letter, defer, release ──▶ Abandoning ──▶ Abandoned

From each of these states, `fault` leads to Faulted. A settlement that joins a transaction stays in the middle state until the
commit. Completing and Abandoning lead back to Received if the server certainly has not settled the message: its transaction is
rolled back, or the results of a `commit` are refused.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Protocol, TypeVar

from peeklock_client.errors import InDoubt, PeeklockError, Refusal, SettlementRefused
from peeklock_client.generated import answers

log = logging.getLogger("peeklock")

Callback = Callable[[], Awaitable[None] | None]
Ended = TypeVar("Ended", answers.SettledResult, answers.CommittedMessage)


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

    def join(self, receive: Receive) -> None:
        """Add a receive whose settlement has joined: it ends with the transaction."""
        ...


class Receive:
    """The state of one receive, and how it has ended. `ReceiveContext` has the steps.

    `error` is the error that faulted the receive. `callback_failed` says that a callback raised it, so no settlement was sent.
    `outcome` is the outcome on the server: `completed`, `abandoned`, `dead_lettered`, `deferred` or `released`.
    """

    def __init__(self, sequence_number: int) -> None:
        self.outcome: str | None = None
        self.error: BaseException | None = None
        self.callback_failed = False
        self._sequence_number = sequence_number
        self._state = ReceiveState.RECEIVED
        self._joined: tuple[ReceiveState, str] | None = None
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

    # ---- how a receive ends ------------------------------------------------------------------------------------------

    def note_commit(self) -> None:
        """Record the commit of the transaction that the settlement has joined."""
        if self._joined is not None and not self.has_ended:
            self._end(*self._joined)

    def note_rollback(self) -> None:
        """Record the rollback of the transaction that the settlement has joined: the message is still locked."""
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
                log.exception("a callback for the fault of message %d failed", self._sequence_number)

    def _end(self, after: ReceiveState, outcome: str) -> None:
        self._state, self.outcome = after, outcome

    def _join(self, transaction: JoinableTransaction, after: ReceiveState, outcome: str) -> None:
        """Stay in the middle state until the commit leads to `after`."""
        self._joined = after, outcome
        transaction.join(self)

    def _has_callbacks(self, during: ReceiveState) -> bool:
        return during in self._callbacks

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
            raise WrongState(f"A receive that is {self._state.value} {otherwise}.") from self.error

    def _check_not_faulted(self) -> None:
        if self._state is ReceiveState.FAULTED:
            raise InDoubt("The receive was faulted, so it is unknown whether its message is settled.") from self.error


def check_plain(callback: Callable[[], None]) -> None:
    """Raise `TypeError` for a coroutine function, because calling it would run nothing."""
    if inspect.iscoroutinefunction(callback):
        raise TypeError(f"{callback} is a coroutine function. Pass a plain function.")
