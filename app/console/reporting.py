"""Reports to the other servers of the broker what happens here, as long as this server runs."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from app.broker.ports.server_directory import ServerDirectory
from app.console.activity import Activity
from app.runtime.background_loop import BackgroundLoop, ErrorReporter, LoopDelays, Pass
from app.runtime.clock import Clock

EXACT = LoopDelays(jitter=lambda: 0.0)
"""The directory spreads the reports of servers, and equal intervals give equal counts."""


@dataclass(frozen=True, slots=True)
class Reporting:
    """The activity of this server, and the directory that gets its reports."""

    activity: Activity
    directory: ServerDirectory
    report_error: ErrorReporter

    @asynccontextmanager
    async def repeat(self, run_pass: Pass, clock: Clock) -> AsyncGenerator[None]:
        """Repeat a pass that reports until the end of the block. Then this server leaves the directory."""
        loop = BackgroundLoop("activity", run_pass, clock, report=self.report_error, delays=EXACT)
        loop.start()
        try:
            yield
        finally:
            await loop.stop()
            await self.activity.leave(self.directory)

    @asynccontextmanager
    async def without_console(self, clock: Clock) -> AsyncGenerator[None]:
        """Report until the end of the block, for the consoles of other servers."""

        async def report() -> float:
            return await self.activity.report(self.directory)

        async with self.repeat(report, clock):
            yield
