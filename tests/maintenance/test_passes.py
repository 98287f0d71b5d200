"""The loops run every pass again and again, go on after failures, and stop together."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from app.broker.ports import Store
from app.domain.instant import SECOND
from app.domain.message import MessageState
from app.domain.refusals import StoreUnavailable
from app.maintenance.passes import Passes, Rhythm
from tests.maintenance.house import House

ACTING = {"expiry", "schedule", "retention"}
PASSES = {*ACTING, "forget", "seal", "look"}
GLANCES, GLANCE_SECONDS = 1000, 0.01  # for what happens within moments unless the machine is very busy


class Loops:
    """The passes of a house, and what is heard of them."""

    def __init__(self, house: House, store: Store | None = None) -> None:
        self.house = house
        self.passed: list[tuple[str, str]] = []
        self.failures: list[BaseException] = []
        broker = replace(house.broker, store=store or house.broker.store)
        self.passes = Passes(
            broker,
            None,
            Rhythm(1.0, 10.0),
            lambda _, error: self.failures.append(error),
            lambda *heard: self.passed.append(heard),
        )

    async def until(self, condition: Callable[[], bool]) -> None:
        """Let the loops work, which takes real time, while their clock stands still."""
        for _ in range(GLANCES):
            if condition():
                return
            await asyncio.sleep(GLANCE_SECONDS)
        pytest.fail("the loops did not do it")

    async def hear(self, how: str, *names: str) -> None:
        """Wait until these passes have ended so."""
        await self.until(lambda: self.have_heard(how, *names))

    def have_heard(self, how: str, *names: str) -> bool:
        """Whether these passes have ended so."""
        return {(name, how) for name in names} <= set(self.passed)

    async def go_round(self, *names: str) -> None:
        """Let time pass until each of these passes has ended well once more."""
        del self.passed[:]
        for _ in range(GLANCES):
            if self.have_heard("ok", *names):
                return
            await self.house.clock.advance(1)
            await asyncio.sleep(GLANCE_SECONDS)
        pytest.fail("the loops did not go round")


async def test_every_pass_runs_from_the_start(house: House) -> None:
    loops = Loops(house)
    loops.passes.start()
    await loops.hear("ok", *PASSES)
    await loops.passes.stop()


async def test_together_they_keep_every_promise_about_time(house: House) -> None:
    queue = await house.queue()
    token = await house.locked(queue)
    (scheduled,) = await house.send(queue, delay=20 * SECOND)
    (mortal,) = await house.send(queue, ttl=20 * SECOND)
    loops = Loops(house)
    loops.passes.start()
    await loops.hear("ok", *PASSES)
    await house.clock.advance(30)
    for _ in range(2):  # a pass that was under way may have looked too early
        await loops.go_round(*ACTING)
    await loops.passes.stop()
    assert await house.state(queue, token.sequence_number) is MessageState.AVAILABLE
    assert await house.state(queue, scheduled) is MessageState.AVAILABLE
    assert await house.state(queue, mortal) is None


async def test_they_look_again_within_five_seconds_after_an_outage_of_the_store(house: House) -> None:
    queue = await house.queue()
    token = await house.locked(queue)
    await house.clock.advance(30)
    away = Away(house.broker.store)
    loops = Loops(house, away)
    loops.passes.start()
    await loops.hear("failed", *ACTING)
    assert {type(error) for error in loops.failures} == {StoreUnavailable}
    await house.clock.advance(600)
    away.back = True
    del loops.passed[:]
    await house.clock.advance(5)
    await loops.hear("ok", *ACTING)
    await loops.passes.stop()
    assert await house.state(queue, token.sequence_number) is MessageState.AVAILABLE


async def test_the_schedule_looks_at_once_when_something_may_be_due_sooner(house: House) -> None:
    loops = Loops(house)
    loops.passes.start()
    await loops.hear("ok", *PASSES)
    del loops.passed[:]
    loops.passes.wake_schedule()
    await loops.hear("ok", "schedule")
    assert len(loops.passed) == 1
    await loops.passes.stop()


class Away:
    """A store that cannot be reached until it is back."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.back = False

    def __getattr__(self, name: str) -> object:
        if self.back:
            return getattr(self._store, name)
        return self if name == "archive" else self._fail

    async def _fail(self, *_: object) -> None:
        raise StoreUnavailable
