"""The background loops of one process, started and stopped together."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from app.broker.access.keys import Authenticator
from app.broker.administration.expire import ExpirePorts
from app.broker.administration.forward_dead_letters import DeadLetterPorts
from app.maintenance.dead_letters import DeadLetterForwarder
from app.maintenance.expiry import SweepPorts, expire_locks
from app.maintenance.retention import (
    DeletePorts,
    DeleteVersionsPorts,
    delete_expired,
    delete_old_versions,
    expire_overdue,
)
from app.maintenance.roll_back import RollBackPorts, roll_back_overdue
from app.maintenance.schedule import SchedulePorts, promote_scheduled
from app.maintenance.seal import ArchiveSealer, SealPorts
from app.maintenance.wake_receivers import wake_receivers
from app.runtime.background_loop import BackgroundLoop, ErrorReporter, LoopDelays
from app.runtime.clock import Clock
from app.runtime.wait_queue import WaitQueue

POLL_SECONDS = 1.0
KEY_USE_SECONDS = 10.0

OnPassEnd = Callable[[str, str], None]
"""Called with the name of a loop whose pass has ended, and `ok` or `failed`."""


@dataclass(frozen=True, slots=True)
class Intervals:
    """How often to sweep expired locks and messages, and how long ended messages gather before they are sealed."""

    sweep_seconds: float
    seal_seconds: float


@dataclass(frozen=True, slots=True)
class MaintenancePorts:
    """What the background loops use."""

    sweeping: SweepPorts
    scheduling: SchedulePorts
    expiring: ExpirePorts
    deleting: DeletePorts
    forwarding_dead_letters: DeadLetterPorts
    rolling_back: RollBackPorts
    deleting_versions: DeleteVersionsPorts
    sealing: SealPorts
    wait_queue: WaitQueue[int]
    clock: Clock


class BackgroundLoops:
    """The background loops of one process."""

    def __init__(
        self,
        ports: MaintenancePorts,
        authenticator: Authenticator | None,
        intervals: Intervals,
        report: ErrorReporter,
        on_pass_end: OnPassEnd,
    ) -> None:
        self._on_pass_end = on_pass_end
        self._report = report
        self._clock = ports.clock
        self._schedule = self._loop("schedule", partial(promote_scheduled, ports.scheduling), POLL_SECONDS)
        sweep_seconds = intervals.sweep_seconds
        self._loops = [
            self._loop("expiry", partial(expire_locks, ports.sweeping), sweep_seconds),
            self._schedule,
            self._loop("retention", partial(expire_overdue, ports.expiring), sweep_seconds),
            self._loop("dead letters", DeadLetterForwarder(ports.forwarding_dead_letters).step, sweep_seconds),
            self._loop("roll back", partial(roll_back_overdue, ports.rolling_back), sweep_seconds),
            self._loop("forget", partial(delete_expired, ports.deleting), sweep_seconds),
            self._loop("states", partial(delete_old_versions, ports.deleting_versions), sweep_seconds),
            self._loop("seal", ArchiveSealer(ports.sealing, intervals.seal_seconds).step, intervals.seal_seconds),
            self._loop("look", partial(wake_receivers, ports.wait_queue), POLL_SECONDS),
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
