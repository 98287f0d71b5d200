"""Names, tokens, lead times, times to live and rights."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.access import ALL_RIGHTS, ApiKey, Grant, Right
from app.domain.delivery import time_to_live
from app.domain.instant import HOUR, MINUTE, SECOND
from app.domain.message import BodyKind, Envelope, MessageState
from app.domain.queue import (
    FEATURE_LEVEL,
    HELD_LOCK_DURATION,
    LEVEL_OF_SETTING,
    MAX_LOCK_DURATION,
    MIN_LOCK_DURATION,
    SHARED_BODIES_LEVEL,
    SYNCHRONOUS_LEVEL,
    HeldLocks,
    Queue,
    QueueSettings,
    QueueStatus,
    Redelivery,
    check_can_keep_locks,
    check_known,
    check_receive_enabled,
    check_receiver,
    check_send_enabled,
    is_valid_name,
    lead_time,
    lock_duration_of,
    required_level,
    revokes_locks,
)
from app.domain.refusals import (
    FieldError,
    Forbidden,
    InvalidRequest,
    MessageNotFound,
    MessageTooLarge,
    NewerQueue,
    ReceiveDisabled,
    SendDisabled,
)
from app.domain.sending import NewMessage, create_draft
from app.domain.settlement import LockToken
from app.domain.synchronous_send import create_synchronous_draft
from tests.domain.messages import message


def queue(settings: QueueSettings) -> Queue:
    return Queue(1, "orders", settings, 1, 0, 0)


@pytest.mark.parametrize("name", ["a", "orders", "Orders.eu-west_1", "0", "a" * 128])
def test_valid_queue_names(name: str) -> None:
    assert is_valid_name(name)


@pytest.mark.parametrize("name", ["", "-a", "a-", ".a", "a/b", "a b", "ä", "a\n", "a" * 129])
def test_invalid_queue_names(name: str) -> None:
    assert not is_valid_name(name)


@given(number=st.integers(1, 10**18 - 1), secret=st.binary(min_size=16, max_size=16))
def test_a_formatted_token_parses_to_the_same_token(number: int, secret: bytes) -> None:
    token = LockToken(number, secret)
    assert LockToken.parse(str(token)) == token


@given(st.text(max_size=80))
def test_text_that_is_not_a_token_is_refused_as_not_found(text: str) -> None:
    try:
        token = LockToken.parse(text)
    except MessageNotFound:
        return
    assert len(token.secret) == 16


@given(duration=st.integers(MIN_LOCK_DURATION, MAX_LOCK_DURATION))
def test_the_lead_time_is_never_below_the_lock_duration(duration: int) -> None:
    assert lead_time(duration, shared_locks=True) >= duration
    assert lead_time(duration, shared_locks=False) == duration


def test_the_lead_time_is_four_lock_durations_between_one_and_ten_minutes() -> None:
    assert lead_time(30 * SECOND, shared_locks=True) == 2 * MINUTE
    assert lead_time(SECOND, shared_locks=True) == MINUTE
    assert lead_time(5 * MINUTE, shared_locks=True) == 10 * MINUTE
    assert lead_time(HOUR, shared_locks=True) == HOUR


def test_the_shorter_time_to_live_applies() -> None:
    assert time_to_live(None, QueueSettings()) is None
    assert time_to_live(5, QueueSettings()) == 5
    assert time_to_live(None, QueueSettings(default_ttl=7)) == 7
    assert time_to_live(9, QueueSettings(default_ttl=7)) == 7


@pytest.mark.parametrize(
    ("own", "waits"),
    [({}, 7), ({"delay": 5}, 5), ({"delay": 9}, 9), ({"delay": 0}, None), ({"available_at": 1}, None)],
)
def test_the_default_delay_applies_to_a_message_without_a_delay_or_a_due_time(
    own: dict[str, Any], waits: int | None
) -> None:
    delaying = queue(QueueSettings(default_delay=7))
    draft = create_draft(NewMessage(Envelope("id"), **own), delaying, "")
    assert (draft.delay, draft.available_at) == (waits, own.get("available_at"))


def test_a_synchronous_send_is_delivered_at_once_in_a_queue_with_a_default_delay() -> None:
    delaying = queue(QueueSettings(default_delay=7))
    assert create_synchronous_draft(NewMessage(Envelope("id")), delaying, "", 1.0, SECOND).delay is None


@pytest.mark.behaviour("S3.33")
def test_only_changes_that_a_holder_relies_on_revoke_its_lock() -> None:
    before = QueueSettings()
    assert revokes_locks(before, QueueSettings(lock_duration=MINUTE))
    assert revokes_locks(before, QueueSettings(max_delivery_count=3))
    assert revokes_locks(before, QueueSettings(status=QueueStatus.DISABLED))
    assert revokes_locks(before, QueueSettings(redelivery=Redelivery.ON_REQUEST))
    assert not revokes_locks(before, QueueSettings(description="new", max_messages=5, default_ttl=HOUR))


def test_a_change_keeps_locks_if_asked_unless_the_redelivery_changes() -> None:
    before = QueueSettings()
    for after in (
        QueueSettings(lock_duration=MINUTE),
        QueueSettings(max_delivery_count=3, status=QueueStatus.DISABLED),
    ):
        assert not revokes_locks(before, after, HeldLocks.KEEP)
        check_can_keep_locks(before, after)
    on_request = QueueSettings(redelivery=Redelivery.ON_REQUEST)
    for change in ((before, on_request), (on_request, before)):
        with pytest.raises(InvalidRequest, match="cannot keep locks"):
            check_can_keep_locks(*change)


def test_only_a_lock_of_an_automatic_queue_lasts_as_long_as_it_is_asked_to() -> None:
    automatic = QueueSettings(lock_duration=MINUTE)
    assert [lock_duration_of(automatic, asked) for asked in (None, HOUR)] == [MINUTE, HOUR]
    on_request = replace(automatic, redelivery=Redelivery.ON_REQUEST)
    assert {lock_duration_of(on_request, asked) for asked in (None, HOUR)} == {HELD_LOCK_DURATION}


def test_redelivery_on_request_needs_a_receiver_with_a_name() -> None:
    on_request = queue(QueueSettings(redelivery=Redelivery.ON_REQUEST))
    check_receiver(on_request, "worker")
    check_receiver(queue(QueueSettings()), None)
    with pytest.raises(InvalidRequest) as refused:
        check_receiver(on_request, None)
    assert [fault.pointer for fault in refused.value.field_errors] == ["/receiver_id"]


def test_a_queue_needs_the_highest_level_among_its_settings_that_are_not_defaults() -> None:
    levels = {"max_messages": 1, "default_ttl": 3, "description": 2}
    assert required_level(QueueSettings(), levels) == 0
    assert required_level(QueueSettings(max_delivery_count=3), levels) == 0
    assert required_level(QueueSettings(max_messages=1), levels) == 1
    assert required_level(QueueSettings(default_ttl=HOUR, max_messages=1), levels) == 3


def test_this_version_serves_the_levels_of_its_settings_and_no_higher_one() -> None:
    assert {required_level(QueueSettings()), SYNCHRONOUS_LEVEL, SHARED_BODIES_LEVEL, *LEVEL_OF_SETTING.values()} == set(
        range(FEATURE_LEVEL + 1)
    )
    check_known(replace(queue(QueueSettings()), feature_level=FEATURE_LEVEL))
    with pytest.raises(NewerQueue):
        check_known(replace(queue(QueueSettings()), feature_level=FEATURE_LEVEL + 1))


def test_the_status_of_a_queue_disables_sends_or_receives() -> None:
    for status in (QueueStatus.SEND_DISABLED, QueueStatus.DISABLED):
        with pytest.raises(SendDisabled):
            check_send_enabled(queue(QueueSettings(status=status)))
    for status in (QueueStatus.RECEIVE_DISABLED, QueueStatus.DISABLED):
        with pytest.raises(ReceiveDisabled):
            check_receive_enabled(queue(QueueSettings(status=status)))
    check_send_enabled(queue(QueueSettings(status=QueueStatus.RECEIVE_DISABLED)))
    check_receive_enabled(queue(QueueSettings(status=QueueStatus.SEND_DISABLED)))


@pytest.mark.behaviour("S3.30")
def test_a_draft_keeps_its_message_id_or_gets_the_default() -> None:
    orders = queue(QueueSettings())
    assert create_draft(NewMessage(Envelope("mine")), orders, "made").envelope.message_id == "mine"
    assert create_draft(NewMessage(Envelope("")), orders, "made").envelope.message_id == "made"


def test_body_and_properties_together_are_limited() -> None:
    orders = queue(QueueSettings(max_message_bytes=10))
    create_draft(NewMessage(Envelope("", properties=b"12345"), b"12345", BodyKind.BYTES), orders, "made")
    with pytest.raises(MessageTooLarge):
        create_draft(NewMessage(Envelope("", properties=b"12345"), b"123456", BodyKind.BYTES), orders, "made")


def test_rights_are_denied_unless_granted_on_a_matching_name() -> None:
    grant = Grant(frozenset({Right.SEND}), ("orders.*", "audit"))
    assert grant.allows(Right.SEND, "orders.eu")
    assert grant.allows(Right.SEND, "audit")
    assert not grant.allows(Right.SEND, "Orders.eu")
    assert not grant.allows(Right.SEND, "audits")
    assert not grant.allows(Right.LISTEN, "audit")
    assert not grant.allows(Right.SEND, None)
    assert Grant(ALL_RIGHTS).allows(Right.MANAGE, None)


def test_a_key_is_live_until_it_expires_or_is_revoked() -> None:
    key = ApiKey("id", "principal", b"hash", Grant(ALL_RIGHTS), created_at=0)
    assert key.is_live(now=10)
    assert replace(key, expires_at=11).is_live(now=10)
    assert not replace(key, expires_at=10).is_live(now=10)
    assert not replace(key, revoked_at=0).is_live(now=10)
    assert not replace(key, revoked_at=0, expires_at=11).is_live(now=10)


def test_a_delay_of_zero_is_no_delay() -> None:
    assert create_draft(NewMessage(Envelope("m"), delay=SECOND), queue(QueueSettings()), "made").delay == SECOND
    assert create_draft(NewMessage(Envelope("m"), delay=0), queue(QueueSettings()), "made").delay is None


def test_a_draft_carries_the_duplicate_window_of_its_queue() -> None:
    windows = [queue(QueueSettings(duplicate_detection_window=window)) for window in (MINUTE, None)]
    assert [create_draft(NewMessage(Envelope("m")), queue, "made").duplicate_window for queue in windows] == [MINUTE, 0]


def test_the_detail_of_a_refusal_defaults_to_its_first_error_or_docstring() -> None:
    faults = (FieldError("/a", "A is wrong."), FieldError("/b", "B is wrong."))
    assert Forbidden("No.", faults).detail == "No."
    assert Forbidden(field_errors=faults).detail == "A is wrong."
    assert Forbidden().detail == "This API key does not have the right that the request needs."


def test_an_etag_changes_with_the_queue_and_the_message() -> None:
    orders = queue(QueueSettings())
    assert len({orders.etag, replace(orders, version=2).etag, replace(orders, id=2).etag}) == 3
    assert message().etag == message(read_at=5).etag != message(priority=5).etag


def test_lock_version_grows_with_each_change_and_each_locked_purge() -> None:
    orders = queue(QueueSettings())
    grown = [
        orders,
        replace(orders, version=2),
        replace(orders, lock_purges=1),
        replace(orders, version=2, lock_purges=1),
    ]
    assert [queue.lock_version for queue in grown] == [1, 2, 2, 3]


def test_the_label_of_a_state_is_its_lower_case_name() -> None:
    assert MessageState.DEAD_LETTERED.label == "dead_lettered"
