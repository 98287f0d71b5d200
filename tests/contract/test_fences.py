"""Every statement that acts on a lock or on a message that was seen stands behind a fence, and each part of it holds."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from app.broker.ports import Extension, Redrive, Unlocked, Withdrawal
from app.domain.instant import HOUR, SECOND
from app.domain.message import Message, MessageState
from app.domain.queue import Queue
from app.domain.refusals import MessageNotFound
from app.domain.settlement import (
    HIGHEST_GENERATION,
    NEVER_RENEWED,
    NO_EVIDENCE,
    Fence,
    LockToken,
    Outcome,
    cleared,
)
from tests.contract.subject import LOCK, Subject, abandonment, completion, expiry, stranger, token

Act = Callable[[Subject, Queue, Message, Fence], Awaitable[bool]]
"""Try to act on a lock of this queue; whether it took effect."""


async def remove(subject: Subject, queue: Queue, message: Message, fence: Fence) -> bool:
    """Complete."""
    return (await subject.store.remove([completion(queue, message, fence=fence)]))[0]


async def move(subject: Subject, queue: Queue, message: Message, fence: Fence) -> bool:
    """Abandon."""
    return (await subject.store.move([replace(abandonment(message), queue_id=queue.id, fence=fence)]))[0]


async def extend(subject: Subject, queue: Queue, message: Message, fence: Fence) -> bool:
    """Renew."""
    extension = Extension(token(message), queue.id, LOCK, fence.above)
    return (await subject.store.extend([extension]))[0] is not None


async def release(subject: Subject, queue: Queue, message: Message, fence: Fence) -> bool:
    """Free by the time or by evidence."""
    return (await subject.store.release([replace(expiry(message), queue_id=queue.id, fence=fence)]))[0]


HOLDERS = [remove, move, extend]
EVERYBODY = [*HOLDERS, release]
ENDED = LOCK // SECOND + 1


async def renewed(subject: Subject, queue: Queue, times: int) -> Message:
    """A received message whose lock was renewed so many times."""
    message = await subject.locked(queue)
    for _ in range(times):
        await subject.store.extend([Extension(token(message), queue.id, LOCK, NO_EVIDENCE)])
    return message


async def prepared(subject: Subject, queue: Queue, act: Act) -> Message:
    """A locked message on which the act would take effect."""
    message = await subject.locked(queue)
    if act is release:
        await subject.pass_time(ENDED)
    return message


@pytest.mark.parametrize("act", EVERYBODY)
async def test_the_right_token_in_time_takes_effect(subject: Subject, queue: Queue, act: Act) -> None:
    message = await prepared(subject, queue, act)
    assert await act(subject, queue, message, NEVER_RENEWED)


@pytest.mark.parametrize("act", EVERYBODY)
async def test_another_token_has_no_effect(subject: Subject, queue: Queue, act: Act) -> None:
    message = await prepared(subject, queue, act)
    assert not await act(subject, queue, stranger(message), NEVER_RENEWED)
    assert await subject.state(message) is MessageState.LOCKED
    assert await subject.store.tombstones([token(message)]) == [None]


@pytest.mark.parametrize("act", EVERYBODY)
async def test_the_token_of_another_message_has_no_effect(subject: Subject, queue: Queue, act: Act) -> None:
    other = await subject.locked(queue)
    message = await prepared(subject, queue, act)
    crossed = replace(message, lock_token=other.lock_token)
    assert not await act(subject, queue, crossed, NEVER_RENEWED)
    assert await subject.state(message) is await subject.state(other) is MessageState.LOCKED


@pytest.mark.parametrize("act", EVERYBODY)
async def test_another_queue_has_no_effect(subject: Subject, queue: Queue, act: Act) -> None:
    other = await subject.queue()
    message = await prepared(subject, queue, act)
    assert not await act(subject, other, message, NEVER_RENEWED)
    assert await subject.state(message) is MessageState.LOCKED


@pytest.mark.behaviour("S3.26", "S0.5")
@pytest.mark.parametrize("act", HOLDERS)
async def test_an_ended_lock_is_settled_and_renewed_no_more(subject: Subject, queue: Queue, act: Act) -> None:
    message = await subject.locked(queue)
    await subject.pass_time(ENDED)
    assert not await act(subject, queue, message, NEVER_RENEWED)
    assert not await act(subject, queue, message, cleared(NO_EVIDENCE))
    assert await subject.state(message) is MessageState.LOCKED


@pytest.mark.parametrize("act", EVERYBODY)
async def test_a_row_that_is_not_locked_is_let_alone(subject: Subject, queue: Queue, act: Act) -> None:
    # Nobody writes such a row: the state is a second fence should a token ever outlive its lock.
    message = await prepared(subject, queue, act)
    await subject.execute(f"UPDATE message SET state = 1 WHERE sequence_number = {message.sequence_number}")
    assert not await act(subject, queue, message, NEVER_RENEWED)
    assert await subject.state(message) is MessageState.AVAILABLE


@pytest.mark.parametrize("act", EVERYBODY)
async def test_the_token_of_an_earlier_delivery_has_no_effect(subject: Subject, queue: Queue, act: Act) -> None:
    first = await subject.locked(queue)
    await subject.store.move([abandonment(first)])
    (second,) = await subject.claim(queue)
    if act is release:
        await subject.pass_time(ENDED)
    assert not await act(subject, queue, first, NEVER_RENEWED)
    assert await act(subject, queue, second, NEVER_RENEWED)


@pytest.mark.parametrize("act", [remove, move])
async def test_a_renewed_lock_is_settled_only_once_the_lock_store_was_asked(
    subject: Subject, queue: Queue, act: Act
) -> None:
    message = await renewed(subject, queue, 1)
    assert not await act(subject, queue, message, NEVER_RENEWED)
    assert await subject.state(message) is MessageState.LOCKED
    assert await act(subject, queue, message, cleared(NO_EVIDENCE))


@pytest.mark.parametrize("act", HOLDERS)
@pytest.mark.parametrize(("evidence", "effective"), [(NO_EVIDENCE, True), (0, True), (1, True), (2, False), (3, False)])
async def test_evidence_counts_against_its_own_and_earlier_generations(
    subject: Subject, queue: Queue, act: Act, evidence: int, effective: bool
) -> None:
    message = await renewed(subject, queue, 2)
    assert await act(subject, queue, message, cleared(evidence)) is effective


@pytest.mark.parametrize(("up_to", "effective"), [(1, False), (2, True), (HIGHEST_GENERATION, True)])
async def test_a_generation_above_the_fence_is_let_alone(
    subject: Subject, queue: Queue, up_to: int, effective: bool
) -> None:
    message = await renewed(subject, queue, 2)
    assert await remove(subject, queue, message, Fence(NO_EVIDENCE, up_to)) is effective


@pytest.mark.parametrize(
    ("evidence", "effective"), [(NO_EVIDENCE, False), (0, False), (1, False), (2, True), (3, False)]
)
async def test_a_living_lock_is_freed_only_on_evidence_of_its_very_generation(
    subject: Subject, queue: Queue, evidence: int, effective: bool
) -> None:
    message = await renewed(subject, queue, 2)
    assert await release(subject, queue, message, cleared(evidence)) is effective


# ---- messages that nobody holds --------------------------------------------------------------------------------------


def seen(message: Message, state: MessageState, queue: Queue | None = None) -> Unlocked:
    """The row as somebody saw it."""
    return Unlocked(message.sequence_number, queue.id if queue else message.queue_id, state)


async def withdraw(subject: Subject, queue: Queue, row: Unlocked) -> bool:
    """Purge."""
    return (await subject.store.withdraw([Withdrawal(row, queue.name, Outcome.PURGED, HOUR)]))[0]


async def expire(subject: Subject, queue: Queue, row: Unlocked) -> bool:
    """Archive what is past its time to live."""
    return (await subject.store.expire([Withdrawal(row, queue.name, Outcome.EXPIRED, HOUR)]))[0]


async def bury(subject: Subject, _queue: Queue, row: Unlocked) -> bool:
    """Dead-letter."""
    return (await subject.store.bury([row], "reason"))[0]


async def redrive(subject: Subject, queue: Queue, row: Unlocked) -> bool:
    """Make dead letters available anew."""
    return (await subject.store.redrive([Redrive(row, queue.id)]))[0]


async def set_end_of_life(subject: Subject, expires_at: str) -> None:
    """Let all messages expire at this time: 1 is long ago, NULL never."""
    await subject.execute(f"UPDATE message SET expires_at = {expires_at}")


ACTS_ON_UNLOCKED = [
    (withdraw, MessageState.DEFERRED),
    (expire, MessageState.DEFERRED),
    (bury, MessageState.DEFERRED),
    (redrive, MessageState.DEAD_LETTERED),
]


@pytest.mark.parametrize(("act", "state"), ACTS_ON_UNLOCKED)
async def test_an_unlocked_message_is_acted_on_only_as_it_was_seen(
    subject: Subject, queue: Queue, act: Callable[..., Awaitable[bool]], state: MessageState
) -> None:
    other = await subject.queue()
    message = await subject.locked(queue)
    await set_end_of_life(subject, "1")
    for claimed_state in MessageState:
        assert not await act(subject, queue, seen(message, claimed_state))
    await subject.store.move([abandonment(message)])
    assert not await act(subject, queue, seen(message, state))
    await set_end_of_life(subject, "NULL")
    (again,) = await subject.claim(queue)
    await subject.store.move([abandonment(again, state=state)])
    await set_end_of_life(subject, "1")
    assert not await act(subject, queue, seen(message, state, other))
    assert not await act(subject, queue, Unlocked(10**15, queue.id, state))
    assert await subject.state(message) is state
    assert await act(subject, queue, seen(message, state))
    assert await subject.state(message) is not state


@pytest.mark.parametrize(("act", "state"), ACTS_ON_UNLOCKED)
async def test_of_two_acts_on_one_message_the_first_takes_effect(
    subject: Subject, queue: Queue, act: Callable[..., Awaitable[bool]], state: MessageState
) -> None:
    message = await subject.locked(queue)
    await subject.store.move([abandonment(message, state=state)])
    await set_end_of_life(subject, "1")
    row = seen(message, state)
    store = subject.store
    if act is withdraw:
        took = await store.withdraw([Withdrawal(row, queue.name, Outcome.PURGED, HOUR)] * 2)
    elif act is expire:
        took = await store.expire([Withdrawal(row, queue.name, Outcome.EXPIRED, HOUR)] * 2)
    elif act is bury:
        took = await store.bury([row, row], "reason")
    else:
        took = await store.redrive([Redrive(row, queue.id)] * 2)
    assert took == [True, False]


@pytest.mark.parametrize("number", ["1", "1000000", "9" * 18])
async def test_tokens_of_no_message_are_nothing_to_anybody(subject: Subject, queue: Queue, number: str) -> None:
    nobody = LockToken.parse(f"{number}.{'00' * 16}")
    assert await subject.store.held([nobody]) == [None]
    assert await subject.store.tombstones([nobody]) == [None]
    assert await subject.store.extend([Extension(nobody, queue.id, LOCK, NO_EVIDENCE)]) == [None]


def test_a_token_with_a_number_that_no_store_can_hold_is_none() -> None:
    with pytest.raises(MessageNotFound):
        LockToken.parse(f"{'9' * 19}.{'00' * 16}")
