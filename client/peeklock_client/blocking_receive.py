"""The receive of one message, for programs without an event loop."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import Any, Generic, Self

from msgspec import UNSET

from peeklock_client.generated import answers, requests
from peeklock_client.loop_thread import run_in_caller, schedule_in_caller
from peeklock_client.messages import BodyType
from peeklock_client.receive_context import ReceiveContext
from peeklock_client.receive_state import JoinableTransaction, ReceiveState, check_plain
from peeklock_client.renewal import Renewal

Call = Callable[..., Any]
"""Calls an asynchronous function, and returns its result."""


class BlockingReceive(Generic[BodyType]):
    """A message under lock. Its methods are those of `ReceiveContext`, and block.

    With `with`, the message is completed at the end of the block, or abandoned if the block raises. Callbacks run in the
    thread whose call ends the receive. A coroutine function is refused with `TypeError`.
    """

    def __init__(self, context: ReceiveContext[BodyType], call: Call) -> None:
        self.message = context.message
        self.lock_token = context.lock_token
        self._context = context
        self._call = call

    @property
    def state(self) -> ReceiveState:
        """The state of the receive."""
        return self._context.state

    @property
    def outcome(self) -> str | None:
        """The outcome on the server: `completed`, `abandoned`, `dead_lettered`, `deferred` or `released`."""
        return self._context.outcome

    @property
    def error(self) -> BaseException | None:
        """The error that faulted the receive."""
        return self._context.error

    @property
    def is_active(self) -> bool:
        """Whether the receive can still be settled."""
        return self._context.is_active

    @property
    def has_ended(self) -> bool:
        """Whether the receive is completed, abandoned or faulted."""
        return self._context.has_ended

    @property
    def in_doubt(self) -> bool:
        """Whether this process does not know if the message is settled. The server knows."""
        return self._context.in_doubt

    @property
    def lock_duration(self) -> float:
        """The length of the lock in seconds, as it was granted or last renewed."""
        return self._context.lock_duration

    @property
    def lock_seconds(self) -> float:
        """The seconds until the lock ends, by the clock of this process. 0 if it has ended."""
        return self._call(self._lock_seconds)

    async def _lock_seconds(self) -> float:
        return self._context.lock_seconds

    def on_complete(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, before the message is completed. If it raises, the message is not completed."""
        check_plain(callback)
        self._context.on_complete(partial(run_in_caller, callback))

    def on_abandon(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, before the message is abandoned and others can receive it."""
        check_plain(callback)
        self._context.on_abandon(partial(run_in_caller, callback))

    def on_fault(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, when the receive is faulted. What it raises is logged."""
        check_plain(callback)
        self._context.on_fault(partial(schedule_in_caller, callback))

    def complete(self, reply: Any = UNSET, transaction: JoinableTransaction | None = None) -> None:
        """Complete the message."""
        self._call(self._context.complete, reply, transaction)

    def commit(self, results: requests.CommitLock) -> answers.CommittedMessage:
        """Complete the message and store the results of its processing, in one transaction."""
        return self._call(self._context.commit, results)

    def abandon(
        self,
        *,
        delay_seconds: float | None = None,
        count: bool = True,
        reason: str | None = None,
        properties: Mapping[str, Any] | None = None,
        transaction: JoinableTransaction | None = None,
    ) -> None:
        """Return the message to its queue, to be received again."""
        self._call(
            self._context.abandon,
            delay_seconds=delay_seconds,
            count=count,
            reason=reason,
            properties=properties,
            transaction=transaction,
        )

    def dead_letter(
        self,
        reason: str | None = None,
        description: str | None = None,
        properties: Mapping[str, Any] | None = None,
        transaction: JoinableTransaction | None = None,
    ) -> None:
        """Move the message to the dead-letter queue."""
        self._call(self._context.dead_letter, reason, description, properties, transaction)

    def defer(
        self, properties: Mapping[str, Any] | None = None, transaction: JoinableTransaction | None = None
    ) -> None:
        """Set the message aside. It can only be received by its sequence number."""
        self._call(self._context.defer, properties, transaction)

    def release(self, transaction: JoinableTransaction | None = None) -> None:
        """Return the message unprocessed to its old position, without counting the delivery."""
        self._call(self._context.release, transaction)

    def renew(self, lock_seconds: float | None = None, *, exact: bool = False) -> None:
        """Prolong the lock, or with `exact` let it end exactly `lock_seconds` from now."""
        self._call(partial(self._context.renew, exact=exact), lock_seconds)

    @contextmanager
    def auto_renew(self, lock_seconds: float | None = None) -> Generator[None]:
        """Renew the lock in time while a block runs: `with received, received.auto_renew():`.

        A thread cannot be cancelled. So if the lock is lost, the receive is faulted, and `LockLost` is raised at the end of
        the block.
        """
        renewal = self._context.auto_renew(lock_seconds)
        self._call(_start, renewal)
        try:
            yield
        finally:
            self._call(renewal.stop)
        if renewal.lost is not None:
            raise renewal.lost

    def fault(self, error: BaseException | None = None) -> None:
        """End the receive without a settlement, in any state. It sends nothing to the server."""
        self._call(self._fault, error)

    async def _fault(self, error: BaseException | None) -> None:
        self._context.fault(error)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._call(self._context.__aexit__, kind, error, trace)


async def _start(renewal: Renewal) -> None:
    renewal.start()
