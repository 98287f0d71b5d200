"""What a transaction takes in, and what its commit carries out."""

from typing import Any

import pytest
from msgspec.structs import replace

from app.domain.instant import HOUR, MINUTE, SECOND, Instant
from app.domain.message import BodyKind, Draft, Envelope, MessageState
from app.domain.queue import Queue, QueueSettings
from app.domain.settlement import NO_EXPIRED_GENERATION, Fence, LockToken, Move, Outcome, Removal
from app.domain.transaction import (
    MAX_MEMBERS,
    MAX_TRANSACTION_BYTES,
    WITHIN_TRANSACTION,
    Rollback,
    SendMember,
    SettlementMember,
    Transaction,
    TransactionState,
    plan_commit,
    send_member,
    settlement_weight,
)
from app.domain.transaction_refusals import RollbackCause, TransactionFull, TransactionRolledBack
from app.domain.weight import MESSAGE_OVERHEAD_BYTES
from app.domain.work_unit import WorkUnit

NOW: Instant = HOUR
DRAFT = Draft(1, Envelope("id"), b"body", BodyKind.JSON)


def transaction(**fields: Any) -> Transaction:
    """An open transaction without members, read in the middle of its time."""
    opened = Transaction("t", TransactionState.OPEN, NOW, NOW + MINUTE, 0, 0, None, None, None, NOW + 30 * SECOND)
    return replace(opened, **fields)


def queue(**settings: Any) -> Queue:
    """The queue to which `DRAFT` is sent."""
    return Queue(1, "orders", QueueSettings(**settings), 1, NOW, NOW, 0, 0)


def committed(member: SendMember, now: Instant = NOW, **settings: Any) -> Draft:
    """Return the draft that a commit stores."""
    unit = plan_commit([member], {1: queue(**settings)}, now)
    assert isinstance(unit, WorkUnit)
    (draft,) = unit.drafts
    return draft


@pytest.mark.parametrize(("offset", "is_overdue"), [(-1, False), (0, True), (1, True)])
def test_a_transaction_is_overdue_from_its_deadline_on(offset: int, is_overdue: bool) -> None:
    opened = transaction(read_at=NOW + MINUTE + offset)
    assert opened.is_overdue is is_overdue
    if is_overdue:
        with pytest.raises(TransactionRolledBack) as refused:
            opened.check_joinable()
        assert refused.value.cause is RollbackCause.TIMEOUT
    else:
        opened.check_joinable()


def test_a_transaction_takes_members_up_to_its_limits() -> None:
    transaction(member_count=MAX_MEMBERS - 2).check_room([1, 1])
    transaction(member_bytes=MAX_TRANSACTION_BYTES - 3).check_room([1, 2])
    for full in (transaction(member_count=MAX_MEMBERS - 1), transaction(member_bytes=MAX_TRANSACTION_BYTES - 2)):
        with pytest.raises(TransactionFull):
            full.check_room([1, 2])


@pytest.mark.behaviour("S1.30")
def test_a_send_whose_life_has_ended_rolls_the_transaction_back() -> None:
    member = send_member(3, "orders", replace(DRAFT, ttl=MINUTE), NOW)
    assert committed(member, NOW + MINUTE - 1).ttl == 1
    assert plan_commit([member], {1: queue()}, NOW + MINUTE) == Rollback(RollbackCause.MESSAGE_EXPIRED, member.name)


def test_a_send_to_a_deleted_queue_rolls_the_transaction_back() -> None:
    member = send_member(0, "orders", DRAFT, NOW)
    assert plan_commit([member], {2: queue()}, NOW) == Rollback(RollbackCause.QUEUE_GONE, member.name)


@pytest.mark.parametrize(
    ("fields", "after", "available_at", "ttl"),
    [
        ({}, 0, None, None),
        ({"delay": MINUTE}, 0, NOW + MINUTE, None),
        ({"delay": MINUTE}, MINUTE - 1, NOW + MINUTE, None),
        ({"delay": MINUTE}, MINUTE, None, None),
        ({"available_at": NOW + MINUTE}, 0, NOW + MINUTE, None),
        ({"available_at": NOW - MINUTE}, 0, None, None),
        ({"ttl": MINUTE}, SECOND, None, MINUTE - SECOND),
        ({"delay": MINUTE, "ttl": MINUTE}, SECOND, NOW + MINUTE, MINUTE),
        ({"delay": MINUTE, "ttl": MINUTE}, MINUTE + SECOND, None, MINUTE - SECOND),
    ],
)
def test_due_time_and_life_count_from_the_join(
    fields: dict[str, Any], after: int, available_at: int | None, ttl: int | None
) -> None:
    member = send_member(0, "orders", replace(DRAFT, **fields), NOW)
    draft = committed(member, NOW + after)
    assert (draft.available_at, draft.delay, draft.ttl) == (available_at, None, ttl)


def test_a_committed_send_follows_the_settings_that_its_queue_has_now() -> None:
    member = send_member(0, "orders", replace(DRAFT, duplicate_window=HOUR, keeps_history=True, is_in_group=True), NOW)
    plain = committed(member)
    assert (plain.duplicate_window, plain.keeps_history, plain.is_in_group) == (0, False, False)
    grouped = send_member(0, "orders", replace(DRAFT, envelope=Envelope("id", group_id="a")), NOW)
    settings = {"group_in_flight": 1, "history": True, "duplicate_detection_window": MINUTE}
    changed = committed(grouped, **settings)
    assert (changed.duplicate_window, changed.keeps_history, changed.is_in_group) == (MINUTE, True, True)
    assert not committed(grouped).is_in_group
    assert not committed(member, **settings).is_in_group  # It has no group.


@pytest.mark.parametrize(
    ("queues", "keeps_history"), [({}, False), ({1: queue()}, False), ({1: queue(history=True)}, True)]
)
def test_a_committed_settlement_is_recorded_if_its_queue_keeps_a_history_now(
    queues: dict[int, Queue], keeps_history: bool
) -> None:
    removal = Removal(LockToken(7, b"s" * 16), 1, "orders", Outcome.COMPLETED, 0, fence=Fence(NO_EXPIRED_GENERATION, 3))
    unit = plan_commit([SettlementMember(0, "orders", removal)], queues, NOW)
    assert isinstance(unit, WorkUnit)
    assert unit.settlements == [
        replace(removal, fence=WITHIN_TRANSACTION, is_in_group=True, keeps_history=keeps_history)
    ]


def test_a_settlement_weighs_what_it_stores() -> None:
    move = Move(LockToken(7, b"s" * 16), 1, Outcome.ABANDONED, MessageState.AVAILABLE)
    assert settlement_weight(move) == MESSAGE_OVERHEAD_BYTES
    assert settlement_weight(replace(move, properties=b'{"a":1}')) == MESSAGE_OVERHEAD_BYTES + 7
