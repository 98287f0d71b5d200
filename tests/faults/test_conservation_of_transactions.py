"""The checker finds a transaction or a commit of which only a part took effect, and versions that are not one per message."""

from __future__ import annotations

import pytest

from tests.faults.history import RemainingMessage, RemainingVersion
from tests.faults.history_builder import DIGEST, HistoryBuilder, clean_history, kinds
from tests.faults.journal import NO_ANSWER


@pytest.fixture
def history() -> HistoryBuilder:
    return clean_history()


def add_execution(history: HistoryBuilder, status: int) -> None:
    """Message `m2` is received, and completed together with the send of `m2-next`."""
    history.add_delivery("m2", 2, at=5, secret="b")
    answer = {"sequence_number": 9} if status == 200 else {}
    history.add_call("execute", 6, status, answer, token="2.b", message_id="m2-next", digest=DIGEST)


@pytest.mark.parametrize("status", [200, NO_ANSWER, 503])
def test_both_parts_of_a_transaction_are_no_fault(history: HistoryBuilder, status: int) -> None:
    add_execution(history, status)
    history.remnants[1] = RemainingMessage(2, "m2", DIGEST, "completed", "2.b")
    history.add_remaining(9, "m2-next", "available")
    assert history.findings() == []


@pytest.mark.parametrize("status", [NO_ANSWER, 403])
def test_no_part_of_a_transaction_is_no_fault_unless_it_was_acknowledged(history: HistoryBuilder, status: int) -> None:
    add_execution(history, status)
    assert history.findings() == []


def test_a_transaction_without_its_send_is_found(history: HistoryBuilder) -> None:
    add_execution(history, NO_ANSWER)
    history.remnants[1] = RemainingMessage(2, "m2", DIGEST, "completed", "2.b")
    assert kinds(history) == {("half of a transaction", "m2-next")}


def test_a_transaction_without_its_completion_is_found(history: HistoryBuilder) -> None:
    add_execution(history, NO_ANSWER)
    history.add_remaining(9, "m2-next", "available")
    assert kinds(history) == {("half of a transaction", "m2-next")}


def add_commit(history: HistoryBuilder, status: int) -> None:
    """Message `m2` is received, and committed with the send of `m2-next` and version 1 of a state."""
    history.add_delivery("m2", 2, at=5, secret="b")
    answer = {"sequence_number": 9, "version": 1} if status == 200 else {}
    history.add_call("execute", 6, status, answer, token="2.b", message_id="m2-next", digest=DIGEST, state="s")
    history.remnants[1] = RemainingMessage(2, "m2", DIGEST, "completed", "2.b")
    history.add_remaining(9, "m2-next", "available")
    history.versions.append(RemainingVersion("s", 1, "m2"))


@pytest.mark.parametrize("status", [200, NO_ANSWER, 503])
def test_all_parts_of_a_commit_are_no_fault(history: HistoryBuilder, status: int) -> None:
    add_commit(history, status)
    assert history.findings() == []


def test_a_commit_without_its_version_is_found(history: HistoryBuilder) -> None:
    add_commit(history, NO_ANSWER)
    history.versions.clear()
    assert kinds(history) == {("half of a commit", "m2")}


def test_a_version_without_its_commit_is_found(history: HistoryBuilder) -> None:
    add_commit(history, NO_ANSWER)
    history.remnants[1] = RemainingMessage(2, "m2", DIGEST, "available")
    del history.remnants[2]
    assert kinds(history) == {("half of a commit", "m2")}


def test_another_version_than_the_acknowledged_one_is_found(history: HistoryBuilder) -> None:
    add_commit(history, 200)
    history.versions[0] = RemainingVersion("s", 2, "m2")
    assert kinds(history) == {("lost version", "m2"), ("repeated version", "m2")}


def test_two_versions_of_one_message_are_found(history: HistoryBuilder) -> None:
    add_commit(history, NO_ANSWER)
    history.versions.append(RemainingVersion("s", 2, "m2"))
    assert kinds(history) == {("repeated version", "m2")}


def test_a_copy_of_a_publish_is_no_phantom(history: HistoryBuilder) -> None:
    history.add_call("publish", 5, 201, message_id="m4", digest=DIGEST)
    history.add_remaining(4, "m4", "available")
    assert history.findings() == []
