"""Why a message is not delivered, and why a queue is stalled."""

from dataclasses import replace
from typing import Any

import pytest
from msgspec.structs import replace as replace_struct

from app.domain.explanation import (
    DeliveryContext,
    MessageFacts,
    MessageReason,
    RecordedPromise,
    explain_message,
    lock_of,
)
from app.domain.instant import MINUTE, SECOND
from app.domain.message import MessageState
from app.domain.queue import QueueCounts, QueueSettings, QueueStatus, Redelivery
from app.domain.queue_explanation import (
    QueueFacts,
    QueueReason,
    SendAcceptance,
    explain_queue,
)
from app.domain.retry import ExponentialDelay, FixedDelay
from app.domain.settlement import Outcome
from app.domain.transaction import WaitingSettlement

NOW = 1_000 * SECOND
ACTIVE = QueueSettings()
FORWARDING = QueueSettings(forward_dead_letters_to="failures")
PAUSED = QueueSettings(status=QueueStatus.RECEIVE_DISABLED)
AVAILABLE = MessageFacts(
    sequence_number=7,
    queue_id=3,
    state=MessageState.AVAILABLE,
    home_state=MessageState.AVAILABLE,
    group_id=None,
    priority=4,
    available_at=NOW - SECOND,
    expires_at=None,
    delivery_count=0,
    failure_count=0,
    lock_token=None,
    locked_until=None,
    lock_generation=0,
    receiver_id=None,
    last_failure=None,
    dead_letter_reason=None,
    dead_letter_description=None,
    dead_lettered_at=None,
    read_at=NOW,
)
LOCKED = replace(
    AVAILABLE,
    state=MessageState.LOCKED,
    delivery_count=1,
    lock_token=b"0123456789abcdef",
    locked_until=NOW + MINUTE,
    receiver_id="worker-1",
)
SCHEDULED = replace(AVAILABLE, state=MessageState.SCHEDULED, available_at=NOW + MINUTE)
OFFERED = replace(AVAILABLE, expires_at=NOW + SECOND, is_offered=True)
BLOCKED = replace(AVAILABLE, state=MessageState.BLOCKED, group_id="a")
GROUPED = QueueSettings(group_in_flight=1)
WAITING = WaitingSettlement(Outcome.COMPLETED, NOW + SECOND, "t-1")
ON_REQUEST = QueueSettings(redelivery=Redelivery.ON_REQUEST)
DEFERRED = replace(AVAILABLE, state=MessageState.DEFERRED)
DEAD_LETTERED = replace(AVAILABLE, state=MessageState.DEAD_LETTERED)
EXPIRED = {"expires_at": NOW}


