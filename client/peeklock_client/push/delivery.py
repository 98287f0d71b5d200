"""Delivers messages to a target: signs each request, keeps to the rate, and asks the circuit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from peeklock_client.push.answers import (
    Answer,
    Complete,
    DeadLetter,
    Decision,
    Fail,
    NotSent,
    Release,
    RetryLater,
    decision_of,
)
from peeklock_client.push.circuit import Circuit
from peeklock_client.push.errors import NotConnected, TargetFailed
from peeklock_client.push.headers import Headers
from peeklock_client.push.rate import Rate
from peeklock_client.push.signing import signatures
from peeklock_client.push.target import Target

Now = Callable[[], datetime]


def utc_now() -> datetime:
    """Return the time."""
    return datetime.now(UTC)


@dataclass(slots=True)
class PushCounts:
    """Counts of requests since the start of a worker, by what they meant. One request may carry a batch."""

    completed: int = 0
    retry_later: int = 0
    dead_lettered: int = 0
    failed: int = 0


class Delivery:
    """The requests to one target. `now` gives the time for signatures and for `Retry-After`."""

    def __init__(
        self, target: Target, secrets: Sequence[bytes], rate: Rate, circuit: Circuit, *, now: Now = utc_now
    ) -> None:
        self.counts = PushCounts()
        self.target = target
        self.circuit = circuit
        self._secrets = secrets
        self._rate = rate
        self._now = now

    async def deliver(self, request_id: str, headers: Headers, body: bytes) -> Decision:
        """Send a request once, and return what becomes of its messages. `NotSent` and `Release` say that nothing was sent."""
        await self._rate.wait()
        if not self.circuit.admit():
            self._rate.return_unused()
            return Release()
        try:
            decision = decision_of(await self._post(request_id, headers, body), self._now())
        except NotConnected as error:
            decision = NotSent(str(error))
        except TargetFailed as error:
            decision = Fail(error.reason, str(error))
        except Exception as error:
            # An unexpected error also counts for the circuit. Otherwise the next try would follow at once, again and again.
            self.circuit.note_failure(f"An unexpected error: {type(error).__name__}.")
            raise
        except BaseException:
            self.circuit.note_no_answer()
            raise
        self._note(decision)
        return decision

    async def _post(self, request_id: str, headers: Headers, body: bytes) -> Answer:
        timestamp = int(self._now().timestamp())
        signed = [
            (b"webhook-id", request_id.encode()),
            (b"webhook-timestamp", str(timestamp).encode()),
            (b"webhook-signature", signatures(self._secrets, request_id, timestamp, body).encode()),
        ]
        return await self.target.post([*signed, *headers], body)

    def _note(self, decision: Decision) -> None:
        """Count a decision. A message that the target rejects shows that the target works."""
        match decision:
            case Complete():
                self.counts.completed += 1
                self.circuit.note_success()
            case DeadLetter():
                self.counts.dead_lettered += 1
                self.circuit.note_success()
            case RetryLater():
                self.counts.retry_later += 1
                self.circuit.note_failure("The target asked for a pause.")
            case Fail(detail=detail) | NotSent(detail=detail):
                self.counts.failed += 1
                self.circuit.note_failure(detail)
            case Release():
                pass  # nothing was sent, so nothing is known about the target
