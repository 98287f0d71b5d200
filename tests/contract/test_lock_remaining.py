"""The rest of a lock is counted by the process's clock, from before the statement was sent, so it is never too long."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from app.broker.ports.attempts import Attempt
from app.broker.ports.settling import Extension
from app.domain.instant import HOUR, SECOND, Duration
from app.domain.message import Message, MessageState
from app.domain.queue import Queue
from app.domain.settlement import NO_EXPIRED_GENERATION
from tests.contract.store_fixture import (
    LOCK_DURATION,
    MariadbFixture,
    PostgresqlFixture,
    ServerFixture,
    StoreFixture,
    abandonment,
    claim,
    token,
)

ATTEMPT = Attempt(b"key".ljust(32), b"payload".ljust(32), HOUR)

ClaimMethod = Callable[[StoreFixture, Queue, int], Awaitable[list[Message]]]
"""Locks the one message of a queue, given its number."""


async def next_one(store_fixture: StoreFixture, queue: Queue, _number: int) -> list[Message]:
    return await store_fixture.store.claim(claim(queue, 1))


async def dead_letter(store_fixture: StoreFixture, queue: Queue, _number: int) -> list[Message]:
    return await store_fixture.store.claim(claim(queue, 1, source=MessageState.DEAD_LETTERED))


async def by_number(store_fixture: StoreFixture, queue: Queue, number: int) -> list[Message]:
    return await store_fixture.store.claim_by_number(claim(queue, 1), [number])


async def with_attempt(store_fixture: StoreFixture, queue: Queue, _number: int) -> list[Message]:
    return (await store_fixture.store.claim_or_replay(claim(queue, 1), ATTEMPT)).result


CLAIM_METHODS = [next_one, dead_letter, by_number, with_attempt]


async def send(store_fixture: StoreFixture, queue: Queue, claim_method: ClaimMethod) -> int:
    """Send a message to the source that the method claims from. Return its number."""
    if claim_method is dead_letter:
        message = await store_fixture.locked(queue)
        assert await store_fixture.store.move([abandonment(message, state=MessageState.DEAD_LETTERED)]) == [True]
        return message.sequence_number
    (number,) = await store_fixture.send(queue, b"body")
    return number


def remaining_lock(store_fixture: StoreFixture, message: Message) -> Duration:
    """Return the remaining time that the receiver gets now."""
    remaining = message.lock_remaining(store_fixture.clock.monotonic())
    assert remaining is not None
    return remaining


@pytest.mark.parametrize("claim_method", CLAIM_METHODS)
async def test_the_time_of_the_statement_is_subtracted_from_the_lock(
    store_fixture: StoreFixture, queue: Queue, claim_method: ClaimMethod
) -> None:
    (message,) = await claim_method(store_fixture, queue, await send(store_fixture, queue, claim_method))
    at_once = remaining_lock(store_fixture, message)
    assert at_once <= LOCK_DURATION
    assert store_fixture.is_close(at_once, LOCK_DURATION)
    await store_fixture.clock.advance(5)
    assert remaining_lock(store_fixture, message) == at_once - 5 * SECOND
    await store_fixture.clock.advance(LOCK_DURATION / SECOND)
    assert remaining_lock(store_fixture, message) == 0


async def test_a_repeated_receive_gets_the_remaining_lock_time(store_fixture: StoreFixture, queue: Queue) -> None:
    number = await send(store_fixture, queue, with_attempt)
    (first,) = await with_attempt(store_fixture, queue, number)
    await store_fixture.advance_time(5)
    (again,) = await with_attempt(store_fixture, queue, number)
    assert token(again) == token(first)
    remaining = remaining_lock(store_fixture, again)
    assert remaining <= LOCK_DURATION - 5 * SECOND
    assert store_fixture.is_close(remaining, LOCK_DURATION - 5 * SECOND)


async def test_a_renewal_is_counted_from_before_the_request_to_the_store(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    message = await store_fixture.locked(queue)
    await store_fixture.clock.advance(5)
    (extended,) = await store_fixture.store.extend(
        [Extension(token(message), queue.id, LOCK_DURATION, NO_EXPIRED_GENERATION)]
    )
    assert extended is not None
    assert extended.read_started_at == store_fixture.clock.monotonic()


async def test_a_message_that_is_only_read_promises_no_lock(store_fixture: StoreFixture, queue: Queue) -> None:
    message = await store_fixture.locked(queue)
    read_message = await store_fixture.store.read(queue.id, message.sequence_number)
    assert read_message is not None
    assert read_message.lock_remaining(store_fixture.clock.monotonic()) is None


# ---- slow statements -------------------------------------------------------------------------------------------------


@pytest.fixture(params=["postgresql", "mariadb"])
async def server(request: pytest.FixtureRequest) -> AsyncIterator[ServerFixture]:
    """A store whose statements another transaction can delay."""
    kinds = {"postgresql": (PostgresqlFixture, "postgres_url"), "mariadb": (MariadbFixture, "mariadb_url")}
    kind, url = kinds[request.param]
    store_fixture = kind(request.getfixturevalue(url))
    await store_fixture.open()
    yield store_fixture
    await store_fixture.close()


@pytest.mark.parametrize("claim_method", CLAIM_METHODS)
async def test_a_lock_is_counted_from_before_its_statement_was_sent(
    server: ServerFixture, claim_method: ClaimMethod
) -> None:
    """The process does not know when during its statement the lock began. An earlier start promises too little."""
    queue = await server.queue()
    number = await send(server, queue, claim_method)
    async with server.open_transaction(TABLE_LOCK[type(server)]):
        taking = asyncio.create_task(claim_method(server, queue, number))
        await server.wait_until_blocked()
        await server.clock.advance(5)
    (message,) = await taking
    assert remaining_lock(server, message) <= LOCK_DURATION - 5 * SECOND


async def test_a_renewal_is_counted_from_before_its_statement_was_sent(server: ServerFixture) -> None:
    queue = await server.queue()
    message = await server.locked(queue)
    began = server.clock.monotonic()
    async with server.open_transaction(TABLE_LOCK[type(server)]):
        extension = Extension(token(message), queue.id, LOCK_DURATION, NO_EXPIRED_GENERATION)
        extending = asyncio.create_task(server.store.extend([extension]))
        await server.wait_until_blocked()
        await server.clock.advance(5)
    (extended,) = await extending
    assert extended is not None
    assert extended.read_started_at == began


TABLE_LOCK: dict[type[StoreFixture], str] = {
    PostgresqlFixture: "LOCK TABLE message",
    MariadbFixture: "LOCK TABLES message WRITE",
}
"""How another transaction blocks all access to the messages."""
