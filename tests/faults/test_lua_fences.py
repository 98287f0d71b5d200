"""Every condition in the scripts of Redis is needed: without any one of them some scenario fails."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from app.broker.ports import Edition, LockRecord, NotRenewed, Renewed
from app.domain.instant import MINUTE, SECOND
from app.domain.settlement import NO_EVIDENCE, LockToken
from app.locks.connect import connect
from app.locks.keys import Keys
from app.locks.link import Call, Link, Reply
from app.locks.lua import FOLDER, Script, script
from app.locks.ownership import PrefixInUse, take
from app.locks.redis_locks import RedisLocks
from app.runtime.clock import SystemClock
from tests.locks.records import EDITION, PATIENCE_SECONDS, PROMISED, Records, own_keys

D = 30 * SECOND
MARK = re.compile(r"^(?P<before>\s*(?:and|or) ).*?(?P<after> -- fence: \w+)$")
"""A condition on its own line behind its conjunction."""

Weakened = Mapping[str, Script]
"""Scripts that stand in for those of the same name."""


class OtherScripts(Link):
    """A way to Redis on which some scripts are replaced."""

    scripts: Weakened

    async def run(self, calls: Sequence[Call]) -> list[Reply]:
        """See `Link`."""
        return await super().run(
            [replace(call, script=self.scripts.get(call.script.name, call.script)) for call in calls]
        )


class Scene:
    """A lock store, its records seen from outside, and a lock with a record of generation 1."""

    def __init__(self, link: Link, locks: RedisLocks, records: Records) -> None:
        self.link = link
        self.locks = locks
        self.records = records
        self._numbers = iter(range(1, 1000))

    async def recorded(self) -> LockToken:
        """A lock whose record lives, with a bound two minutes ahead."""
        token = LockToken(next(self._numbers), bytes(16))
        await self.record(token, 1)
        return token

    async def record(self, token: LockToken, generation: int, duration: int = D, promised: int = PROMISED) -> None:
        """Write a record."""
        bound = await self.records.now() + 2 * MINUTE
        await self.locks.record(token, LockRecord(generation, duration, bound, promised, EDITION))


async def a_living_record_prolongs_its_lock(scene: Scene) -> None:
    assert isinstance(await scene.locks.renew(await scene.recorded(), D, EDITION), Renewed)


async def a_record_prolongs_nothing_past_its_bound(scene: Scene) -> None:
    assert isinstance(await scene.locks.renew(await scene.recorded(), 3 * MINUTE, EDITION), NotRenewed)


async def a_record_prolongs_nothing_for_another_queue(scene: Scene) -> None:
    other = Edition(EDITION.queue_id + 1, EDITION.version)
    assert isinstance(await scene.locks.renew(await scene.recorded(), D, other), NotRenewed)


async def a_record_prolongs_nothing_for_another_version(scene: Scene) -> None:
    other = Edition(EDITION.queue_id, EDITION.version + 1)
    assert isinstance(await scene.locks.renew(await scene.recorded(), D, other), NotRenewed)


async def a_shorter_renewal_leaves_the_longer_promise(scene: Scene) -> None:
    token = await scene.recorded()
    await scene.locks.renew(token, SECOND, EDITION)
    await scene.records.pass_time(token, by=2 * SECOND)
    assert await scene.locks.evidence([token]) == [NO_EVIDENCE]


async def a_record_that_comes_after_its_promise_is_not_written(scene: Scene) -> None:
    token = LockToken(next(scene._numbers), bytes(16))
    await scene.record(token, 1, promised=await scene.records.now())
    assert await scene.records.read(token) is None


async def an_older_record_replaces_no_newer_one(scene: Scene) -> None:
    token = await scene.recorded()
    await scene.record(token, 5)
    await scene.record(token, 4)
    found = await scene.records.read(token)
    assert found is not None
    assert found.generation == 5


async def a_newer_record_outlives_an_expired_one(scene: Scene) -> None:
    token = await scene.recorded()
    await scene.records.pass_time(token, by=D)
    await scene.record(token, 2)
    assert await scene.locks.evidence([token]) == [NO_EVIDENCE]


async def a_living_record_is_no_evidence(scene: Scene) -> None:
    token = await scene.recorded()
    assert await scene.locks.evidence([token]) == [NO_EVIDENCE]
    await scene.records.pass_time(token, by=D)
    assert await scene.locks.evidence([token]) == [1]


async def a_drop_leaves_the_record_of_a_renewal_since(scene: Scene) -> None:
    token = await scene.recorded()
    await scene.record(token, 2)
    await scene.locks.drop([(token, 1)])
    assert await scene.records.read(token) is not None


async def a_prefix_stays_with_the_broker_that_has_taken_it(scene: Scene) -> None:
    assert await take(scene.link, scene.records.keys, "one")
    try:
        await take(scene.link, scene.records.keys, "other")
    except PrefixInUse:
        return
    raise AssertionError("another broker has taken the prefix")


SCENARIOS: Sequence[Callable[[Scene], Awaitable[None]]] = (
    a_living_record_prolongs_its_lock,
    a_record_prolongs_nothing_past_its_bound,
    a_record_prolongs_nothing_for_another_queue,
    a_record_prolongs_nothing_for_another_version,
    a_shorter_renewal_leaves_the_longer_promise,
    a_record_that_comes_after_its_promise_is_not_written,
    an_older_record_replaces_no_newer_one,
    a_newer_record_outlives_an_expired_one,
    a_living_record_is_no_evidence,
    a_drop_leaves_the_record_of_a_renewal_since,
    a_prefix_stays_with_the_broker_that_has_taken_it,
)


def weakenings() -> Iterator[tuple[str, Weakened]]:
    """Every marked condition: where it stands, and its script without it."""
    for file in sorted(FOLDER.glob("*.lua")):
        lines = file.read_text().splitlines()
        for number, line in enumerate(lines):
            if found := MARK.match(line):
                void = f"{found['before']}true{found['after']}"
                weaker = "\n".join([*lines[:number], void, *lines[number + 1 :]])
                yield f"{file.name}:{number + 1} {line.strip()}", {file.stem: script(file.stem, weaker)}


@asynccontextmanager
async def scene_with(url: str, keys: Keys, scripts: Weakened) -> AsyncIterator[Scene]:
    """A lock store with these scripts in the place of its own."""
    client = connect(url, patience_seconds=PATIENCE_SECONDS)
    link = OtherScripts(client, SystemClock(), _fail)
    link.scripts = scripts
    locks = RedisLocks(link, keys)
    async with connect(url, patience_seconds=PATIENCE_SECONDS) as redis:
        yield Scene(link, locks, Records(redis, keys))
    await locks.close()
    await link.close()


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_with_every_condition(redis_url: str, scenario: Callable[[Scene], Awaitable[None]]) -> None:
    async with scene_with(redis_url, own_keys(), {}) as scene:
        await scenario(scene)


@pytest.mark.parametrize(("where", "scripts"), [pytest.param(*one, id=one[0]) for one in weakenings()])
async def test_without_one_condition_some_scenario_fails(redis_url: str, where: str, scripts: Weakened) -> None:
    async with scene_with(redis_url, own_keys(), scripts) as scene:
        assert await _is_noticed(scene), where


async def _is_noticed(scene: Scene) -> bool:
    for scenario in SCENARIOS:
        try:
            await scenario(scene)
        except AssertionError:
            return True
    return False


def test_the_conditions_are_found() -> None:
    assert len(list(weakenings())) == 11


def _fail(name: str, error: BaseException) -> None:
    raise AssertionError(f"{name} failed") from error
