"""The remaining time of a lock, its token, and the release of an undelivered message."""

import pytest
from msgspec.structs import replace

from app.domain.instant import SECOND, from_seconds, remaining, to_milliseconds, to_seconds
from app.domain.message import MessageState
from app.domain.settlement import (
    Fence,
    LockToken,
    Move,
    Outcome,
    fence_above,
    release_unprocessed,
    token_of,
    undelivered_release,
)
from tests.domain.messages import message
from tests.domain.test_release import HELD

SECRET = b"0123456789abcdef"
LOCKED = message(
    state=MessageState.LOCKED, lock_token=SECRET, locked_until=30 * SECOND, read_at=SECOND, read_started_at=5.0
)


def test_lock_remaining_is_the_granted_duration_minus_elapsed_time() -> None:
    assert LOCKED.lock_remaining(now=5.0) == 29 * SECOND
    assert LOCKED.lock_remaining(now=7.5) == 26.5 * SECOND
    assert LOCKED.lock_remaining(now=40.0) == 0


def test_lock_remaining_is_unknown_without_a_lock_or_the_time_of_the_read() -> None:
    assert message(read_started_at=5.0).lock_remaining(now=5.0) is None
    assert message(locked_until=30 * SECOND).lock_remaining(now=5.0) is None


def test_a_lock_is_live_before_locked_until_and_not_at_it() -> None:
    assert replace(HELD, read_at=HELD.locked_until - 1).is_live
    assert not replace(HELD, read_at=HELD.locked_until).is_live


def test_only_a_locked_message_has_a_token() -> None:
    assert token_of(LOCKED) == LockToken(7, SECRET)
    with pytest.raises(ValueError, match="message 7 is not locked"):
        token_of(message())


@pytest.mark.behaviour("S2.21")
def test_a_release_undoes_its_delivery_and_keeps_the_position() -> None:
    expected = Move(LockToken(7, SECRET), 3, Outcome.RELEASED, MessageState.AVAILABLE, delivery_count=0)
    assert undelivered_release(replace(LOCKED, delivery_count=1)) == expected


@pytest.mark.behaviour("S2.21")
@pytest.mark.parametrize("home", [MessageState.AVAILABLE, MessageState.DEFERRED, MessageState.DEAD_LETTERED])
def test_a_release_by_the_receiver_does_the_same(home: MessageState) -> None:
    held = replace(HELD, home_state=home, delivery_count=3, failure_count=2, is_in_group=True)
    expected = Move(HELD.token, HELD.queue_id, Outcome.RELEASED, home, delivery_count=2, is_in_group=True)
    assert release_unprocessed(held) == expected


def test_the_fence_matches_every_generation_above_the_expired_one() -> None:
    assert fence_above(4) == Fence(generation_above=4, max_generation=2**31 - 1)


def test_times_are_rounded_to_microseconds_and_lock_times_rounded_down() -> None:
    assert from_seconds(1.0000006) == 1_000_001
    assert to_seconds(1_500_000) == 1.5
    assert to_milliseconds(5_000_999) == 5_000
    assert remaining(3 * SECOND, measured_from=10.0, now=12.0) == SECOND
    assert remaining(3 * SECOND, measured_from=10.0, now=14.0) == 0
