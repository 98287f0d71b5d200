"""All background passes of one process, each in a loop of its own, started and stopped together."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from app.broker.broker import Broker
from app.broker.keys import Doorkeeper
from app.maintenance.expiry import expire_locks
from app.maintenance.look import let_one_look
from app.maintenance.retention import forget_the_past, retire_messages
from app.maintenance.schedule import awaken_scheduled
from app.maintenance.seal import Sealing
from app.runtime.loop import Loop, Report, Rests

LOOK_SECONDS = 1.0
KEY_USE_SECONDS = 10.0

Passed = Callable[[str, str], None]
"""Hears the name of a pass that has ended, and `ok` or `failed`."""


@dataclass(frozen=True, slots=True)
class Rhythm:
    """How often ended locks and lives are looked for, and how long ended messages gather before they are sealed."""

    sweep_seconds: float
    gather_seconds: float


class Passes:
    """The loops of one process."""

    def __init__(
        self, broker: Broker, doorkeeper: Doorkeeper | None, rhythm: Rhythm, report: Report, passed: Passed
    ) -> None:
        self._passed = passed
        self._report = report
        self._broker = broker
        self._schedule = self._loop("schedule", partial(awaken_scheduled, broker), LOOK_SECONDS)
        sweep_seconds = rhythm.sweep_seconds
        self._loops = [
            self._loop("expiry", partial(expire_locks, broker), sweep_seconds),
            self._schedule,
            self._loop("retention", partial(retire_messages, broker), sweep_seconds),
            self._loop("forget", partial(forget_the_past, broker), sweep_seconds),
            self._loop("seal", Sealing(broker, rhythm.gather_seconds).step, rhythm.gather_seconds),
            self._loop("look", partial(let_one_look, broker), LOOK_SECONDS),
        ]
        if doorkeeper is not None:
            self._loops.append(self._loop("key use", partial(_note_key_use, doorkeeper), KEY_USE_SECONDS))

    def start(self) -> None:
        """Begin all of them."""
        for loop in self._loops:
            loop.start()

    async def stop(self) -> None:
        """Let the passes under way finish."""
        await asyncio.gather(*(loop.stop() for loop in self._loops))

    def wake_schedule(self) -> None:
        """Something may be due sooner than the schedule's rest."""
        self._schedule.wake()

    def _loop(self, name: str, run_pass: Callable[[], Awaitable[float | None]], seconds: float) -> Loop:
        async def counted() -> float | None:
            rest = await run_pass()
            self._passed(name, "ok")
            return rest

        return Loop(name, counted, self._broker.clock, report=self._failed, rests=Rests(idle_seconds=seconds))

    def _failed(self, name: str, error: BaseException) -> None:
        self._passed(name, "failed")
        self._report(name, error)


async def _note_key_use(doorkeeper: Doorkeeper) -> float | None:
    await doorkeeper.note_use()
    return None
