"""The reference without a broker: send, receive and complete as plain SQL, each caller on a connection of its own.

The statements use Peeklock's own tables in a database of their own, and keep the core of its promise: a message is
locked for one receiver, in order of priority and time, and only the token of an unexpired lock completes it, into a row
of the archive. Each is a transaction of its own. They count nothing, record no wait, and know one queue.
"""

import json
import os
import uuid
from dataclasses import dataclass, field
from typing import TypeAlias

import asyncpg

from benchmarks.load import BODY

MESSAGE_BODY = json.dumps(BODY).encode()
TOKEN_BYTES = 16

NOW = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
CONTENT = """
    priority, enqueued_at, available_at, expires_at, first_delivered_at, last_delivered_at, delivery_count,
    failure_count, message_id, group_id, headers, properties, body_kind, body
"""

INSERT = """
INSERT INTO message (
    queue_id, state, home_state, priority, enqueued_at, available_at, delivery_count, failure_count, lock_generation,
    message_id, body_kind, body
)
"""

SEND = f"{INSERT} VALUES (1, 1, 1, 4, {NOW}, {NOW}, 0, 0, 0, $1, 1, $2) RETURNING sequence_number"

SEND_MANY = f"""
{INSERT}
SELECT 1, 1, 1, 4, {NOW}, {NOW}, 0, 0, 0, message_id, 1, body
FROM unnest($1::text[], $2::bytea[]) AS draft (message_id, body)
RETURNING sequence_number
"""

NEXT = """
SELECT sequence_number FROM message
WHERE queue_id = 1 AND state = 1
ORDER BY priority DESC, available_at, sequence_number
LIMIT {limit}
FOR UPDATE SKIP LOCKED
"""

RECEIVE_MANY = f"""
WITH next AS MATERIALIZED ({NEXT.format(limit=100)})
UPDATE message SET
    state = 2,
    delivery_count = delivery_count + 1,
    lock_token = $1,
    locked_until = {NOW} + 30000000,
    first_delivered_at = coalesce(first_delivered_at, {NOW}),
    last_delivered_at = {NOW}
FROM next
WHERE message.sequence_number = next.sequence_number
RETURNING message.sequence_number, locked_until, {CONTENT}
"""

RECEIVE = RECEIVE_MANY.replace("LIMIT 100", "LIMIT 1")

COMPLETE = f"""
WITH completed AS (
    DELETE FROM message
    WHERE sequence_number = $1 AND lock_token = $2 AND locked_until > {NOW}
    RETURNING *
)
INSERT INTO archive (sequence_number, queue_id, queue, outcome, settled_at, remove_at, lock_token, {CONTENT})
SELECT sequence_number, queue_id, 'bench', 'completed', {NOW}, {NOW} + 604800000000, lock_token, {CONTENT}
FROM completed
RETURNING sequence_number
"""

COMPLETE_MANY = COMPLETE.replace("sequence_number = $1", "sequence_number = ANY($1::bigint[])")

SqlConnection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


@dataclass
class SqlTarget:
    """A database with Peeklock's tables. It keeps its connections between rounds, as a program would."""

    url: str
    idle: list[SqlConnection] = field(default_factory=list)

    async def connect(self) -> SqlConnection:
        """Return a connection that no caller uses."""
        return self.idle.pop() if self.idle else await asyncpg.connect(self.url)

    async def release(self, connection: SqlConnection) -> None:
        """Keep it for the next round."""
        self.idle.append(connection)

    async def close(self) -> None:
        """Close all connections."""
        while self.idle:
            await self.idle.pop().close()


async def sql_lifecycle(connection: SqlConnection, _: SqlTarget) -> int:
    """Send, receive, complete: one message each. A caller that finds the queue empty receives again."""
    await connection.fetch(SEND, uuid.uuid4().hex, MESSAGE_BODY)
    token = os.urandom(TOKEN_BYTES)
    while not (received := await connection.fetch(RECEIVE, token)):
        pass
    return len(await connection.fetch(COMPLETE, received[0]["sequence_number"], token))


async def sql_batch_lifecycle(connection: SqlConnection, _: SqlTarget) -> int:
    """A hundred messages sent, received and completed in three statements."""
    await connection.fetch(SEND_MANY, [uuid.uuid4().hex for _ in range(100)], [MESSAGE_BODY] * 100)
    token = os.urandom(TOKEN_BYTES)
    received = await connection.fetch(RECEIVE_MANY, token)
    return len(await connection.fetch(COMPLETE_MANY, [row["sequence_number"] for row in received], token))
