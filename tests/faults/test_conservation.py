"""The checker finds each kind of broken promise that is planted in a log, names the message, and finds nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tests.faults.conservation import Finding, Remnant, check
from tests.faults.journal import NOT_HEARD, Call, Journal, read

DIGEST = "d1"


@dataclass
class Story:
    """A clean run to be spoilt: message `m1` (number 1) was received, renewed and completed; `m2` waits; `m3` is in doubt."""

    calls: list[Call] = field(default_factory=list)
    remnants: list[Remnant] = field(default_factory=list)

    def tell(self, verb: str, at: float, status: int, answer: dict[str, Any] | None = None, **asked: Any) -> None:
        self.calls.append(Call(verb, at, asked, at + 0.1, status, answer or {}))

    def send(self, message_id: str, number: int, at: float) -> None:
        self.tell("send", at, 201, {"sequence_number": number}, message_id=message_id, digest=DIGEST)

    def deliver(
        self, message_id: str, number: int, at: float, secret: str, claimed: int = 1, digest: str = DIGEST
    ) -> None:
        message = {
            "message_id": message_id,
            "sequence_number": number,
            "digest": digest,
            "token": f"{number}.{secret}",
            "claimed": claimed,
            "remaining": 10.0,
        }
        self.tell("receive", at, 200, {"messages": [message]})

    def keep(self, number: int, message_id: str, state: str, token: str | None = None, digest: str = DIGEST) -> None:
        self.remnants.append(Remnant(number, message_id, digest, state, token))

    def findings(self) -> list[Finding]:
        return check(self.calls, self.remnants)


@pytest.fixture
def story() -> Story:
    story = Story()
    story.send("m1", 1, at=0)
    story.send("m2", 2, at=0)
    story.tell("send", 0, 503, message_id="m3", digest=DIGEST)
    story.deliver("m1", 1, at=1, secret="a")
    story.tell("renew", 2, 200, {"remaining": 10.0}, token="1.a")
    story.tell("complete", 3, NOT_HEARD, token="1.a")
    story.tell("complete", 4, 200, {"replayed": True}, token="1.a")
    story.keep(1, "m1", "completed", "1.a")
    story.keep(2, "m2", "available")
    return story


def test_a_clean_log_passes(story: Story) -> None:
    assert story.findings() == []


def test_a_send_in_doubt_may_have_been_stored(story: Story) -> None:
    story.keep(3, "m3", "available")
    assert story.findings() == []


def test_a_delivery_after_the_promise_is_no_fault(story: Story) -> None:
    story.deliver("m2", 2, at=5, secret="b")
    story.deliver("m2", 2, at=15, secret="c", claimed=2)
    assert story.findings() == []


def test_a_delivery_after_the_holder_gave_it_up_is_no_fault(story: Story) -> None:
    story.deliver("m2", 2, at=5, secret="b")
    story.tell("abandon", 6, NOT_HEARD, token="2.b")
    story.deliver("m2", 2, at=7, secret="c", claimed=2)
    story.tell("complete", 8, 410, token="2.b")
    assert story.findings() == []


def test_an_answer_that_arrives_late_is_no_redelivery(story: Story) -> None:
    story.deliver("m2", 2, at=5, secret="b")
    story.calls[-1] = replace(story.calls[-1], done=30)
    story.deliver("m2", 2, at=20, secret="c", claimed=2)
    assert story.findings() == []


def lose(story: Story) -> None:
    del story.remnants[1]


def lose_what_was_completed(story: Story) -> None:
    del story.remnants[0]


def undo(story: Story) -> None:
    story.remnants[0] = Remnant(1, "m1", DIGEST, "available")


def complete_by_somebody_else(story: Story) -> None:
    story.remnants[0] = Remnant(1, "m1", DIGEST, "completed", "1.b")


def deliver_a_phantom(story: Story) -> None:
    story.deliver("m9", 9, at=5, secret="b")


def keep_a_phantom(story: Story) -> None:
    story.keep(9, "m9", "available")


def store_twice(story: Story) -> None:
    story.keep(8, "m2", "available")


def deliver_twice(story: Story) -> None:
    story.deliver("m2", 2, at=5, secret="b")
    story.deliver("m2", 8, at=5, secret="c")


def leave_it_beside_its_archived_self(story: Story) -> None:
    story.remnants.insert(0, Remnant(1, "m1", DIGEST, "locked"))


def settle_one_delivery_in_two_ways(story: Story) -> None:
    story.tell("abandon", 5, 200, token="1.a")


def settle_two_deliveries(story: Story) -> None:
    story.deliver("m2", 2, at=5, secret="b")
    story.deliver("m2", 2, at=25, secret="c", claimed=2)
    story.tell("complete", 26, 200, token="2.b")
    story.tell("complete", 26, 200, token="2.c")
    story.remnants[1] = Remnant(2, "m2", DIGEST, "completed")


def deliver_what_was_completed(story: Story) -> None:
    story.deliver("m1", 1, at=5, secret="b", claimed=2)


def renew_what_was_completed(story: Story) -> None:
    story.tell("renew", 5, 200, {"remaining": 10.0}, token="1.a")


def redeliver_early(story: Story) -> None:
    story.deliver("m2", 2, at=5, secret="b")
    story.deliver("m2", 2, at=14, secret="c", claimed=2)


def redeliver_what_was_renewed(story: Story) -> None:
    story.deliver("m2", 2, at=5, secret="b")
    story.tell("renew", 14, 200, {"remaining": 10.0}, token="2.b")
    story.deliver("m2", 2, at=20, secret="c", claimed=2)


def lose_a_lock_early(story: Story) -> None:
    story.deliver("m2", 2, at=5, secret="b")
    story.tell("complete", 14, 410, token="2.b")


def fail_without_saying_whether_to_repeat(story: Story) -> None:
    story.deliver("m2", 2, at=5, secret="b")
    story.tell("complete", 6, 500, token="2.b")


def change_a_body(story: Story) -> None:
    story.deliver("m2", 2, at=5, secret="b", digest="d2")


def change_a_stored_body(story: Story) -> None:
    story.remnants[1] = Remnant(2, "m2", "d2", "available")


@pytest.mark.parametrize(
    ("spoil", "kind", "message_id"),
    [
        (lose, "lost", "m2"),
        (lose_what_was_completed, "lost", "m1"),
        (undo, "undone", "m1"),
        (complete_by_somebody_else, "undone", "m1"),
        (deliver_a_phantom, "phantom", "m9"),
        (keep_a_phantom, "phantom", "m9"),
        (store_twice, "duplicated", "m2"),
        (deliver_twice, "duplicated", "m2"),
        (leave_it_beside_its_archived_self, "in two places", "m1"),
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
def test_a_planted_fault_is_found(story: Story, spoil: Callable[[Story], None], kind: str, message_id: str) -> None:
    spoil(story)
    assert {(finding.kind, finding.message_id) for finding in story.findings()} == {(kind, message_id)}


def test_a_log_outlives_its_client(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "log")
    heard = journal.intend("send", message_id="m1", digest=DIGEST)
    journal.hear(heard, 201, {"sequence_number": 1})
    journal.intend("complete", token="1.a")
    journal.close()
    with (tmp_path / "log").open("a") as log:
        log.write(json.dumps({"call": 2, "verb": "send"})[:-5])  # the client died while it wrote
    sent, completed = read([tmp_path / "log"])
    assert (sent.is_acknowledged, sent.answer) == (True, {"sequence_number": 1})
    assert (completed.status, completed.may_have_effect) == (NOT_HEARD, True)
