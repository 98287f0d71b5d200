"""Fills a queue by SQL, because a million sends would take longer than the measurement."""

import asyncio
import time

import asyncpg

from app.domain.message import MessageState
from benchmarks.systems import System

FILL = """
INSERT INTO message (queue_id, state, home_state, priority, enqueued_at, available_at, delivery_count, failure_count,
    lock_generation, message_id, body_kind, body)
SELECT queues.ids[1 + n % cardinality(queues.ids)], $2::smallint, 1, 4, $3::bigint + n, $3::bigint + n, 0, 0, 0, 'filled-' || n, 1,
    convert_to('{"text":"' || repeat('x', 1000) || '"}', 'UTF8')
FROM generate_series(1, $4) AS n, (SELECT array_agg(id ORDER BY id) AS ids FROM queue WHERE name LIKE $1) AS queues
"""
FILL_GROUPS = """
INSERT INTO message (queue_id, state, home_state, priority, enqueued_at, available_at, delivery_count, failure_count,
    lock_generation, message_id, body_kind, body, group_id, in_group)
SELECT queue.id, CASE WHEN is_blocked THEN 7 ELSE 1 END, 1, 4, $2::bigint + n, $2::bigint + n, 0, 0, 0, 'filled-' || n, 1,
    convert_to('{"text":"' || repeat('x', 1000) || '"}', 'UTF8'), 'g' || n % $4::int,
    CASE WHEN is_blocked THEN 2 ELSE 1 END
FROM generate_series(0, $3::int - 1) AS n
CROSS JOIN LATERAL (SELECT n / $4::int >= $5::int AS is_blocked) AS place
CROSS JOIN queue
WHERE name = $1
"""
COUNT = """
INSERT INTO depth (queue_id, total, scheduled, blocked)
SELECT queue.id, count(*), count(*) FILTER (WHERE state = 3), count(*) FILTER (WHERE state = 7)
FROM message JOIN queue ON queue.id = queue_id
WHERE name LIKE $1
GROUP BY queue.id
"""
"""What a send stores in addition to its messages: the growth of its queues."""

LONG_AGO_SECONDS, LONG_AHEAD_SECONDS = 10_000, 10_000_000
TIMEOUT_SECONDS = 600.0


def fill(system: System, queues: str, messages: int) -> None:
    """Spread available messages evenly over the queues whose names are LIKE this."""
    asyncio.run(_fill(system, queues, MessageState.AVAILABLE, time.time() - LONG_AGO_SECONDS, messages))


def fill_scheduled(system: System, queues: str, messages: int) -> None:
    """The same with messages that do not fall due in this run."""
    asyncio.run(_fill(system, queues, MessageState.SCHEDULED, time.time() + LONG_AHEAD_SECONDS, messages))


def fill_groups(system: System, queue: str, messages: int, groups: int, in_flight: int) -> None:
    """Spread messages evenly over groups, of which each has `in_flight` available. The others are blocked."""
    asyncio.run(_fill_groups(system, queue, messages, groups, in_flight))


async def _fill_groups(system: System, queue: str, messages: int, groups: int, in_flight: int) -> None:
    connection = await asyncpg.connect(system.database_url)
    try:
        instant = int((time.time() - LONG_AGO_SECONDS) * 1_000_000)
        await connection.execute(FILL_GROUPS, queue, instant, messages, groups, in_flight, timeout=TIMEOUT_SECONDS)
        await connection.execute(COUNT, queue, timeout=TIMEOUT_SECONDS)
        await connection.execute("VACUUM ANALYZE message", timeout=TIMEOUT_SECONDS)
    finally:
        await connection.close()


async def _fill(system: System, queues: str, state: MessageState, seconds: float, messages: int) -> None:
    connection = await asyncpg.connect(system.database_url)
    try:
        instant = int(seconds * 1_000_000)
        await connection.execute(FILL, queues, state.value, instant, messages, timeout=TIMEOUT_SECONDS)
        await connection.execute(COUNT, queues, timeout=TIMEOUT_SECONDS)
        await connection.execute("VACUUM ANALYZE message", timeout=TIMEOUT_SECONDS)
    finally:
        await connection.close()
