"""Every fence in the scripts of Redis is needed: without it, a test in `tests/locks` fails that passes with it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from redis.asyncio import Redis

from app.locks.lua_scripts import SCRIPTS_DIRECTORY, Script, script
from app.locks.redis_client import RedisClient
from app.locks.redis_connection import RedisConnection, RedisReply, ScriptCall
from app.locks.redis_lock_store import RedisLockStore
from app.runtime.background_loop import ErrorReporter
from app.runtime.clock import Clock
from tests.faults.fenced_tests import FencedTest, fenced_tests
from tests.locks.lock_records import LockRecords, new_token, open_connection, unique_keys, write_first_record

TESTS = fenced_tests("locks")
FENCE_PATTERN = re.compile(r"^(?P<before>\s*(?:and|or) ).*? -- fence: (?P<kind>\w+)$")
"""A condition on its own line behind its conjunction."""

Scripts = Mapping[str, Script]
"""Scripts that stand in for those of the same name."""


@dataclass(frozen=True, slots=True)
class RemovedFence:
    """A script without one of its fences: the one at `location`."""

    location: str
    kind: str
    script: Script

    def __str__(self) -> str:
        return f"{self.location}-{self.kind}"


def removed_fences() -> Iterator[RemovedFence]:
    """One for each marked condition."""
    for file in sorted(SCRIPTS_DIRECTORY.glob("*.lua")):
        lines = file.read_text().splitlines()
        for index, line in enumerate(lines):
            if fence := FENCE_PATTERN.match(line):
                text = "\n".join([*lines[:index], f"{fence['before']}true", *lines[index + 1 :]])
                yield RemovedFence(f"{file.name}:{index + 1}", fence["kind"], script(file.stem, text))


FENCES = list(removed_fences())


class ConnectionWithOtherScripts(RedisConnection):
    """A connection to Redis on which some scripts are replaced."""

    def __init__(self, scripts: Scripts, client: RedisClient, clock: Clock, report: ErrorReporter) -> None:
        super().__init__(client, clock, report)
        self._scripts = scripts

    async def run(self, calls: Sequence[ScriptCall]) -> list[RedisReply]:
        """See `RedisConnection`."""
        return await super().run(
            [replace(call, script=self._scripts.get(call.script.name, call.script)) for call in calls]
        )


async def passes(test: FencedTest, url: str, scripts: Scripts) -> bool:
    """Run the test with these scripts. Return whether its assertions hold."""
    keys, token = unique_keys(), new_token()
    make_connection = partial(ConnectionWithOtherScripts, scripts)
    async with Redis.from_url(url) as redis, open_connection(url, make_connection) as connection:
        locks, records = RedisLockStore(connection, keys), LockRecords(redis, keys)
        await write_first_record(locks, records, token)
        result = await test.passes(
            redis_locks=locks, records=records, token=token, new_token=new_token, keys=keys, connection=connection
        )
        await locks.close()
    return result


async def test_with_every_fence_the_marked_tests_pass(redis_url: str) -> None:
    assert [test.name for test in TESTS if not await passes(test, redis_url, {})] == []


async def test_without_a_fence_a_test_marked_with_its_kind_fails(redis_url: str) -> None:
    unnoticed = {str(fence) for fence in FENCES}
    idle = {(test.name, kind) for test in TESTS for kind in test.kinds}
    for fence in FENCES:
        for test in TESTS:
            if fence.kind in test.kinds and not await passes(test, redis_url, {fence.script.name: fence.script}):
                unnoticed.discard(str(fence))
                idle.discard((test.name, fence.kind))
    assert unnoticed == set()
    assert idle == set(), "marked tests that never fail"


def test_the_fences_are_found() -> None:
    assert len(FENCES) == 10
