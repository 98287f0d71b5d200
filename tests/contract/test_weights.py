"""A statement carries as many bytes and messages as it may, not only as many callers."""

import asyncio

from app.domain.queue import Queue
from tests.contract.subject import Subject, claim

MIB = 1 << 20


async def test_large_sends_of_one_moment_go_in_several_statements(subject: Subject, queue: Queue) -> None:
    subject.batches.clear()
    sends = [subject.send(queue, bytes([place]) * MIB) for place in range(12)]
    sent = [number for numbers in await asyncio.gather(*sends) for number in numbers]
    assert len(set(sent)) == 12
    assert max(subject.batches) <= 4


async def test_small_sends_of_one_moment_share_a_statement(subject: Subject, queue: Queue) -> None:
    subject.batches.clear()
    await asyncio.gather(*(subject.send(queue, b"small") for _ in range(100)))
    assert max(subject.batches) == 100


async def test_a_message_larger_than_a_statement_goes_alone(subject: Subject, queue: Queue) -> None:
    subject.batches.clear()
    await asyncio.gather(*(subject.send(queue, b"x" * 5 * MIB) for _ in range(3)))
    assert max(subject.batches) == 1


async def test_claims_share_a_statement_by_what_they_ask_for(subject: Subject, queue: Queue) -> None:
    await subject.send(queue, *[b"body"] * 20)
    subject.batches.clear()
    answers = await asyncio.gather(*(subject.store.claim(claim(queue, 400)) for _ in range(6)))
    assert sum(map(len, answers)) == 20
    assert max(subject.batches) <= 2
