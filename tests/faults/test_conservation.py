"""The checker finds each kind of broken promise that is planted in a log, names the message, and finds nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.faults.history import RemainingMessage
from tests.faults.history_builder import DIGEST, HistoryBuilder, clean_history, kinds
from tests.faults.journal import NO_ANSWER, Journal, read


@pytest.fixture
def history() -> HistoryBuilder:
    return clean_history()


def test_a_clean_log_passes(history: HistoryBuilder) -> None:
    assert history.findings() == []


def add_group(history: HistoryBuilder, *, second_at: float) -> None:
    """Two messages of a group, the second of which was sent after the first and received at this time."""
    for message_id, number in (("g1", 7), ("g2", 8)):
        answer = {"sequence_number": number}
        history.add_call("send", number - 7.0, 201, answer, message_id=message_id, digest=DIGEST, group="g")
        history.add_remaining(number, message_id, "available")
    history.add_delivery("g1", 7, at=5, secret="a")
    history.add_delivery("g2", 8, at=second_at, secret="b")


def test_messages_of_a_group_that_follow_each_other_are_no_fault(history: HistoryBuilder) -> None:
    add_group(history, second_at=16)
    assert history.findings() == []


def test_two_messages_of_a_group_at_once_are_found(history: HistoryBuilder) -> None:
    add_group(history, second_at=6)
    assert kinds(history) == {("two of a group", "g1")}


def test_a_message_that_its_group_has_passed_is_found(history: HistoryBuilder) -> None:
    add_group(history, second_at=16)
    history.add_delivery("g1", 7, at=30, secret="c", claimed=2)
    assert kinds(history) == {("out of order", "g1")}


def test_a_send_in_doubt_may_have_been_stored(history: HistoryBuilder) -> None:
    history.add_remaining(3, "m3", "available")
    assert history.findings() == []


def test_a_body_of_a_refused_request_is_no_change(history: HistoryBuilder) -> None:
    """A receiver that comes too late sends other bytes under the id that the next receiver has sent already."""
    history.add_call("execute", 5, 410, message_id="m2", digest="of the late one", token="1.a")
    assert history.findings() == []


def test_an_early_redelivery_is_found_although_a_release_took_one_back(history: HistoryBuilder) -> None:
    history.add_delivery("m2", 2, at=5, secret="b")
    history.add_delivery("m2", 2, at=7, secret="c")
    assert kinds(history) == {("early redelivery", "m2")}


def test_a_delivery_after_a_release_is_no_fault(history: HistoryBuilder) -> None:
    history.add_delivery("m2", 2, at=5, secret="b")
    history.add_call("release", 6, NO_ANSWER, token="2.b")
    history.add_delivery("m2", 2, at=7, secret="c")
    history.add_call("release", 8, 200, token="2.b")
    assert history.findings() == []


def test_a_delivery_after_the_promise_is_no_fault(history: HistoryBuilder) -> None:
    history.add_delivery("m2", 2, at=5, secret="b")
    history.add_delivery("m2", 2, at=15, secret="c", claimed=2)
    assert history.findings() == []


def test_a_delivery_after_the_holder_gave_it_up_is_no_fault(history: HistoryBuilder) -> None:
    history.add_delivery("m2", 2, at=5, secret="b")
    history.add_call("abandon", 6, NO_ANSWER, token="2.b")
    history.add_delivery("m2", 2, at=7, secret="c", claimed=2)
    history.add_call("complete", 8, 410, token="2.b")
    assert history.findings() == []


def test_an_answer_that_arrives_late_is_no_redelivery(history: HistoryBuilder) -> None:
    history.add_delivery("m2", 2, at=5, secret="b")
    history.calls[-1] = replace(history.calls[-1], done=30)
    history.add_delivery("m2", 2, at=20, secret="c", claimed=2)
    assert history.findings() == []


def lose(history: HistoryBuilder) -> None:
    del history.remnants[1]


def lose_what_was_completed(history: HistoryBuilder) -> None:
    del history.remnants[0]


def undo(history: HistoryBuilder) -> None:
    history.remnants[0] = RemainingMessage(1, "m1", DIGEST, "available")


def complete_with_another_token(history: HistoryBuilder) -> None:
    history.remnants[0] = RemainingMessage(1, "m1", DIGEST, "completed", "1.b")


def deliver_a_phantom(history: HistoryBuilder) -> None:
    history.add_delivery("m9", 9, at=5, secret="b")


def keep_a_phantom(history: HistoryBuilder) -> None:
    history.add_remaining(9, "m9", "available")


def store_twice(history: HistoryBuilder) -> None:
    history.add_remaining(8, "m2", "available")


def deliver_twice(history: HistoryBuilder) -> None:
    history.add_delivery("m2", 2, at=5, secret="b")
    history.add_delivery("m2", 8, at=5, secret="c")


def keep_beside_archived_copy(history: HistoryBuilder) -> None:
    history.remnants.insert(0, RemainingMessage(1, "m1", DIGEST, "locked"))


def settle_one_delivery_in_two_ways(history: HistoryBuilder) -> None:
    history.add_call("abandon", 5, 200, token="1.a")


def settle_two_deliveries(history: HistoryBuilder) -> None:
    history.add_delivery("m2", 2, at=5, secret="b")
    history.add_delivery("m2", 2, at=25, secret="c", claimed=2)
    history.add_call("complete", 26, 200, token="2.b")
    history.add_call("complete", 26, 200, token="2.c")
    history.remnants[1] = RemainingMessage(2, "m2", DIGEST, "completed")


def deliver_what_was_completed(history: HistoryBuilder) -> None:
    history.add_delivery("m1", 1, at=5, secret="b", claimed=2)


def renew_what_was_completed(history: HistoryBuilder) -> None:
    history.add_call("renew", 5, 200, {"remaining": 10.0}, token="1.a")


def redeliver_early(history: HistoryBuilder) -> None:
    history.add_delivery("m2", 2, at=5, secret="b")
    history.add_delivery("m2", 2, at=14, secret="c", claimed=2)


def redeliver_what_was_renewed(history: HistoryBuilder) -> None:
    history.add_delivery("m2", 2, at=5, secret="b")
    history.add_call("renew", 14, 200, {"remaining": 10.0}, token="2.b")
    history.add_delivery("m2", 2, at=20, secret="c", claimed=2)


def lose_a_lock_early(history: HistoryBuilder) -> None:
    history.add_delivery("m2", 2, at=5, secret="b")
    history.add_call("complete", 14, 410, token="2.b")


def fail_without_saying_whether_to_repeat(history: HistoryBuilder) -> None:
    history.add_delivery("m2", 2, at=5, secret="b")
    history.add_call("complete", 6, 500, token="2.b")


def change_a_body(history: HistoryBuilder) -> None:
    history.add_delivery("m2", 2, at=5, secret="b", digest="d2")


def change_a_stored_body(history: HistoryBuilder) -> None:
    history.remnants[1] = RemainingMessage(2, "m2", "d2", "available")


@pytest.mark.parametrize(
    ("break_promise", "kind", "message_id"),
    [
        (lose, "lost", "m2"),
        (lose_what_was_completed, "lost", "m1"),
        (undo, "undone", "m1"),
        (complete_with_another_token, "undone", "m1"),
        (deliver_a_phantom, "phantom", "m9"),
        (keep_a_phantom, "phantom", "m9"),
        (store_twice, "duplicated", "m2"),
        (deliver_twice, "duplicated", "m2"),
        (keep_beside_archived_copy, "in two places", "m1"),
        (settle_one_delivery_in_two_ways, "two effects", "m1"),
        (settle_two_deliveries, "two effects", "m2"),
        (deliver_what_was_completed, "delivered after completion", "m1"),
        (renew_what_was_completed, "renewed after its end", "m1"),
        (redeliver_early, "early redelivery", "m2"),
        (redeliver_what_was_renewed, "early redelivery", "m2"),
        (lose_a_lock_early, "early loss", "m2"),
        (fail_without_saying_whether_to_repeat, "unclear failure", "m2"),
        (change_a_body, "changed body", "m2"),
        (change_a_stored_body, "changed body", "m2"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_a_planted_fault_is_found(
    history: HistoryBuilder, break_promise: Callable[[HistoryBuilder], None], kind: str, message_id: str
) -> None:
    break_promise(history)
    assert {(finding.kind, finding.message_id) for finding in history.findings()} == {(kind, message_id)}


def test_a_log_outlives_its_client(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "log")
    call = journal.record_request("send", message_id="m1", digest=DIGEST)
    journal.record_answer(call, 201, {"sequence_number": 1})
    journal.record_request("complete", token="1.a")
    journal.close()
    with (tmp_path / "log").open("a") as log:
        log.write(json.dumps({"call": 2, "verb": "send"})[:-5])  # the client died while it wrote
    sent, completed = read([tmp_path / "log"])
    assert (sent.is_acknowledged, sent.answer) == (True, {"sequence_number": 1})
    assert (completed.status, completed.may_have_effect) == (NO_ANSWER, True)
