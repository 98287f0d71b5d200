"""Lets each process of a broker know what the others have seen of the database."""

from app.broker.ports import ObservedStore, SharedRecord
from app.runtime.background_loop import BackgroundLoop, ErrorReporter, LoopDelays
from app.runtime.clock import Clock

SHARE_SECONDS = 5.0
"""How long a process may use a former primary after another one has used the new one."""


class SeenSharing:
    """Shares what this process has seen with the others, at the start and repeatedly."""

    def __init__(self, store: ObservedStore, record: SharedRecord, clock: Clock, report: ErrorReporter) -> None:
        self._store = store
        self._record = record
        self._loop = BackgroundLoop(
            "seen", self._pass, clock, report=report, delays=LoopDelays(idle_seconds=SHARE_SECONDS)
        )

    async def share(self) -> None:
        """Hand over what this process has seen, and learn of what the others have."""
        self._store.learn(await self._record.raise_to(self._store.seen()))

    def start(self) -> None:
        """Share repeatedly from now on."""
        self._loop.start()

    async def stop(self) -> None:
        """Stop sharing."""
        await self._loop.stop()

    async def _pass(self) -> float:
        await self.share()
        return SHARE_SECONDS
