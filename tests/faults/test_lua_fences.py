"""Every condition in the scripts of Redis is needed: without any one of them some scenario fails."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from app.broker.ports import LockRecord, NotRenewed, QueueVersion, Renewed
from app.domain.instant import MINUTE, SECOND
from app.domain.settlement import NO_EXPIRED_GENERATION, LockToken
from app.locks.connect import connect
from app.locks.lua_scripts import SCRIPTS_DIRECTORY, Script, script
from app.locks.prefix_ownership import PrefixInUse, acquire
from app.locks.redis_connection import RedisConnection, RedisReply, ScriptCall
from app.locks.redis_keys import RedisKeys
from app.locks.redis_lock_store import RedisLockStore
from app.runtime.clock import SystemClock
from tests.locks.lock_records import EDITION, PROMISED_UNTIL, TIMEOUT_SECONDS, LockRecords, unique_keys

DURATION = 30 * SECOND
FENCE_PATTERN = re.compile(r"^(?P<before>\s*(?:and|or) ).*?(?P<after> -- fence: \w+)$")
"""A condition on its own line behind its conjunction."""

ScriptReplacements = Mapping[str, Script]
"""Scripts that stand in for those of the same name."""


class ConnectionWithOtherScripts(RedisConnection):
    """A way to Redis on which some scripts are replaced."""

    scripts: ScriptReplacements

    async def run(self, calls: Sequence[ScriptCall]) -> list[RedisReply]:
        """See `RedisConnection`."""
        return await super().run(
            [replace(call, script=self.scripts.get(call.script.name, call.script)) for call in calls]
        )


class LockStoreSetup:
    """A lock store, its records seen from outside, and a lock with a record of generation 1."""

    def __init__(self, connection: RedisConnection, locks: RedisLockStore, records: LockRecords) -> None:
        self.connection = connection
        self.locks = locks
        self.records = records
        self._numbers = iter(range(1, 1000))

    async def recorded(self) -> LockToken:
        """A lock with a live record, with a bound two minutes ahead."""
        token = LockToken(next(self._numbers), bytes(16))
        await self.record(token, 1)
        return token

    async def record(
        self, token: LockToken, generation: int, duration: int = DURATION, promised: int = PROMISED_UNTIL
    ) -> None:
        """Write a record."""
        bound = await self.records.now() + 2 * MINUTE
        await self.locks.write_record(token, LockRecord(generation, duration, bound, promised, EDITION))


async def a_living_record_prolongs_its_lock(setup: LockStoreSetup) -> None:
    assert isinstance(await setup.locks.renew(await setup.recorded(), DURATION, EDITION), Renewed)


async def a_record_prolongs_nothing_past_its_bound(setup: LockStoreSetup) -> None:
    assert isinstance(await setup.locks.renew(await setup.recorded(), 3 * MINUTE, EDITION), NotRenewed)


async def a_record_prolongs_nothing_for_another_queue(setup: LockStoreSetup) -> None:
    other = QueueVersion(EDITION.queue_id + 1, EDITION.version)
    assert isinstance(await setup.locks.renew(await setup.recorded(), DURATION, other), NotRenewed)


async def a_record_prolongs_nothing_for_another_version(setup: LockStoreSetup) -> None:
    other = QueueVersion(EDITION.queue_id, EDITION.version + 1)
    assert isinstance(await setup.locks.renew(await setup.recorded(), DURATION, other), NotRenewed)


async def a_shorter_renewal_leaves_the_longer_promise(setup: LockStoreSetup) -> None:
    token = await setup.recorded()
    await setup.locks.renew(token, SECOND, EDITION)
    await setup.records.pass_time(token, by=2 * SECOND)
    assert await setup.locks.expired_generations([token]) == [NO_EXPIRED_GENERATION]


async def a_record_that_comes_after_its_promise_is_not_written(setup: LockStoreSetup) -> None:
    token = LockToken(next(setup._numbers), bytes(16))
    await setup.record(token, 1, promised=await setup.records.now())
    assert await setup.records.read(token) is None


async def an_older_record_replaces_no_newer_one(setup: LockStoreSetup) -> None:
    token = await setup.recorded()
    await setup.record(token, 5)
    await setup.record(token, 4)
    found = await setup.records.read(token)
    assert found is not None
    assert found.generation == 5


async def a_newer_record_outlives_an_expired_one(setup: LockStoreSetup) -> None:
    token = await setup.recorded()
    await setup.records.pass_time(token, by=DURATION)
    await setup.record(token, 2)
    assert await setup.locks.expired_generations([token]) == [NO_EXPIRED_GENERATION]


async def a_live_record_ends_no_lock(setup: LockStoreSetup) -> None:
    token = await setup.recorded()
    assert await setup.locks.expired_generations([token]) == [NO_EXPIRED_GENERATION]
    await setup.records.pass_time(token, by=DURATION)
    assert await setup.locks.expired_generations([token]) == [1]


async def a_drop_leaves_the_record_of_a_renewal_since(setup: LockStoreSetup) -> None:
    token = await setup.recorded()
    await setup.record(token, 2)
    await setup.locks.delete_records([(token, 1)])
    assert await setup.records.read(token) is not None


async def a_prefix_stays_with_the_broker_that_has_taken_it(setup: LockStoreSetup) -> None:
    assert await acquire(setup.connection, setup.records.keys, "one")
    try:
        await acquire(setup.connection, setup.records.keys, "other")
    except PrefixInUse:
        return
    raise AssertionError("another broker has taken the prefix")


SCENARIOS: Sequence[Callable[[LockStoreSetup], Awaitable[None]]] = (
    a_living_record_prolongs_its_lock,
    a_record_prolongs_nothing_past_its_bound,
    a_record_prolongs_nothing_for_another_queue,
    a_record_prolongs_nothing_for_another_version,
    a_shorter_renewal_leaves_the_longer_promise,
    a_record_that_comes_after_its_promise_is_not_written,
    an_older_record_replaces_no_newer_one,
    a_newer_record_outlives_an_expired_one,
    a_live_record_ends_no_lock,
    a_drop_leaves_the_record_of_a_renewal_since,
    a_prefix_stays_with_the_broker_that_has_taken_it,
)


def removed_fences() -> Iterator[tuple[str, ScriptReplacements]]:
    """Every marked condition: where it stands, and its script without it."""
    for file in sorted(SCRIPTS_DIRECTORY.glob("*.lua")):
        lines = file.read_text().splitlines()
        for number, line in enumerate(lines):
            if found := FENCE_PATTERN.match(line):
                removed = f"{found['before']}true{found['after']}"
                without_fence = "\n".join([*lines[:number], removed, *lines[number + 1 :]])
                yield f"{file.name}:{number + 1} {line.strip()}", {file.stem: script(file.stem, without_fence)}


@asynccontextmanager
async def open_setup(url: str, keys: RedisKeys, scripts: ScriptReplacements) -> AsyncIterator[LockStoreSetup]:
    """A lock store with these scripts instead of its own."""
    client = connect(url, timeout_seconds=TIMEOUT_SECONDS)
    connection = ConnectionWithOtherScripts(client, SystemClock(), _fail)
    connection.scripts = scripts
    locks = RedisLockStore(connection, keys)
    async with connect(url, timeout_seconds=TIMEOUT_SECONDS) as redis:
        yield LockStoreSetup(connection, locks, LockRecords(redis, keys))
    await locks.close()
    await connection.close()


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_with_every_condition(redis_url: str, scenario: Callable[[LockStoreSetup], Awaitable[None]]) -> None:
    async with open_setup(redis_url, unique_keys(), {}) as setup:
        await scenario(setup)


@pytest.mark.parametrize(("where", "scripts"), [pytest.param(*case, id=case[0]) for case in removed_fences()])
async def test_without_one_condition_some_scenario_fails(
    redis_url: str, where: str, scripts: ScriptReplacements
) -> None:
    async with open_setup(redis_url, unique_keys(), scripts) as setup:
        assert await _is_noticed(setup), where


async def _is_noticed(setup: LockStoreSetup) -> bool:
    for scenario in SCENARIOS:
        try:
            await scenario(setup)
        except AssertionError:
            return True
    return False


def test_the_conditions_are_found() -> None:
    assert len(list(removed_fences())) == 11


def _fail(name: str, error: BaseException) -> None:
    raise AssertionError(f"{name} failed") from error
