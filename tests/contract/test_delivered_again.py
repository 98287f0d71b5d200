"""Whoever lost a lock hears truly whether somebody else has had the message since."""

import pytest

from app.broker.ports import Redrive, Unlocked, Withdrawal
from app.domain.instant import DAY, SECOND
from app.domain.message import MessageState
from app.domain.queue import Queue
from app.domain.settlement import Outcome, Tombstone
from tests.contract.subject import LOCK, Subject, abandonment, completion, expiry, token

ENDED = LOCK // SECOND + 1


async def ended(subject: Subject, queue: Queue) -> Tombstone:
    """The tombstone of a delivery whose lock ran out some time ago."""
    message = await subject.locked(queue)
    await subject.pass_time(ENDED)
    await subject.store.release([expiry(message)])
    (stone,) = await subject.store.tombstones([token(message)])
    assert stone is not None
    return stone


async def test_what_only_lies_there_was_not_delivered_again(subject: Subject, queue: Queue) -> None:
    assert not await subject.store.delivered_since(await ended(subject, queue))


@pytest.mark.parametrize("retention", [0, DAY])
async def test_what_was_purged_before_anybody_had_it_was_not_delivered_again(
    subject: Subject, queue: Queue, retention: int
) -> None:
    stone = await ended(subject, queue)
    row = Unlocked(stone.token.sequence_number, queue.id, MessageState.AVAILABLE)
    assert await subject.store.withdraw([Withdrawal(row, queue.name, Outcome.PURGED, retention)]) == [True]
    assert not await subject.store.delivered_since(stone)


async def test_what_somebody_holds_was_delivered_again(subject: Subject, queue: Queue) -> None:
    stone = await ended(subject, queue)
    (again,) = await subject.claim(queue)
    assert again.sequence_number == stone.token.sequence_number
    assert await subject.store.delivered_since(stone)


@pytest.mark.parametrize("retention", [0, DAY])
async def test_what_somebody_completed_was_delivered_again(subject: Subject, queue: Queue, retention: int) -> None:
    stone = await ended(subject, queue)
    (again,) = await subject.claim(queue)
    assert await subject.store.remove([completion(queue, again, retention=retention)]) == [True]
    assert await subject.store.delivered_since(stone)


async def test_what_somebody_had_before_it_was_redriven_elsewhere_was_delivered_again(
    subject: Subject, queue: Queue
) -> None:
    stone = await ended(subject, queue)
    (again,) = await subject.claim(queue)
    dead = abandonment(again, outcome=Outcome.DEAD_LETTERED, state=MessageState.DEAD_LETTERED)
    assert await subject.store.move([dead]) == [True]
    other = await subject.queue()
    row = Unlocked(again.sequence_number, queue.id, MessageState.DEAD_LETTERED)
    assert await subject.store.redrive([Redrive(row, other.id)]) == [True]
    assert await subject.store.delivered_since(stone)
