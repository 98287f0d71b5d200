"""Requests and results of random histories in short forms: what a rule sends, and what it compares."""

import hashlib

from app.broker.filtering.filters import CelFilter
from app.broker.ports.attempts import Attempt
from app.domain.instant import MINUTE, Duration
from app.domain.message import Message, Receipt
from app.domain.refusals import AlreadySettled, Refusal
from app.domain.settlement import LockToken, Settled

TIME_UNIT: Duration = 20 * MINUTE
"""All times of a history are multiples of this unit. A server's own clock moves far less during a history."""
ATTEMPT_RETENTION = 35 * TIME_UNIT


def in_time_units(count: int | None) -> Duration | None:
    """Return the duration of this many time units, None for None."""
    return None if count is None else count * TIME_UNIT


def attempt(verb: str, key: object, payload: object) -> Attempt:
    """Return the attempt of a verb with this key and payload."""
    key_digest, payload_digest = (hashlib.sha256(repr(value).encode()).digest() for value in ((verb, key), payload))
    return Attempt(key_digest, payload_digest, ATTEMPT_RETENTION)


def at_least(lowest_priority: int) -> CelFilter:
    """Return a filter that matches messages of at least this priority."""
    return CelFilter(f"message.priority >= {lowest_priority}")


def if_match(is_stale: bool) -> set[str] | None:
    """Return the ETags of a request: none, or one that no message has."""
    return {"a stale etag"} if is_stale else None


def token_text(message: Message) -> str:
    """Return the lock token of a received message as its receiver sees it."""
    return str(LockToken(message.sequence_number, message.lock_token or b""))


def result_code(answer: Receipt | Settled | Refusal) -> str:
    """Return a result as the model writes it."""
    match answer:
        case Settled(replayed=True):
            return f"{answer.outcome} replayed"
        case Settled():
            return answer.outcome
        case AlreadySettled():
            return f"already {answer.outcome}"
        case Refusal():
            return answer.code
        case _:
            return "stored"
