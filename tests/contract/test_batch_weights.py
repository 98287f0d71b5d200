"""A statement is limited by bytes and messages, not only by callers."""

import asyncio

import pytest

from app.broker.ports.attempts import Attempt
from app.domain.instant import HOUR
from app.domain.queue import Queue
from tests.contract.store_fixture import StoreFixture, claim

MIB = 1 << 20


async def test_concurrent_large_sends_run_in_several_statements(store_fixture: StoreFixture, queue: Queue) -> None:
    store_fixture.batch_sizes.clear()
    sends = [store_fixture.send(queue, bytes([index]) * MIB) for index in range(12)]
    sent = [number for numbers in await asyncio.gather(*sends) for number in numbers]
    assert len(set(sent)) == 12
    assert max(store_fixture.batch_sizes) <= 4


async def test_concurrent_small_sends_share_a_statement(store_fixture: StoreFixture, queue: Queue) -> None:
    store_fixture.batch_sizes.clear()
    await asyncio.gather(*(store_fixture.send(queue, b"small") for _ in range(100)))
    assert max(store_fixture.batch_sizes) == 100


async def test_a_message_larger_than_a_statement_has_its_own(store_fixture: StoreFixture, queue: Queue) -> None:
    store_fixture.batch_sizes.clear()
    await asyncio.gather(*(store_fixture.send(queue, b"x" * 5 * MIB) for _ in range(3)))
    assert max(store_fixture.batch_sizes) == 1


async def test_claims_share_a_statement_by_the_messages_they_request(store_fixture: StoreFixture, queue: Queue) -> None:
    await store_fixture.send(queue, *[b"body"] * 20)
    store_fixture.batch_sizes.clear()
    answers = await asyncio.gather(*(store_fixture.store.claim(claim(queue, 400)) for _ in range(6)))
    assert sum(map(len, answers)) == 20
    assert max(store_fixture.batch_sizes) <= 2


async def test_claims_by_number_or_attempt_share_a_statement_by_their_messages(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    sent = await store_fixture.send(queue, *[b"body"] * 20)
    store_fixture.batch_sizes.clear()
    by_numbers = await asyncio.gather(
        *(store_fixture.store.claim_by_number(claim(queue, 400), sent[:10]) for _ in range(6))
    )
    attempts = [Attempt(bytes([index]) * 32, b"payload", HOUR) for index in range(6)]
    once = await asyncio.gather(
        *(store_fixture.store.claim_or_replay(claim(queue, 400), attempt) for attempt in attempts)
    )
    assert sum(map(len, by_numbers)) == sum(len(answer.result) for answer in once) == 10
    # On the servers each of these is a statement of its own.
    assert max(store_fixture.batch_sizes, default=1) <= 2


@pytest.mark.parametrize("store_fixture", ["postgresql", "mariadb"], indirect=True)
@pytest.mark.parametrize("index", [0, 3])
async def test_a_claim_of_an_empty_queue_waits_for_no_later_claim(
    store_fixture: StoreFixture, queue: Queue, index: int
) -> None:
    """A statement has room for one message, so most of these claims share several statements."""
    empty = await store_fixture.queue()
    await store_fixture.send(queue, *[b"x" * MIB] * 6)
    queues = [queue] * 6
    queues.insert(index, empty)
    answered_after: dict[int, int] = {}

    async def claim_one(one: Queue) -> int:
        messages = await store_fixture.store.claim(claim(one, 1, max_bytes=MIB))
        answered_after[one.id] = len(store_fixture.batch_sizes)
        return len(messages)

    store_fixture.batch_sizes.clear()
    assert await asyncio.gather(*map(claim_one, queues)) == [int(target is queue) for target in queues]
    assert answered_after[queue.id] == 6
    assert answered_after[empty.id] <= index + 1