# ---- messages --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("facts", "settings", "context", "reason", "deliverable_at"),
    [
        (AVAILABLE, ACTIVE, DeliveryContext(), MessageReason.NEXT, NOW),
        (AVAILABLE, ACTIVE, DeliveryContext(messages_ahead=2), MessageReason.BEHIND_OTHERS, NOW),
        (AVAILABLE, PAUSED, DeliveryContext(messages_ahead=2), MessageReason.QUEUE_PAUSED, None),
        (replace(AVAILABLE, **EXPIRED), ACTIVE, DeliveryContext(), MessageReason.TIME_TO_LIVE_ENDED, None),
        (replace(AVAILABLE, expires_at=NOW + 1), ACTIVE, DeliveryContext(), MessageReason.NEXT, NOW),
        (SCHEDULED, ACTIVE, DeliveryContext(), MessageReason.SCHEDULED, NOW + MINUTE),
        (SCHEDULED, PAUSED, DeliveryContext(), MessageReason.SCHEDULED, None),
        (replace(SCHEDULED, available_at=NOW), ACTIVE, DeliveryContext(), MessageReason.DUE, NOW),
        (replace(SCHEDULED, delivery_count=1), ACTIVE, DeliveryContext(), MessageReason.RETRY_DELAYED, NOW + MINUTE),
        (replace(SCHEDULED, expires_at=NOW + MINUTE), ACTIVE, DeliveryContext(), MessageReason.SCHEDULED, None),
        (replace(SCHEDULED, **EXPIRED), ACTIVE, DeliveryContext(), MessageReason.TIME_TO_LIVE_ENDED, None),
        (BLOCKED, GROUPED, DeliveryContext(), MessageReason.BLOCKED, None),
        (replace(BLOCKED, **EXPIRED), GROUPED, DeliveryContext(), MessageReason.TIME_TO_LIVE_ENDED, None),
        (DEFERRED, ACTIVE, DeliveryContext(), MessageReason.DEFERRED, None),
        (DEAD_LETTERED, FORWARDING, DeliveryContext(), MessageReason.FORWARDING, None),
        (replace(DEFERRED, **EXPIRED), ACTIVE, DeliveryContext(), MessageReason.TIME_TO_LIVE_ENDED, None),
        (DEAD_LETTERED, ACTIVE, DeliveryContext(), MessageReason.DEAD_LETTERED, None),
        (replace(DEAD_LETTERED, **EXPIRED), ACTIVE, DeliveryContext(), MessageReason.DEAD_LETTERED, None),
        (LOCKED, ACTIVE, DeliveryContext(), MessageReason.LOCKED, NOW + MINUTE),
        (LOCKED, ON_REQUEST, DeliveryContext(), MessageReason.LOCKED_ON_REQUEST, None),
        (LOCKED, PAUSED, DeliveryContext(), MessageReason.LOCKED, None),
        (replace(LOCKED, **EXPIRED), ACTIVE, DeliveryContext(), MessageReason.LOCKED, None),
        (replace(LOCKED, locked_until=NOW), ACTIVE, DeliveryContext(), MessageReason.LOCK_ENDED, NOW),
        (LOCKED, ACTIVE, DeliveryContext(waiting=WAITING), MessageReason.IN_TRANSACTION, NOW + MINUTE),
        (
            LOCKED,
            ACTIVE,
            DeliveryContext(waiting=replace_struct(WAITING, expires_at=NOW)),
            MessageReason.LOCKED,
            NOW + MINUTE,
        ),
        (LOCKED, ON_REQUEST, DeliveryContext(waiting=WAITING), MessageReason.IN_TRANSACTION, None),
        (BLOCKED, GROUPED, DeliveryContext(waiting=WAITING), MessageReason.BLOCKED, None),
    ],
)
def test_a_message_has_a_reason_and_a_latest_time(
    facts: MessageFacts,
    settings: QueueSettings,
    context: DeliveryContext,
    reason: MessageReason,
    deliverable_at: int | None,
) -> None:
    explanation = explain_message(facts, settings, context)
    assert (explanation.reason, explanation.deliverable_at) == (reason, deliverable_at)
    assert (explanation.facts, explanation.queue_status) == (facts, settings.status)


def test_only_a_message_that_would_be_deliverable_expires_first() -> None:
    late = replace(SCHEDULED, expires_at=NOW + MINUTE)
    assert explain_message(late, ACTIVE, DeliveryContext()).expires_first
    assert explain_message(late, PAUSED, DeliveryContext()).expires_first
    in_time = replace(SCHEDULED, expires_at=NOW + MINUTE + 1)
    assert not explain_message(in_time, ACTIVE, DeliveryContext()).expires_first
    assert not explain_message(replace(AVAILABLE, **EXPIRED), ACTIVE, DeliveryContext()).expires_first


def test_an_available_message_tells_what_is_ahead_and_whether_a_receiver_waits() -> None:
    explanation = explain_message(AVAILABLE, ACTIVE, DeliveryContext(messages_ahead=3, receivers_waiting=True))
    assert (explanation.messages_ahead, explanation.receivers_waiting) == (3, True)
    scheduled = explain_message(SCHEDULED, ACTIVE, DeliveryContext())
    assert (scheduled.messages_ahead, scheduled.receivers_waiting) == (None, None)


