"""Renews the locks of a worker's messages in time, and reports the locks that have ended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from msgspec import UNSET

from peeklock_client.connection import Connection
from peeklock_client.errors import LockLost, NotFound, PeeklockError, SettlementRefused, error_of, problem_of
from peeklock_client.generated import answers, requests
from peeklock_client.receive_context import ReceiveContext
from peeklock_client.renewal import ENDED, MIN_RENEWAL_SECONDS, PAUSE_SECONDS, RENEW_SHARE

log = logging.getLogger("peeklock.worker")

MAX_RENEWALS = 1000
"""Renewals in one request."""


class LockKeeper:
    """Renews the locks of one queue's messages.

    `held` returns the receives of this process. `lost` is called with each receive whose lock is lost, and the error.
    """

    def __init__(
        self,
        api: Connection,
        queue: str,
        lock_seconds: float | None,
        held: Callable[[], Iterable[ReceiveContext[Any]]],
        lost: Callable[[ReceiveContext[Any], LockLost], None],
    ) -> None:
        self._api = api
        self._queue = queue
        self._lock_seconds = UNSET if lock_seconds is None else lock_seconds
        self._held = held
        self._lost = lost
        self._has_messages = asyncio.Event()
        # A receive that is completing when its renewal is refused gets its outcome from the answer to its settlement.
        self._refused = WeakSet[ReceiveContext[Any]]()
        self._retry_at = WeakKeyDictionary[ReceiveContext[Any], float]()

    def wake(self) -> None:
        """Check the locks again, because new messages were received."""
        self._has_messages.set()

    async def renew_loop(self) -> None:
        """Renew each lock in time, those that are due together in one request."""
        while True:
            held = [context for context in self._held() if not context.has_ended and context not in self._refused]
            if not held:
                await self._wait_for_messages()
                continue
            next_renewal = min(map(self._seconds_until_due, held))
            if next_renewal > 0:
                # A message that arrives during the wait may have a shorter lock.
                await self._wait_for_messages(max(next_renewal, MIN_RENEWAL_SECONDS))
                continue
            due = [context for context in held if self._seconds_until_due(context) <= 0]
            await self._renew(due[:MAX_RENEWALS])
            await asyncio.sleep(MIN_RENEWAL_SECONDS)

    async def expiry_loop(self) -> None:
        """Report each lock that ended while no server answered its renewal."""
        while True:
            active = [context for context in self._held() if context.is_active]
            for context in active:
                if context.lock_seconds <= 0:
                    self._lost(context, LockLost(problem_of(410, ENDED, "lock-lost")))
            ends = [context.lock_seconds for context in active if context.lock_seconds > 0]
            await self._wait_for_messages(min(ends, default=None))

    def _seconds_until_due(self, context: ReceiveContext[Any]) -> float:
        by_its_lock = context.lock_seconds - RENEW_SHARE * context.lock_duration
        return max(by_its_lock, self._retry_at.get(context, 0.0) - asyncio.get_running_loop().time())

    async def _wait_for_messages(self, seconds: float | None = None) -> None:
        """Return when new messages were received, or after this time."""
        self._has_messages.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._has_messages.wait()
        except TimeoutError:
            pass

    async def _renew(self, due: list[ReceiveContext[Any]]) -> None:
        settlements = [requests.RenewSettlement(context.lock_token, self._lock_seconds) for context in due]
        asked_at = asyncio.get_running_loop().time()
        try:
            # An answer that comes after the last of these locks has ended is of no use.
            async with asyncio.timeout(max(MIN_RENEWAL_SECONDS, *(context.lock_seconds for context in due))):
                answer = await self._api.settle_messages(self._queue, requests.SettleMessages([*settlements]))
        except (PeeklockError, TimeoutError) as error:
            log.warning("queue %s: %d locks were not renewed: %r", self._queue, len(due), error)
            await asyncio.sleep(PAUSE_SECONDS)
            return
        # A lock without a result stays due.
        for context, result in zip(due, answer.results, strict=False):
            if isinstance(result, answers.RenewedResult):
                context.note_renewal(result, asked_at)
            elif isinstance(result, answers.RefusedResult):
                self._note_refusal(context, result.problem)

    def _note_refusal(self, context: ReceiveContext[Any], problem: answers.Problem) -> None:
        """Report a lock whose token has ended. After any other refusal, the lock still holds and its renewal is tried again."""
        error = error_of(problem)
        if not isinstance(error, SettlementRefused | NotFound):
            log.warning("queue %s: a lock was not renewed: %s", self._queue, error)
            self._retry_at[context] = asyncio.get_running_loop().time() + PAUSE_SECONDS
            return
        self._refused.add(context)
        if context.is_active:
            self._lost(context, LockLost(problem))
