"""The hand-written statements do the whole work of a lifecycle, so their cost is worth comparing with."""

import os
import subprocess

import asyncpg
import pytest

from benchmarks.load import Target, WorkUnit, drive
from benchmarks.references.hand_written import (
    COMPLETE,
    RECEIVE,
    SEND,
    SqlTarget,
    sql_batch_lifecycle,
    sql_lifecycle,
)
from benchmarks.systems import System


@pytest.mark.parametrize(("work_unit", "messages"), [(sql_lifecycle, 12), (sql_batch_lifecycle, 1200)])
async def test_each_message_is_sent_and_completed_into_the_archive(
    postgres_url: str, work_unit: WorkUnit, messages: int
) -> None:
    target = SqlTarget(postgres_url)
    done = await drive(target, work_unit, callers=3, units=12)
    connection = await target.connect()
    archived = await connection.fetchval(
        "SELECT count(*) FROM archive WHERE lock_token IS NOT NULL AND length(body) > 1000"
    )
    left = await connection.fetchval("SELECT count(*) FROM message")
    await connection.execute("TRUNCATE archive")
    await target.release(connection)
    await target.close()
    assert (done + left, archived) == (messages, done)


async def test_only_the_token_of_the_lock_completes_a_message(postgres_url: str) -> None:
    connection = await asyncpg.connect(postgres_url)
    await connection.execute("TRUNCATE message")
    await connection.fetch(SEND, "one", b"{}")
    (received,) = await connection.fetch(RECEIVE, b"t" * 16)
    assert await connection.fetch(RECEIVE, b"u" * 16) == []
    assert await connection.fetch(COMPLETE, received["sequence_number"], b"u" * 16) == []
    assert len(await connection.fetch(COMPLETE, received["sequence_number"], b"t" * 16)) == 1
    await connection.close()


def test_a_paused_system_stands_still_until_it_is_resumed() -> None:
    process = subprocess.Popen(["sleep", "60"])
    system = System("sleeper", Target("127.0.0.1", 0), {"server": process.pid, "postgresql": os.getpid()})
    try:
        system.pause()
        assert os.waitpid(process.pid, os.WUNTRACED)[1] != 0
        system.resume()
        assert os.WIFCONTINUED(os.waitpid(process.pid, os.WCONTINUED)[1])
    finally:
        process.kill()
        process.wait()
