"""What is left of a lock is counted by the clock of the process, from before the store was asked, and never too long."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from app.broker.ports import Attempt, Extension
from app.domain.instant import HOUR, SECOND, Duration
from app.domain.message import Message, MessageState
from app.domain.queue import Queue
from app.domain.settlement import NO_EVIDENCE
from tests.contract.subject import (
    LOCK,
    MariaSubject,
    PostgresSubject,
    ServerSubject,
    Subject,
    abandonment,
    claim,
    token,
)

ATTEMPT = Attempt(b"key".ljust(32), b"payload".ljust(32), HOUR)

Take = Callable[[Subject, Queue, int], Awaitable[list[Message]]]
"""A way to lock the one message of a queue, of which it is told the number."""


async def next_one(subject: Subject, queue: Queue, _number: int) -> list[Message]:
    return await subject.store.claim(claim(queue, 1))


async def dead_letter(subject: Subject, queue: Queue, _number: int) -> list[Message]:
    return await subject.store.claim(claim(queue, 1, source=MessageState.DEAD_LETTERED))


async def by_number(subject: Subject, queue: Queue, number: int) -> list[Message]:
    return await subject.store.claim_these(claim(queue, 1), [number])


async def once(subject: Subject, queue: Queue, _number: int) -> list[Message]:
    return (await subject.store.claim_once(claim(queue, 1), ATTEMPT)).answer


CLAIMS = [next_one, dead_letter, by_number, once]


async def send(subject: Subject, queue: Queue, take: Take) -> int:
    """Send a message to where it is taken from; its number."""
    if take is dead_letter:
        message = await subject.locked(queue)
        assert await subject.store.move([abandonment(message, state=MessageState.DEAD_LETTERED)]) == [True]
        return message.sequence_number
    (number,) = await subject.send(queue, b"body")
    return number


def left(subject: Subject, message: Message) -> Duration:
    """What the message's holder is told now."""
    remaining = message.lock_remaining(subject.clock.monotonic())
    assert remaining is not None
    return remaining


@pytest.mark.parametrize("take", CLAIMS)
async def test_time_that_an_answer_takes_is_gone_from_the_lock(subject: Subject, queue: Queue, take: Take) -> None:
    (message,) = await take(subject, queue, await send(subject, queue, take))
    at_once = left(subject, message)
    assert LOCK - SECOND < at_once <= LOCK
    await subject.clock.advance(5)
    assert left(subject, message) == at_once - 5 * SECOND
    await subject.clock.advance(LOCK / SECOND)
    assert left(subject, message) == 0


async def test_a_repeated_receive_hears_what_is_left_by_then(subject: Subject, queue: Queue) -> None:
    number = await send(subject, queue, once)
    (first,) = await once(subject, queue, number)
    await subject.pass_time(5)
    (again,) = await once(subject, queue, number)
    assert token(again) == token(first)
    assert LOCK - 10 * SECOND < left(subject, again) <= LOCK - 5 * SECOND


async def test_a_renewal_is_counted_from_before_the_store_was_asked(subject: Subject, queue: Queue) -> None:
    message = await subject.locked(queue)
    await subject.clock.advance(5)
    (extended,) = await subject.store.extend([Extension(token(message), queue.id, LOCK, NO_EVIDENCE)])
    assert extended is not None
    assert extended.read_after == subject.clock.monotonic()


async def test_what_is_only_looked_at_promises_nothing(subject: Subject, queue: Queue) -> None:
    message = await subject.locked(queue)
    seen = await subject.store.read(queue.id, message.sequence_number)
    assert seen is not None
    assert seen.lock_remaining(subject.clock.monotonic()) is None


# ---- statements that take long ---------------------------------------------------------------------------------------


@pytest.fixture(params=["postgresql", "mariadb"])
async def server(request: pytest.FixtureRequest) -> AsyncIterator[ServerSubject]:
    """A store whose statements another transaction can hold up."""
    kinds = {"postgresql": (PostgresSubject, "postgres_url"), "mariadb": (MariaSubject, "mariadb_url")}
    kind, url = kinds[request.param]
    subject = kind(request.getfixturevalue(url))
    await subject.begin()
    yield subject
    await subject.end()


@pytest.mark.parametrize("take", CLAIMS)
async def test_a_lock_is_counted_from_before_its_statement_was_sent(server: ServerSubject, take: Take) -> None:
    """When the lock began within its statement is not known here. Counted from an earlier moment, it promises too little."""
    queue = await server.queue()
    number = await send(server, queue, take)
    async with server.holding(TABLE_LOCK[type(server)]):
        taking = asyncio.create_task(take(server, queue, number))
        await server.until_somebody_waits()
        await server.clock.advance(5)
    (message,) = await taking
    assert left(server, message) <= LOCK - 5 * SECOND


async def test_a_renewal_is_counted_from_before_its_statement_was_sent(server: ServerSubject) -> None:
    queue = await server.queue()
    message = await server.locked(queue)
    began = server.clock.monotonic()
    async with server.holding(TABLE_LOCK[type(server)]):
        extension = Extension(token(message), queue.id, LOCK, NO_EVIDENCE)
        extending = asyncio.create_task(server.store.extend([extension]))
        await server.until_somebody_waits()
        await server.clock.advance(5)
    (extended,) = await extending
    assert extended is not None
    assert extended.read_after == began


TABLE_LOCK: dict[type[Subject], str] = {
    PostgresSubject: "LOCK TABLE message",
    MariaSubject: "LOCK TABLES message WRITE",
}
"""How another transaction keeps everybody else from the messages."""
