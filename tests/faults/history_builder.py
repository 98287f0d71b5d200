"""Logs of clients and remaining messages, built by hand to test the checker."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.faults.conservation import check
from tests.faults.history import Finding, RemainingMessage, RemainingVersion
from tests.faults.journal import NO_ANSWER, RecordedCall

DIGEST = "d1"


@dataclass
class HistoryBuilder:
    """A clean run to be spoilt: message `m1` (number 1) was received, renewed and completed; `m2` waits; `m3` is in doubt."""

    calls: list[RecordedCall] = field(default_factory=list)
    remnants: list[RemainingMessage] = field(default_factory=list)
    versions: list[RemainingVersion] = field(default_factory=list)

    def add_call(self, verb: str, at: float, status: int, answer: dict[str, Any] | None = None, **asked: Any) -> None:
        self.calls.append(RecordedCall(verb, at, asked, at + 0.1, status, answer or {}))

    def add_send(self, message_id: str, number: int, at: float) -> None:
        self.add_call("send", at, 201, {"sequence_number": number}, message_id=message_id, digest=DIGEST)

    def add_delivery(
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
        self.add_call("receive", at, 200, {"messages": [message]})

    def add_remaining(
        self, number: int, message_id: str, state: str, token: str | None = None, digest: str = DIGEST
    ) -> None:
        self.remnants.append(RemainingMessage(number, message_id, digest, state, token))

    def findings(self) -> list[Finding]:
        return check(self.calls, self.remnants, self.versions)


def clean_history() -> HistoryBuilder:
    """Return a clean run."""
    history = HistoryBuilder()
    history.add_send("m1", 1, at=0)
    history.add_send("m2", 2, at=0)
    history.add_call("send", 0, 503, message_id="m3", digest=DIGEST)
    history.add_delivery("m1", 1, at=1, secret="a")
    history.add_call("renew", 2, 200, {"remaining": 10.0}, token="1.a")
    history.add_call("complete", 3, NO_ANSWER, token="1.a")
    history.add_call("complete", 4, 200, {"replayed": True}, token="1.a")
    history.add_remaining(1, "m1", "completed", "1.a")
    history.add_remaining(2, "m2", "available")
    return history


def kinds(history: HistoryBuilder) -> set[tuple[str, str]]:
    """The kind of each finding, and its message."""
    return {(finding.kind, finding.message_id) for finding in history.findings()}
