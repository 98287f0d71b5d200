"""Every statement that acts on a lock or on an expected message has a fence, and each condition of the fence counts."""

import secrets
from collections.abc import Awaitable, Callable

import pytest
from msgspec.structs import replace

from app.broker.ports.attempts import Attempt
from app.broker.ports.maintaining import Redrive, UnlockedRow, Withdrawal
from app.broker.ports.settling import Extension
from app.broker.ports.transactions import SettlementsFailed
from app.domain.instant import HOUR, SECOND
from app.domain.message import Message, MessageState
from app.domain.queue import Queue, QueueSettings
from app.domain.refusals import MessageNotFound
from app.domain.settlement import (
    MAX_GENERATION,
    NEVER_RENEWED,
    NO_EXPIRED_GENERATION,
    Fence,
    LockToken,
    Outcome,
    fence_above,
)
from app.domain.work_unit import WorkUnit
from tests.contract.store_fixture import (
    LOCK_DURATION,
    StoreFixture,
    abandonment,
    completion,
    draft,
    expiry,
    token,
    with_wrong_token,
)

Action = Callable[[StoreFixture, Queue, Message, Fence], Awaitable[bool]]
"""Acts on a lock of this queue. Returns whether it took effect."""


async def remove(store_fixture: StoreFixture, queue: Queue, message: Message, fence: Fence) -> bool:
    """Complete."""
    return (await store_fixture.store.remove([completion(queue, message, fence=fence)]))[0]


async def move(store_fixture: StoreFixture, queue: Queue, message: Message, fence: Fence) -> bool:
    """Abandon."""
    return (await store_fixture.store.move([replace(abandonment(message), queue_id=queue.id, fence=fence)]))[0]


async def extend(store_fixture: StoreFixture, queue: Queue, message: Message, fence: Fence) -> bool:
    """Renew."""
    extension = Extension(
        token(message), queue.id, LOCK_DURATION, fence.generation_above, max_generation=fence.max_generation
    )
    return (await store_fixture.store.extend([extension]))[0] is not None


async def release(store_fixture: StoreFixture, queue: Queue, message: Message, fence: Fence) -> bool:
    """Release by time or by an expired generation."""
    return (await store_fixture.store.release([replace(expiry(message), queue_id=queue.id, fence=fence)]))[0]


async def commit(store_fixture: StoreFixture, queue: Queue, message: Message, fence: Fence) -> bool:
    """Complete in a commit."""
    unit = WorkUnit([completion(queue, message, fence=fence)], [draft(await store_fixture.queue())])
    try:
        await store_fixture.store.execute(unit, Attempt(secrets.token_bytes(32), b"f" * 32, HOUR))
    except SettlementsFailed:
        return False
    return True


HOLDER_ACTIONS = [remove, move, extend, commit]
ALL_ACTIONS = [*HOLDER_ACTIONS, release]
AFTER_LOCK_SECONDS = LOCK_DURATION // SECOND + 1


async def renewed_message(store_fixture: StoreFixture, queue: Queue, times: int) -> Message:
    """A received message whose lock was renewed `times` times."""
    message = await store_fixture.locked(queue)
    for _ in range(times):
        await store_fixture.store.extend([Extension(token(message), queue.id, LOCK_DURATION, NO_EXPIRED_GENERATION)])
    return message


async def actionable_message(store_fixture: StoreFixture, queue: Queue, action: Action) -> Message:
    """A locked message on which the action would take effect."""
    message = await store_fixture.locked(queue)
    if action is release:
        await store_fixture.advance_time(AFTER_LOCK_SECONDS)
    return message


@pytest.mark.parametrize("action", ALL_ACTIONS)
async def test_the_right_token_in_time_takes_effect(store_fixture: StoreFixture, queue: Queue, action: Action) -> None:
    message = await actionable_message(store_fixture, queue, action)
    assert await action(store_fixture, queue, message, NEVER_RENEWED)


@pytest.mark.fence("token")
@pytest.mark.parametrize("action", ALL_ACTIONS)
async def test_another_token_has_no_effect(store_fixture: StoreFixture, queue: Queue, action: Action) -> None:
    message = await actionable_message(store_fixture, queue, action)
    assert not await action(store_fixture, queue, with_wrong_token(message), NEVER_RENEWED)
    assert await store_fixture.state(message) is MessageState.LOCKED
    assert await store_fixture.store.tombstones([token(message)]) == [None]


@pytest.mark.parametrize("action", ALL_ACTIONS)
async def test_the_token_of_another_message_has_no_effect(
    store_fixture: StoreFixture, queue: Queue, action: Action
) -> None:
    other = await store_fixture.locked(queue)
    message = await actionable_message(store_fixture, queue, action)
    crossed = replace(message, lock_token=other.lock_token)
    assert not await action(store_fixture, queue, crossed, NEVER_RENEWED)
    assert await store_fixture.state(message) is await store_fixture.state(other) is MessageState.LOCKED


