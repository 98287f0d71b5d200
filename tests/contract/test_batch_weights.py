"""A statement carries as many bytes and messages as it may, not only as many callers."""

import asyncio

import pytest

from app.broker.ports import Attempt
from app.domain.instant import HOUR
from app.domain.queue import Queue
from tests.contract.store_fixture import StoreFixture, claim

MIB = 1 << 20


async def test_large_sends_of_one_moment_go_in_several_statements(store_fixture: StoreFixture, queue: Queue) -> None:
    store_fixture.batch_sizes.clear()
    sends = [store_fixture.send(queue, bytes([place]) * MIB) for place in range(12)]
    sent = [number for numbers in await asyncio.gather(*sends) for number in numbers]
    assert len(set(sent)) == 12
    assert max(store_fixture.batch_sizes) <= 4


async def test_small_sends_of_one_moment_share_a_statement(store_fixture: StoreFixture, queue: Queue) -> None:
    store_fixture.batch_sizes.clear()
    await asyncio.gather(*(store_fixture.send(queue, b"small") for _ in range(100)))
    assert max(store_fixture.batch_sizes) == 100


async def test_a_message_larger_than_a_statement_goes_alone(store_fixture: StoreFixture, queue: Queue) -> None:
    store_fixture.batch_sizes.clear()
    await asyncio.gather(*(store_fixture.send(queue, b"x" * 5 * MIB) for _ in range(3)))
    assert max(store_fixture.batch_sizes) == 1


async def test_claims_share_a_statement_by_what_they_ask_for(store_fixture: StoreFixture, queue: Queue) -> None:
    await store_fixture.send(queue, *[b"body"] * 20)
    store_fixture.batch_sizes.clear()
    answers = await asyncio.gather(*(store_fixture.store.claim(claim(queue, 400)) for _ in range(6)))
    assert sum(map(len, answers)) == 20
    assert max(store_fixture.batch_sizes) <= 2


async def test_claims_by_numbers_or_of_attempts_share_a_statement_by_what_they_ask_for(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    sent = await store_fixture.send(queue, *[b"body"] * 20)
    store_fixture.batch_sizes.clear()
    by_numbers = await asyncio.gather(
        *(store_fixture.store.claim_by_number(claim(queue, 400), sent[:10]) for _ in range(6))
    )
    attempts = [Attempt(bytes([place]) * 32, b"payload", HOUR) for place in range(6)]
    once = await asyncio.gather(*(store_fixture.store.claim_once(claim(queue, 400), attempt) for attempt in attempts))
    assert sum(map(len, by_numbers)) == sum(len(answer.result) for answer in once) == 10
    # The servers give each of these a statement of its own.
    assert max(store_fixture.batch_sizes, default=1) <= 2


@pytest.mark.parametrize("store_fixture", ["postgresql", "mariadb"], indirect=True)
@pytest.mark.parametrize("place", [0, 3])
async def test_a_claim_of_an_empty_queue_waits_for_no_claim_that_came_later(
    store_fixture: StoreFixture, queue: Queue, place: int
) -> None:
    """A statement has room for one message, so most of these claims share several statements."""
    empty = await store_fixture.queue()
    await store_fixture.send(queue, *[b"x" * MIB] * 6)
    queues = [queue] * 6
    queues.insert(place, empty)
    answered_after: dict[int, int] = {}

    async def look(one: Queue) -> int:
        messages = await store_fixture.store.claim(claim(one, 1, max_bytes=MIB))
        answered_after[one.id] = len(store_fixture.batch_sizes)
        return len(messages)

    store_fixture.batch_sizes.clear()
    assert await asyncio.gather(*map(look, queues)) == [int(one is queue) for one in queues]
    assert answered_after[queue.id] == 6
    assert answered_after[empty.id] <= place + 1
