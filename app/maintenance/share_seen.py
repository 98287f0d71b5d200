"""Shares the highest values that each process of a broker has seen in the database with the other processes."""

import structlog

from app.broker.administration.restored import catch_up, share_number
from app.broker.ports.lock_store import SharedRecord
from app.broker.ports.store import Store
from app.runtime.background_loop import BackgroundLoop, ErrorReporter, LoopDelays
from app.runtime.clock import Clock

SHARE_SECONDS = 5.0
"""How long a process may still use a former primary after another process has used the new one."""

log = structlog.get_logger("peeklock.store")


class SeenSharing:
    """Shares what this process has seen with the other processes, at the start and repeatedly.

    Timelines have a loop of their own: it reads nothing from the database, so a database that does not answer does not keep
    this process from learning of another primary.
    """

    def __init__(self, store: Store, record: SharedRecord, clock: Clock, report: ErrorReporter) -> None:
        self._store = store
        self._record = record
        delays = LoopDelays(idle_seconds=SHARE_SECONDS)
        self._loops = [
            BackgroundLoop("timelines", self._share_timelines, clock, report=report, delays=delays),
            BackgroundLoop("numbers", self._share_numbers, clock, report=report, delays=delays),
        ]

    async def catch_up(self) -> None:
        """Learn what other processes have seen, before this one serves. If the database is behind, skip its numbers."""
        await self._share_timelines()
        first = await catch_up(self._store, self._record)
        if first is not None:
            log.warning("the database is behind, as after a restore: sequence numbers are skipped", next_number=first)

    def start(self) -> None:
        """Share repeatedly from now on."""
        for loop in self._loops:
            loop.start()

    async def stop(self) -> None:
        """Stop sharing."""
        for loop in self._loops:
            await loop.stop()

    async def _share_timelines(self) -> None:
        self._store.learn(await self._record.raise_to(self._store.seen()))

    async def _share_numbers(self) -> None:
        await share_number(self._store, self._record)
