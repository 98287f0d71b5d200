"""Renews the lock of one message while a block of the program works on it."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from types import TracebackType
from typing import Protocol

from peeklock_client.errors import LockLost, NotFound, PeeklockError, SettlementRefused, problem_of

log = logging.getLogger("peeklock")

RENEW_SHARE = 0.5
"""A lock is renewed when this share of its time is left."""

MIN_RENEWAL_SECONDS = 0.05
"""The shortest pause between two requests, even if locks are shorter."""

PAUSE_SECONDS = 0.5
"""How long to wait after a renewal that failed, and before looking again at a settlement that has not taken effect."""

ENDED = "The lock has ended by the clock of this process. No server answered its renewal."


class Renewable(Protocol):
    """A receive whose lock can be renewed."""

    lock_duration: float

    @property
    def lock_seconds(self) -> float:
        """The seconds until the lock ends."""
        ...

    @property
    def is_active(self) -> bool:
        """Whether the receive can still be settled."""
        ...

    @property
    def has_ended(self) -> bool:
        """Whether the receive is settled or faulted."""
        ...

    async def prolong(self, lock_seconds: float | None) -> None:
        """Prolong the lock, and leave the state as it is."""
        ...

    def fault(self, error: BaseException | None = None) -> None:
        """End the receive without a settlement."""
        ...


class Renewal:
    """The renewal of a lock, from the start of a block to its end. `lost` is the error by which the lock was lost."""

    def __init__(self, receive: Renewable, lock_seconds: float | None) -> None:
        self.lost: LockLost | None = None
        self._receive = receive
        self._lock_seconds = lock_seconds
        self._renewing: asyncio.Task[None] | None = None
        self._block: asyncio.Task[object] | None = None
        self._cancelling = 0
        self._is_interrupted = False

    def start(self) -> None:
        """Renew from now on, in the running event loop."""
        self._renewing = asyncio.create_task(self._renew_in_time(), name="renewal of a lock")

    async def stop(self) -> None:
        """Renew no more."""
        self._block = None
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.wait([self._renewing])

    async def __aenter__(self) -> None:
        self._block = asyncio.current_task()
        self._cancelling = 0 if self._block is None else self._block.cancelling()
        self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        block, is_cancelled = self._block, isinstance(error, asyncio.CancelledError)
        if self._is_interrupted and not is_cancelled:
            # The block has ended before it could notice its cancellation.
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0)
        await self.stop()
        if self.lost is None or block is None or not self._is_interrupted:
            return
        is_cancelled_by_others = block.uncancel() > self._cancelling
        if not is_cancelled_by_others and (error is None or is_cancelled):
            raise self.lost from None

    async def _renew_in_time(self) -> None:
        receive = self._receive
        while not receive.has_ended:
            if not receive.is_active:  # A settlement has begun, or has joined a transaction that may be rolled back.
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            await asyncio.sleep(max(receive.lock_seconds - RENEW_SHARE * receive.lock_duration, MIN_RENEWAL_SECONDS))
            if not receive.is_active:
                continue
            try:
                # An answer that comes after the end of the lock is of no use.
                async with asyncio.timeout(max(receive.lock_seconds, MIN_RENEWAL_SECONDS)):
                    await receive.prolong(self._lock_seconds)
            except (SettlementRefused, NotFound) as error:
                self._lose(error if isinstance(error, LockLost) else LockLost(error.problem))
            except (PeeklockError, TimeoutError) as error:
                if receive.lock_seconds <= 0:
                    self._lose(LockLost(problem_of(410, ENDED, "lock-lost")))
                    continue
                log.warning("a lock was not renewed and is renewed again: %s", error)
                await asyncio.sleep(min(PAUSE_SECONDS, receive.lock_seconds))

    def _lose(self, error: LockLost) -> None:
        """Fault the receive and cancel the block, unless the program has begun to settle: then the answer decides."""
        if not self._receive.is_active:
            return
        self.lost = error
        self._receive.fault(error)
        if self._block is not None:
            self._is_interrupted = True
            self._block.cancel("The lock is lost.")