@pytest.mark.fence("queue")
@pytest.mark.parametrize("action", ALL_ACTIONS)
async def test_another_queue_has_no_effect(store_fixture: StoreFixture, queue: Queue, action: Action) -> None:
    other = await store_fixture.queue()
    message = await actionable_message(store_fixture, queue, action)
    assert not await action(store_fixture, other, message, NEVER_RENEWED)
    assert await store_fixture.state(message) is MessageState.LOCKED


@pytest.mark.fence("time")
@pytest.mark.behaviour("S3.26", "S0.5")
@pytest.mark.parametrize("action", HOLDER_ACTIONS)
async def test_an_ended_lock_is_neither_settled_nor_renewed(
    store_fixture: StoreFixture, queue: Queue, action: Action
) -> None:
    message = await store_fixture.locked(queue)
    await store_fixture.advance_time(AFTER_LOCK_SECONDS)
    assert not await action(store_fixture, queue, message, NEVER_RENEWED)
    assert not await action(store_fixture, queue, message, fence_above(NO_EXPIRED_GENERATION))
    assert await store_fixture.state(message) is MessageState.LOCKED


@pytest.mark.fence("locked")
@pytest.mark.parametrize("action", ALL_ACTIONS)
async def test_a_row_that_is_not_locked_is_not_changed(
    store_fixture: StoreFixture, queue: Queue, action: Action
) -> None:
    # No statement writes such a row. The state is a second fence should a token ever outlive its lock.
    message = await actionable_message(store_fixture, queue, action)
    await store_fixture.execute(f"UPDATE message SET state = 1 WHERE sequence_number = {message.sequence_number}")
    assert not await action(store_fixture, queue, message, NEVER_RENEWED)
    assert await store_fixture.state(message) is MessageState.AVAILABLE