@pytest.mark.parametrize(("expires_at", "shown"), [(NOW + 1, True), (NOW, False)])
def test_a_settlement_waits_for_a_commit_until_the_deadline(expires_at: int, shown: bool) -> None:
    waiting = replace_struct(WAITING, expires_at=expires_at)
    explanation = explain_message(BLOCKED, GROUPED, DeliveryContext(behind=LOCKED, waiting=waiting))
    assert explanation.waiting == (waiting if shown else None)


def test_a_blocked_message_tells_what_it_waits_for() -> None:
    explanation = explain_message(BLOCKED, GROUPED, DeliveryContext(messages_ahead=2, behind=LOCKED))
    assert (explanation.messages_ahead, explanation.behind) == (2, LOCKED)


@pytest.mark.parametrize(
    ("facts", "settings", "waits"),
    [
        (replace(SCHEDULED, group_id="a"), GROUPED, True),
        (replace(SCHEDULED, group_id="a"), ACTIVE, False),
        (SCHEDULED, GROUPED, False),
        (replace(LOCKED, group_id="a"), replace(GROUPED, retry=FixedDelay(SECOND)), True),
        (replace(LOCKED, group_id="a"), GROUPED, False),
    ],
)
def test_a_message_that_enters_its_group_later_may_be_blocked_then(
    facts: MessageFacts, settings: QueueSettings, waits: bool
) -> None:
    explanation = explain_message(facts, settings, DeliveryContext())
    assert (explanation.waits_for_group, explanation.deliverable_at is None) == (waits, waits)


@pytest.mark.parametrize(
    ("settings", "next_state"),
    [(ACTIVE, None), (QueueSettings(dead_letter_on_expiry=True), MessageState.DEAD_LETTERED)],
)
def test_the_queue_decides_what_follows_the_time_to_live(
    settings: QueueSettings, next_state: MessageState | None
) -> None:
    assert explain_message(replace(AVAILABLE, **EXPIRED), settings, DeliveryContext()).next_state is next_state


@pytest.mark.parametrize(
    ("changes", "settings", "next_state", "deliverable_at"),
    [
        ({}, ACTIVE, MessageState.AVAILABLE, NOW + MINUTE),
        ({}, QueueSettings(retry=FixedDelay(SECOND)), MessageState.SCHEDULED, NOW + MINUTE + SECOND),
        ({}, QueueSettings(retry=ExponentialDelay(jitter=1.0)), MessageState.SCHEDULED, NOW + MINUTE + SECOND),
        ({"failure_count": 9}, ACTIVE, MessageState.DEAD_LETTERED, None),
        ({"home_state": MessageState.DEFERRED}, ACTIVE, MessageState.DEFERRED, None),
        ({"home_state": MessageState.DEAD_LETTERED}, ACTIVE, MessageState.DEAD_LETTERED, None),
        ({"locked_until": NOW - 5}, QueueSettings(retry=FixedDelay(SECOND)), MessageState.SCHEDULED, NOW + SECOND),
    ],
)
def test_what_follows_a_lock_is_decided_by_the_rule_of_releases(
    changes: dict[str, Any], settings: QueueSettings, next_state: MessageState, deliverable_at: int | None
) -> None:
    explanation = explain_message(replace(LOCKED, **changes), settings, DeliveryContext())
    assert (explanation.next_state, explanation.deliverable_at) == (next_state, deliverable_at)


@pytest.mark.parametrize(
    ("promise", "reason", "locked_until", "deliverable_at"),
    [
        (None, MessageReason.LOCKED, NOW + MINUTE, NOW + MINUTE),
        (RecordedPromise(2, 20 * SECOND), MessageReason.LOCKED, NOW + 20 * SECOND, NOW + MINUTE),
        (RecordedPromise(2, 2 * MINUTE), MessageReason.LOCKED, NOW + MINUTE, NOW + MINUTE),
        (RecordedPromise(2, 0), MessageReason.LOCK_ENDED, NOW, NOW),
        (RecordedPromise(2, -SECOND), MessageReason.LOCK_ENDED, NOW - SECOND, NOW),
        (RecordedPromise(1, -SECOND), MessageReason.LOCKED, NOW + MINUTE, NOW + MINUTE),
    ],
)
def test_a_record_of_the_same_generation_says_when_a_promise_really_ends(
    promise: RecordedPromise | None, reason: MessageReason, locked_until: int, deliverable_at: int
) -> None:
    explanation = explain_message(replace(LOCKED, lock_generation=2), ACTIVE, DeliveryContext(promise=promise))
    assert (explanation.reason, explanation.locked_until) == (reason, locked_until)
    assert explanation.deliverable_at == deliverable_at


