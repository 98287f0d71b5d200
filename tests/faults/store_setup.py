"""A store with its statements laid open, and what scenarios make happen in it behind its back."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Mapping
from dataclasses import dataclass

from app.broker.ports import Store
from app.domain.delivery import Claim
from app.domain.instant import HOUR, MINUTE, Duration
from app.domain.message import BodyKind, Draft, Envelope, Message, MessageState
from app.domain.queue import Queue, QueueSettings
from app.domain.settlement import LockToken
from app.store.records.database import Database
from app.store.records.statements import Statement, parse
from app.store.url import Engine
from tests.dialects import DIALECTS

QUEUE_NUMBERS = itertools.count(1)

TEST_STATEMENTS = """
-- let_pass_for_messages: move the times of all messages back, since no test may set a server's clock
UPDATE message
SET locked_until = locked_until - :by, available_at = available_at - :by, expires_at = expires_at - :by;

-- let_pass_for_attempts: move the times of all attempts back
UPDATE attempt SET remove_at = remove_at - :by;

-- let_pass_for_ids: move the times of all message ids back
UPDATE recent_id SET enqueued_at = enqueued_at - :by, remove_at = remove_at - :by;

-- let_pass_for_archive: move the times of all archived messages back
UPDATE archive SET settled_at = settled_at - :by, remove_at = remove_at - :by;

-- let_pass_for_batches: move the times of all batches back
UPDATE export_batch SET sealed_at = sealed_at - :by, remove_at = remove_at - :by, removed_at = removed_at - :by;

-- put: set a state and nothing else, as only a broken writer would: a token stays behind
UPDATE message SET state = :state WHERE sequence_number = :sequence_number;
"""
"""What scenarios do behind the store's back."""


def with_test_statements(engine: Engine, statements: Mapping[str, Statement]) -> dict[str, Statement]:
    """The statements, and those by which scenarios make things happen."""
    return {**statements, **{statement.name: statement for statement in parse(TEST_STATEMENTS, DIALECTS[engine])}}


@dataclass(frozen=True, slots=True)
class StoreSetup:
    """A store under test, and its connections."""

    store: Store
    database: Database

    async def queue(self) -> Queue:
        """A queue of its own."""
        name = f"fences-{next(QUEUE_NUMBERS)}-{secrets.token_hex(4)}"
        queue, _ = await self.store.queues.create(name, QueueSettings(archive_retention=HOUR))
        return queue

    async def send(self, queue: Queue, **more: Duration) -> int:
        """A message in the queue; its number."""
        envelope = Envelope(message_id=secrets.token_hex(8))
        (receipt,) = await self.store.send([Draft(queue.id, envelope, b"{}", BodyKind.JSON, **more)])
        return receipt.sequence_number

    async def lock(self, queue: Queue, **more: Duration) -> Message:
        """A message in the queue, under a lock of one minute."""
        await self.send(queue, **more)
        (message,) = await self.store.claim(Claim(queue.id, 1, MINUTE))
        return message

    async def reload(self, message: Message) -> Message:
        """The message as it is now."""
        now = await self.store.read(message.queue_id, message.sequence_number)
        assert now is not None
        return now

    async def set_state(self, message: Message, state: MessageState) -> None:
        """Set the state of a message and nothing else."""
        await self.database.change("put", state=state.value, sequence_number=message.sequence_number)

    async def pass_time(self, duration: Duration) -> None:
        """Let time pass for every row."""
        for rows in ("messages", "attempts", "ids", "archive", "batches"):
            await self.database.change(f"let_pass_for_{rows}", by=duration)


def token_of(message: Message) -> LockToken:
    """The token of a message just received."""
    assert message.lock_token is not None
    return LockToken(message.sequence_number, message.lock_token)