@pytest.mark.fence("revocation")
async def test_a_lock_that_a_change_of_its_queue_revokes_is_not_renewed(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    message = await store_fixture.locked(queue)
    assert await store_fixture.store.queues.change(queue, QueueSettings(max_delivery_count=3)) is not None
    await store_fixture.advance_time(1)
    later = await store_fixture.locked(queue)
    assert not await extend(store_fixture, queue, message, NEVER_RENEWED)
    assert await extend(store_fixture, queue, later, NEVER_RENEWED)


@pytest.mark.parametrize("action", ALL_ACTIONS)
async def test_the_token_of_an_earlier_delivery_has_no_effect(
    store_fixture: StoreFixture, queue: Queue, action: Action
) -> None:
    first = await store_fixture.locked(queue)
    await store_fixture.store.move([abandonment(first)])
    (second,) = await store_fixture.claim(queue)
    if action is release:
        await store_fixture.advance_time(AFTER_LOCK_SECONDS)
    assert not await action(store_fixture, queue, first, NEVER_RENEWED)
    assert await action(store_fixture, queue, second, NEVER_RENEWED)


@pytest.mark.fence("generation")
@pytest.mark.parametrize("action", HOLDER_ACTIONS)
async def test_a_renewed_lock_is_changed_only_after_a_read_of_the_lock_store(
    store_fixture: StoreFixture, queue: Queue, action: Action
) -> None:
    message = await renewed_message(store_fixture, queue, 1)
    assert not await action(store_fixture, queue, message, NEVER_RENEWED)
    assert await store_fixture.state(message) is MessageState.LOCKED
    assert await action(store_fixture, queue, message, fence_above(NO_EXPIRED_GENERATION))


@pytest.mark.fence("generation")
@pytest.mark.parametrize("action", HOLDER_ACTIONS)
@pytest.mark.parametrize(
    ("expired_generation", "effective"), [(NO_EXPIRED_GENERATION, True), (0, True), (1, True), (2, False), (3, False)]
)
async def test_an_expired_generation_ends_itself_and_earlier_generations(
    store_fixture: StoreFixture, queue: Queue, action: Action, expired_generation: int, effective: bool
) -> None:
    message = await renewed_message(store_fixture, queue, 2)
    assert await action(store_fixture, queue, message, fence_above(expired_generation)) is effective


@pytest.mark.parametrize(("up_to", "effective"), [(1, False), (2, True), (MAX_GENERATION, True)])
async def test_a_generation_above_the_fence_is_not_settled(
    store_fixture: StoreFixture, queue: Queue, up_to: int, effective: bool
) -> None:
    message = await renewed_message(store_fixture, queue, 2)
    assert await remove(store_fixture, queue, message, Fence(NO_EXPIRED_GENERATION, up_to)) is effective


@pytest.mark.fence("time", "generation")
@pytest.mark.parametrize(
    ("expired_generation", "effective"), [(NO_EXPIRED_GENERATION, False), (0, False), (1, False), (2, True), (3, False)]
)
async def test_a_live_lock_is_released_only_if_exactly_its_generation_expired(
    store_fixture: StoreFixture, queue: Queue, expired_generation: int, effective: bool
) -> None:
    message = await renewed_message(store_fixture, queue, 2)
    assert await release(store_fixture, queue, message, fence_above(expired_generation)) is effective


# ---- unlocked messages -----------------------------------------------------------------------------------------------


def unlocked_row(message: Message, state: MessageState, queue: Queue | None = None) -> UnlockedRow:
    """The row as a reader expects it."""
    return UnlockedRow(message.sequence_number, queue.id if queue else message.queue_id, state)


async def withdraw(store_fixture: StoreFixture, queue: Queue, row: UnlockedRow) -> bool:
    """Purge."""
    return (await store_fixture.store.withdraw([Withdrawal(row, queue.name, Outcome.PURGED, HOUR)]))[0]


async def expire(store_fixture: StoreFixture, queue: Queue, row: UnlockedRow) -> bool:
    """Archive a message past its time to live."""
    return (await store_fixture.store.expire([Withdrawal(row, queue.name, Outcome.EXPIRED, HOUR)]))[0]


async def dead_letter(store_fixture: StoreFixture, _queue: Queue, row: UnlockedRow) -> bool:
    """Dead-letter."""
    return (await store_fixture.store.dead_letter([row], "reason"))[0]


async def redrive(store_fixture: StoreFixture, queue: Queue, row: UnlockedRow) -> bool:
    """Redrive dead letters."""
    return (await store_fixture.store.redrive([Redrive(row, queue.id)]))[0]


async def set_expiry(store_fixture: StoreFixture, expires_at: str) -> None:
    """Let all messages expire at this time: 1 is long ago, NULL never."""
    await store_fixture.execute(f"UPDATE message SET expires_at = {expires_at}")


UNLOCKED_ACTIONS = [
    (withdraw, MessageState.DEFERRED),
    (expire, MessageState.DEFERRED),
    (dead_letter, MessageState.DEFERRED),
    (redrive, MessageState.DEAD_LETTERED),
]


@pytest.mark.fence("queue", "state", "locked")
@pytest.mark.parametrize(("action", "state"), UNLOCKED_ACTIONS)
async def test_an_unlocked_message_is_changed_only_if_unchanged_since_read(
    store_fixture: StoreFixture, queue: Queue, action: Callable[..., Awaitable[bool]], state: MessageState
) -> None:
    other = await store_fixture.queue()
    message = await store_fixture.locked(queue)
    await set_expiry(store_fixture, "1")
    for claimed_state in MessageState:
        assert not await action(store_fixture, queue, unlocked_row(message, claimed_state))
    await store_fixture.store.move([abandonment(message)])
    assert not await action(store_fixture, queue, unlocked_row(message, state))
    await set_expiry(store_fixture, "NULL")
    (again,) = await store_fixture.claim(queue)
    await store_fixture.store.move([abandonment(again, state=state)])
    await set_expiry(store_fixture, "1")
    assert not await action(store_fixture, queue, unlocked_row(message, state, other))
    assert not await action(store_fixture, queue, UnlockedRow(10**15, queue.id, state))
    assert await store_fixture.state(message) is state
    assert await action(store_fixture, queue, unlocked_row(message, state))
    assert await store_fixture.state(message) is not state


@pytest.mark.parametrize(("action", "state"), UNLOCKED_ACTIONS)
async def test_of_two_actions_on_one_message_the_first_takes_effect(
    store_fixture: StoreFixture, queue: Queue, action: Callable[..., Awaitable[bool]], state: MessageState
) -> None:
    message = await store_fixture.locked(queue)
    await store_fixture.store.move([abandonment(message, state=state)])
    await set_expiry(store_fixture, "1")
    row = unlocked_row(message, state)
    store = store_fixture.store
    if action is withdraw:
        took = await store.withdraw([Withdrawal(row, queue.name, Outcome.PURGED, HOUR)] * 2)
    elif action is expire:
        took = await store.expire([Withdrawal(row, queue.name, Outcome.EXPIRED, HOUR)] * 2)
    elif action is dead_letter:
        took = await store.dead_letter([row, row], "reason")
    else:
        took = await store.redrive([Redrive(row, queue.id)] * 2)
    assert took == [True, False]


@pytest.mark.parametrize("number", ["1", "1000000", "9" * 18])
async def test_tokens_of_no_message_have_no_effect_anywhere(
    store_fixture: StoreFixture, queue: Queue, number: str
) -> None:
    nobody = LockToken.parse(f"{number}.{'00' * 16}")
    assert await store_fixture.store.locked_messages([nobody]) == [None]
    assert await store_fixture.store.tombstones([nobody]) == [None]
    assert await store_fixture.store.extend([Extension(nobody, queue.id, LOCK_DURATION, NO_EXPIRED_GENERATION)]) == [
        None
    ]


def test_a_token_with_a_number_out_of_range_is_invalid() -> None:
    with pytest.raises(MessageNotFound):
        LockToken.parse(f"{'9' * 19}.{'00' * 16}")