@pytest.mark.parametrize(
    "missing", [{"lock_token": None}, {"locked_until": None}, {"lock_token": None, "locked_until": None}]
)
def test_a_message_that_is_not_locked_has_no_lock(missing: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="message 7 is not locked"):
        lock_of(replace(LOCKED, **missing))


@pytest.mark.parametrize("reasons", [MessageReason, QueueReason, SendAcceptance])
def test_every_code_is_described(reasons: type[MessageReason | QueueReason | SendAcceptance]) -> None:
    assert [reason for reason in reasons if f"`{reason}`" not in str(reasons.__doc__)] == []


# ---- queues ----------------------------------------------------------------------------------------------------------


def queue_facts(
    *locks: MessageFacts, next_due_at: int | None = None, receivers_waiting: bool = False, **counts: int
) -> QueueFacts:
    """The facts of a queue with these locks and other counts."""
    return QueueFacts(QueueCounts(locked=len(locks), **counts), locks, next_due_at, receivers_waiting, NOW)


@pytest.mark.parametrize(
    ("facts", "settings", "reason", "next_deliverable_at"),
    [
        (queue_facts(), ACTIVE, QueueReason.EMPTY, None),
        (queue_facts(), QueueSettings(status=QueueStatus.SEND_DISABLED), QueueReason.SENDS_DISABLED, None),
        (queue_facts(), PAUSED, QueueReason.QUEUE_PAUSED, None),
        (queue_facts(uncommitted=1), ACTIVE, QueueReason.ALL_UNCOMMITTED, None),
        (queue_facts(LOCKED, uncommitted=1), ACTIVE, QueueReason.ALL_LOCKED, NOW + MINUTE),
        (queue_facts(available=1), QueueSettings(status=QueueStatus.DISABLED), QueueReason.QUEUE_PAUSED, None),
        (queue_facts(available=1), ACTIVE, QueueReason.NO_RECEIVER, NOW),
        (queue_facts(LOCKED, available=1), ACTIVE, QueueReason.RECEIVERS_BUSY, NOW),
        (queue_facts(available=1, receivers_waiting=True), ACTIVE, QueueReason.RECEIVERS_WAITING, NOW),
        (queue_facts(LOCKED, scheduled=1), ACTIVE, QueueReason.ALL_LOCKED, NOW + MINUTE),
        (queue_facts(LOCKED, blocked=1), GROUPED, QueueReason.ALL_LOCKED, NOW + MINUTE),
        (queue_facts(blocked=1, scheduled=1), GROUPED, QueueReason.ALL_BLOCKED, NOW),
        (queue_facts(LOCKED, scheduled=1, next_due_at=NOW + 1), GROUPED, QueueReason.ALL_LOCKED, NOW + MINUTE),
        (queue_facts(scheduled=1, next_due_at=NOW + 1), GROUPED, QueueReason.ALL_SCHEDULED, NOW + 1),
        (queue_facts(scheduled=1, next_due_at=NOW + SECOND), ACTIVE, QueueReason.ALL_SCHEDULED, NOW + SECOND),
        (queue_facts(scheduled=1, next_due_at=NOW - SECOND), ACTIVE, QueueReason.ALL_SCHEDULED, NOW),
        (queue_facts(scheduled=1, next_due_at=NOW + SECOND), PAUSED, QueueReason.QUEUE_PAUSED, None),
        (queue_facts(deferred=1), ACTIVE, QueueReason.SET_ASIDE, None),
        (queue_facts(dead_lettered=1), ACTIVE, QueueReason.SET_ASIDE, None),
    ],
)
def test_a_queue_has_a_reason_and_a_latest_time(
    facts: QueueFacts, settings: QueueSettings, reason: QueueReason, next_deliverable_at: int | None
) -> None:
    explanation = explain_queue(facts, settings)
    assert (explanation.reason, explanation.next_deliverable_at) == (reason, next_deliverable_at)


