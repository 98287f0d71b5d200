"""The database seen and changed from outside the service: what is left in it, and time that passes for its rows."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import redis
from sqlalchemy import Connection, text

from app.domain.instant import Duration
from app.domain.message import MessageState
from app.store.migrate import run_on_connection
from tests.faults.history import RemainingMessage, RemainingVersion
from tests.server_drivers import run_in_thread

TIME_COLUMNS = {
    "message": ("locked_until", "available_at", "expires_at"),
    "attempt": ("remove_at",),
    "recent_id": ("enqueued_at", "remove_at"),
}
"""What a row's life goes by, in each table."""


def execute(url: str, statement: str, **values: Any) -> Sequence[Any]:
    """Run one statement in a transaction of its own; its rows if it gives any. Callable inside an event loop too."""

    def work(connection: Connection) -> Sequence[Any]:
        done = connection.execute(text(statement), values)
        rows = done.fetchall() if done.returns_rows else ()
        connection.commit()
        return rows

    return run_in_thread(lambda: run_on_connection(url, work))


def pass_time(url: str, duration: Duration) -> None:
    """Let time pass for every row: all its times move back, since no test may set a server's clock."""
    for table, columns in TIME_COLUMNS.items():
        execute(url, f"UPDATE {table} SET {', '.join(f'{name} = {name} - :by' for name in columns)}", by=duration)


MOVE_BACK_SCRIPT = """
for _, index in ipairs(redis.call('KEYS', '*:ends')) do
  for _, key in ipairs(redis.call('ZRANGE', index, 0, -1)) do
    redis.call('ZINCRBY', index, -ARGV[1], key)
  end
end
local shifted = 0
for _, key in ipairs(redis.call('KEYS', '*')) do
  local value = redis.call('TYPE', key).ok == 'string' and redis.call('GET', key) or ''
  local generation, deadline, bound, rest = string.match(value, '^(%d+) (%d+) (%d+)( %d+ %d+)$')
  if generation then
    value = string.format('%s %.0f %.0f%s', generation, deadline - ARGV[1], bound - ARGV[1], rest)
    redis.call('SET', key, value, 'KEEPTTL')
    shifted = shifted + 1
  end
end
return shifted
"""


def pass_time_for_locks(url: str, duration: Duration) -> int:
    """Let time pass for every lock record in Redis, or come back: its times move; how many there were."""
    with redis.Redis.from_url(url) as client:
        return int(client.eval(MOVE_BACK_SCRIPT, 0, duration))


def forget_locks(url: str) -> None:
    """Empty this numbered database of Redis."""
    with redis.Redis.from_url(url) as client:
        client.flushdb()


def remaining_messages(url: str, queue: str) -> list[RemainingMessage]:
    """Every message of this queue, whether it is still there or archived."""
    there = execute(
        url,
        "SELECT m.sequence_number, m.message_id, m.body, m.state, NULL FROM message m "
        "JOIN queue q ON q.id = m.queue_id WHERE q.name = :queue",
        queue=queue,
    )
    gone = execute(
        url,
        "SELECT sequence_number, message_id, body, outcome, lock_token FROM archive WHERE queue = :queue",
        queue=queue,
    )
    return [_remaining_message(*row) for row in (*there, *gone)]


def remaining_versions(url: str, queue: str) -> list[RemainingVersion]:
    """Every version of the states whose keys begin with the name of this queue."""
    rows = execute(
        url,
        "SELECT s.state_key, v.number, v.message_id FROM state s JOIN state_version v ON v.state_id = s.id "
        "WHERE s.state_key LIKE :keys",
        keys=f"{queue}%",
    )
    return [RemainingVersion(key, number, _text(message_id)) for key, number, message_id in rows]


def _text(column: str | bytes) -> str:
    """What a column holds that MariaDB compares by its bytes."""
    return column.decode() if isinstance(column, bytes) else column


def digest(body: bytes) -> str:
    """What stands for a body in logs."""
    return hashlib.sha256(body).hexdigest()


def _remaining_message(
    number: int, message_id: str, body: bytes, state: int | str, secret: bytes | None
) -> RemainingMessage:
    word = MessageState(state).label if isinstance(state, int) else state
    token = None if secret is None else f"{number}.{bytes(secret).hex()}"
    return RemainingMessage(number, message_id, digest(bytes(body)), word, token)
