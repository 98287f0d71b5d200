"""The loops repeat every pass, continue after failures, and stop together."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from app.assembly import assemble
from app.broker.access.keys import Authenticator, create_key
from app.broker.ports.store import Store
from app.broker.settling.outcomes import complete
from app.broker.settling.settle import settle_one
from app.domain.access import ALL_RIGHTS, Grant
from app.domain.instant import SECOND
from app.domain.message import MessageState
from app.domain.queue import Queue
from app.domain.refusals import StoreUnavailable
from app.maintenance.background_loops import BackgroundLoops, Intervals
from tests.maintenance.harness import BrokerHarness

ACTING = {"expiry", "schedule", "retention"}
PASSES = {*ACTING, "forget", "seal", "look", "roll back", "dead letters", "moves"}
SEAL_SECONDS = 10.0
POLLS, POLL_SECONDS = 1000, 0.01  # for events that take only moments unless the machine is very busy


class LoopRecorder:
    """Background loops, and the results of their passes."""

    def __init__(
        self, harness: BrokerHarness, store: Store | None = None, authenticator: Authenticator | None = None
    ) -> None:
        self.harness = harness
        self.results: list[tuple[str, str]] = []
        self.failures: list[BaseException] = []
        components = replace(harness.broker, store=store or harness.broker.store)
        self.background_loops = BackgroundLoops(
            assemble(components),
            authenticator,
            Intervals(1.0, SEAL_SECONDS),
            lambda _, error: self.failures.append(error),
            lambda *result: self.results.append(result),
        )

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait in real time for the loops, while their clock does not move."""
        for _ in range(POLLS):
            if condition():
                return
            await asyncio.sleep(POLL_SECONDS)
        pytest.fail("the loops did not reach the condition")

    async def wait_for_result(self, how: str, *names: str) -> None:
        """Wait until these passes have this result."""
        await self.wait_until(lambda: self.have_ended(how, *names))

    def have_ended(self, how: str, *names: str) -> bool:
        """Return whether these passes have this result."""
        return {(name, how) for name in names} <= set(self.results)

    async def run_again(self, *names: str) -> None:
        """Advance the clock until each of these passes has succeeded again."""
        del self.results[:]
        for _ in range(POLLS):
            if self.have_ended("ok", *names):
                return
            await self.harness.clock.advance(1)
            await asyncio.sleep(POLL_SECONDS)
        pytest.fail("the loops did not run again")


async def test_every_background_loop_runs_at_the_start(harness: BrokerHarness) -> None:
    loops = LoopRecorder(harness)
    loops.background_loops.start()
    await loops.wait_for_result("ok", *PASSES)
    await loops.background_loops.stop()


async def test_the_loops_expire_locks_promote_and_expire_messages(harness: BrokerHarness) -> None:
    queue = await harness.queue()
    token = await harness.send_and_lock(queue)
    (scheduled,) = await harness.send(queue, delay=20 * SECOND)
    (expiring,) = await harness.send(queue, ttl=20 * SECOND)
    loops = LoopRecorder(harness)
    loops.background_loops.start()
    await loops.wait_for_result("ok", *PASSES)
    await harness.clock.advance(30)
    for _ in range(2):  # a pass in progress may have read too early
        await loops.run_again(*ACTING)
    await loops.background_loops.stop()
    assert await harness.state(queue, token.sequence_number) is MessageState.AVAILABLE
    assert await harness.state(queue, scheduled) is MessageState.AVAILABLE
    assert await harness.state(queue, expiring) is None


async def test_the_loops_resume_within_five_seconds_after_a_store_outage(harness: BrokerHarness) -> None:
    queue = await harness.queue()
    token = await harness.send_and_lock(queue)
    await harness.clock.advance(30)
    unavailable_store = UnavailableStore(harness.broker.store)
    loops = LoopRecorder(harness, unavailable_store)
    loops.background_loops.start()
    await loops.wait_for_result("failed", *ACTING)
    assert {type(error) for error in loops.failures} == {StoreUnavailable}
    await harness.clock.advance(600)
    unavailable_store.is_available = True
    del loops.results[:]
    await harness.clock.advance(5)
    await loops.wait_for_result("ok", *ACTING)
    await loops.background_loops.stop()
    assert await harness.state(queue, token.sequence_number) is MessageState.AVAILABLE


async def test_a_woken_schedule_runs_at_once(harness: BrokerHarness) -> None:
    loops = LoopRecorder(harness)
    loops.background_loops.start()
    await loops.wait_for_result("ok", *PASSES)
    del loops.results[:]
    loops.background_loops.wake_schedule()
    await loops.wait_for_result("ok", "schedule")
    assert len(loops.results) == 1
    await loops.background_loops.stop()


async def test_the_use_of_keys_is_recorded(harness: BrokerHarness) -> None:
    keys = harness.broker.store.keys
    created = await create_key(keys, "shop", Grant(ALL_RIGHTS), harness.clock.now())
    authenticator = Authenticator(keys, harness.clock, anonymous_without_keys=False)
    await authenticator.authenticate(created.secret)
    loops = LoopRecorder(harness, authenticator=authenticator)
    loops.background_loops.start()
    await loops.wait_for_result("ok", "key use")
    await loops.background_loops.stop()
    await authenticator.close()
    (key,) = await keys.list_all()
    assert key.last_used_at == harness.clock.now()


async def end_message(harness: BrokerHarness, queue: Queue) -> None:
    """Complete a message, so that it is archived."""
    await settle_one(harness.broker.settling, queue, complete(queue, await harness.send_and_lock(queue)))


async def sealed_batches(harness: BrokerHarness) -> int:
    """Return the number of sealed batches."""
    return len(await harness.broker.store.archive.list_batches(0, 10))


async def test_ended_messages_gather_for_the_seal_interval(harness: BrokerHarness) -> None:
    await end_message(harness, await harness.queue())
    loops = LoopRecorder(harness)
    for seconds, batches in ((SEAL_SECONDS - 1, 0), (1, 1)):
        await harness.clock.advance(seconds)
        del loops.results[:]
        loops.background_loops.start()
        await loops.wait_for_result("ok", "seal")
        await loops.background_loops.stop()
        assert await sealed_batches(harness) == batches


async def test_a_pass_that_leaves_work_runs_again_at_once(harness: BrokerHarness) -> None:
    """Each pass seals one batch at most, and messages that ended two minutes apart are not in one."""
    queue = await harness.queue()
    for _ in range(3):
        await end_message(harness, queue)
        await harness.clock.advance(120)
    loops = LoopRecorder(harness)
    loops.background_loops.start()
    await loops.wait_until(lambda: loops.results.count(("seal", "ok")) > 3)
    await loops.background_loops.stop()
    assert await sealed_batches(harness) == 3


class UnavailableStore:
    """A store that is unavailable until `is_available` is set."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.archive = UnavailablePart(store.archive, self)
        self.queues = UnavailablePart(store.queues, self)
        self.moves = UnavailablePart(store.moves, self)
        self.transactions = UnavailablePart(store.transactions, self)
        self.states = UnavailablePart(store.states, self)
        self.is_available = False

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name) if self.is_available else self._fail

    async def _fail(self, *_: object) -> None:
        raise StoreUnavailable


class UnavailablePart:
    """The archive, the queues, the moves, the transactions or the states of an unavailable store."""

    def __init__(self, part: object, store: UnavailableStore) -> None:
        self._part = part
        self._store = store

    def __getattr__(self, name: str) -> object:
        return getattr(self._part if self._store.is_available else self._store, name)