def test_the_next_message_is_the_first_that_is_released_or_due() -> None:
    soon = replace(LOCKED, locked_until=NOW + SECOND, home_state=MessageState.DEFERRED)
    facts = queue_facts(LOCKED, soon, scheduled=1, next_due_at=NOW + 2 * MINUTE)
    explanation = explain_queue(facts, ACTIVE)
    assert (explanation.next_lock_end, explanation.next_deliverable_at) == (NOW + SECOND, NOW + MINUTE)
    due_first = explain_queue(replace(facts, next_due_at=NOW + 2 * SECOND), ACTIVE)
    assert due_first.next_deliverable_at == NOW + 2 * SECOND


def test_locks_of_redelivery_on_request_do_not_end_by_time() -> None:
    explanation = explain_queue(queue_facts(LOCKED), ON_REQUEST)
    assert (explanation.next_lock_end, explanation.next_deliverable_at) == (None, None)


def test_the_settlement_that_waits_for_the_first_deadline_comes_first() -> None:
    ended, later = (replace_struct(WAITING, expires_at=time) for time in (NOW, NOW + MINUTE))
    facts = replace(queue_facts(LOCKED), waiting=[later, ended, WAITING])
    assert explain_queue(facts, ACTIVE).waiting == [WAITING, later]


def test_receivers_with_an_id_are_counted_once() -> None:
    locks = [LOCKED, LOCKED, replace(LOCKED, receiver_id="worker-2"), replace(LOCKED, receiver_id=None)]
    assert explain_queue(queue_facts(*locks), ACTIVE).receivers == 2


@pytest.mark.parametrize(
    ("settings", "sends"),
    [
        (ACTIVE, SendAcceptance.ACCEPTED),
        (QueueSettings(max_messages=4), SendAcceptance.ACCEPTED),
        (QueueSettings(max_messages=3), SendAcceptance.FULL),
        (QueueSettings(max_messages=3, status=QueueStatus.SEND_DISABLED), SendAcceptance.DISABLED),
        (QueueSettings(status=QueueStatus.DISABLED), SendAcceptance.DISABLED),
        (PAUSED, SendAcceptance.ACCEPTED),
    ],
)
def test_a_queue_tells_whether_it_accepts_sends(settings: QueueSettings, sends: SendAcceptance) -> None:
    assert explain_queue(queue_facts(scheduled=1, deferred=1, dead_lettered=1), settings).sends is sends


# ---- messages whose sender waits ---------------------------------------------------------------------------------------


def test_an_offered_message_is_never_delivered_after_its_first_lock() -> None:
    locked = replace(LOCKED, expires_at=NOW + SECOND, is_offered=True)
    for reason, facts in (
        (MessageReason.LOCKED, locked),
        (MessageReason.LOCK_ENDED, replace(locked, locked_until=NOW)),
    ):
        explained = explain_message(facts, ACTIVE, DeliveryContext())
        assert (explained.reason, explained.next_state, explained.deliverable_at) == (reason, None, None)
        assert explained.expires_first is False


def test_an_offered_message_is_not_dead_lettered_when_its_sender_waits_no_longer() -> None:
    settings = QueueSettings(dead_letter_on_expiry=True)
    explained = explain_message(replace(OFFERED, expires_at=NOW), settings, DeliveryContext())
    assert (explained.reason, explained.next_state) == (MessageReason.TIME_TO_LIVE_ENDED, None)


def test_an_offered_message_can_be_received_while_its_sender_waits() -> None:
    explained = explain_message(OFFERED, ACTIVE, DeliveryContext())
    assert (explained.reason, explained.deliverable_at) == (MessageReason.NEXT, NOW)
