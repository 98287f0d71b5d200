"""The background loops of one process, started and stopped together."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from app.broker.access.keys import Authenticator
from app.broker.broker import Broker
from app.domain.instant import Duration
from app.domain.state import DEFAULT_RETENTION
from app.maintenance.dead_letters import DeadLetterForwarder
from app.maintenance.expiry import expire_locks, roll_back_overdue
from app.maintenance.moves import advance_moves
from app.maintenance.retention import (
    delete_expired,
    delete_old_versions,
    expire_overdue,
)
from app.maintenance.schedule import promote_scheduled, wake_receivers
from app.maintenance.seal import ArchiveSealer
from app.runtime.background_loop import BackgroundLoop, ErrorReporter, LoopDelays

POLL_SECONDS = 1.0
KEY_USE_SECONDS = 10.0

OnPassEnd = Callable[[str, str], None]
"""Called with the name of a loop whose pass has ended, and `ok` or `failed`."""


@dataclass(frozen=True, slots=True)
class Intervals:
    """How often to sweep expired locks and messages, and how long ended messages gather before they are sealed.

    `state_retention` is how long replaced versions of states stay.
    """

    sweep_seconds: float
    seal_seconds: float
    state_retention: Duration = DEFAULT_RETENTION


class BackgroundLoops:
    """The background loops of one process."""

    def __init__(
        self,
        broker: Broker,
        authenticator: Authenticator | None,
        intervals: Intervals,
        report: ErrorReporter,
        on_pass_end: OnPassEnd,
    ) -> None:
        self._on_pass_end = on_pass_end
        self._report = report
        self._clock = broker.clock
        administration = broker.administration
        self._schedule = self._loop("schedule", partial(promote_scheduled, administration), POLL_SECONDS)
        sweep_seconds = intervals.sweep_seconds
        self._loops = [
            self._loop("expiry", partial(expire_locks, broker.settling), sweep_seconds),
            self._schedule,
            self._loop("retention", partial(expire_overdue, administration), sweep_seconds),
            self._loop("dead letters", DeadLetterForwarder(administration).step, sweep_seconds),
            self._loop("moves", partial(advance_moves, administration), POLL_SECONDS),
            self._loop("roll back", partial(roll_back_overdue, broker.transactions), sweep_seconds),
            self._loop("forget", partial(delete_expired, administration), sweep_seconds),
            self._loop(
                "states", partial(delete_old_versions, administration, intervals.state_retention), sweep_seconds
            ),
            self._loop("seal", ArchiveSealer(administration, intervals.seal_seconds).step, intervals.seal_seconds),
            self._loop("look", partial(wake_receivers, broker.receiving.wait_queue), POLL_SECONDS),
        ]
        if authenticator is not None:
            self._loops.append(self._loop("key use", partial(_record_key_use, authenticator), KEY_USE_SECONDS))

    def start(self) -> None:
        """Start all loops."""
        for loop in self._loops:
            loop.start()

    async def stop(self) -> None:
        """Stop all loops once their current passes have finished."""
        await asyncio.gather(*(loop.stop() for loop in self._loops))

    async def run_now(self) -> None:
        """Run a pass of each loop now. Return when none has more work for this time."""
        await asyncio.gather(*(loop.run_now() for loop in self._loops))

    def wake_schedule(self) -> None:
        """Start the next schedule pass: a message may be due before the delay is over."""
        self._schedule.wake()

    def _loop(self, name: str, run_pass: Callable[[], Awaitable[float | None]], seconds: float) -> BackgroundLoop:
        async def counted() -> float | None:
            delay = await run_pass()
            self._on_pass_end(name, "ok")
            return delay

        return BackgroundLoop(name, counted, self._clock, report=self._failed, delays=LoopDelays(idle_seconds=seconds))

    def _failed(self, name: str, error: BaseException) -> None:
        self._on_pass_end(name, "failed")
        self._report(name, error)


async def _record_key_use(authenticator: Authenticator) -> float | None:
    await authenticator.record_use()
    return None
