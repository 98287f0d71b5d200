"""What becomes of a message after the answer of its target.

2xx                  completed
429, 503             delivered again after the delay of Retry-After; not counted as a failure
409, 410, 422        dead-lettered, with the reason of a problem document (RFC 9457)
anything else        a failure: the retry policy of the queue decides
no connection        returned uncounted: the target has not seen the message, so the message cannot be the cause
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import msgspec

MAX_REASON, MAX_DESCRIPTION = 128, 4096
"""The longest texts that the server stores with a dead-lettered message."""

DEFAULT_DELAY_SECONDS = 5.0
"""The delay after 429 or 503 without a valid Retry-After, so that the same message does not come back at once."""

MAX_DELAY_SECONDS = 7 * 86400.0
"""The longest delay that the server accepts."""

LATER = (429, 503)
REJECTED = (409, 410, 422)
PROBLEM_TYPE = "application/problem+json"


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a target. `content` is empty if it is too long or was not read."""

    status: int
    content_type: str = ""
    retry_after: str = ""
    content: bytes = b""


@dataclass(frozen=True, slots=True)
class Complete:
    """The target has processed the message."""


@dataclass(frozen=True, slots=True)
class RetryLater:
    """The target wants the message later."""

    delay_seconds: float


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """The target will never accept the message."""

    reason: str
    description: str


@dataclass(frozen=True, slots=True)
class Fail:
    """The target has failed. `reason` is stored with the message."""

    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class NotSent:
    """The message was not sent, because no connection was made. `detail` says why."""

    detail: str


@dataclass(frozen=True, slots=True)
class Release:
    """The message was not sent, because the circuit is open."""


Decision = Complete | RetryLater | DeadLetter | Fail | NotSent | Release


class Problem(msgspec.Struct):
    """The members of a problem document that are stored with a message."""

    title: str | None = None
    detail: str | None = None


def decision_of(answer: Answer, now: datetime) -> Decision:
    """Return what an answer that came at this time means for its messages."""
    if 200 <= answer.status < 300:
        return Complete()
    if answer.status in LATER:
        return RetryLater(delay_of(answer.retry_after, now))
    if answer.status in REJECTED:
        return _rejection(answer)
    return Fail(f"http_{answer.status}", f"The target answered {answer.status}.")


def delay_of(retry_after: str, now: datetime) -> float:
    """Return the seconds that a `Retry-After` of seconds or of an HTTP date asks for, within what the server accepts."""
    text = retry_after.strip()
    if text.isascii() and text.isdecimal():
        # A number of many digits is longer than any delay, and may be too long for Python to read.
        return min(float(text), MAX_DELAY_SECONDS)
    try:
        date = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return DEFAULT_DELAY_SECONDS
    due = date if date.tzinfo is not None else date.replace(tzinfo=UTC)
    return min(max(0.0, (due - now).total_seconds()), MAX_DELAY_SECONDS)


def _rejection(answer: Answer) -> DeadLetter:
    problem = _problem(answer)
    reason = _storable(problem.title)[:MAX_REASON] or f"http_{answer.status}"
    description = _storable(problem.detail)[:MAX_DESCRIPTION] or f"The target answered {answer.status}."
    return DeadLetter(reason, description)


def _problem(answer: Answer) -> Problem:
    """Return the problem document of an answer, an empty one if it has none that can be read."""
    if answer.content_type.partition(";")[0].strip().lower() != PROBLEM_TYPE:
        return Problem()
    try:
        return msgspec.json.decode(answer.content, type=Problem)
    except (msgspec.DecodeError, ValueError, RecursionError):  # the last one for members that are nested too deeply
        return Problem()


def _storable(text: str | None) -> str:
    return (text or "").replace("\0", "").encode(errors="replace").decode().strip()
