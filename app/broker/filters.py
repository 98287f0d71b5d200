"""Filters: one CEL expression over `message`, the same everywhere a caller may choose messages.

`message` has the fields that receivers see (`message_id`, `subject`, `priority`, `state`, ...), its times as
CEL's timestamps, and `properties`. A missing name, a clash of types or a division by zero is no error but no match.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import cache
from types import ModuleType
from typing import Any, Protocol

import msgspec

from app.domain.delivery import is_redelivered
from app.domain.instant import Instant
from app.domain.message import LARGEST_FILTER, Outline
from app.domain.refusals import Fault, InvalidRequest

MACROS = re.compile(r"\b(all|exists|exists_one|existsOne|map|filter)\b")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LARGE_SCAN = 50
LARGE_PROPERTIES = 64 << 10
"""Above this number of messages or bytes the evaluation leaves the event loop (about 10 µs a message)."""

EVALUATION = ThreadPoolExecutor(1, "filters")
"""One thread for all large evaluations of a process: more would only take the interpreter from the event loop."""


class Filter(Protocol):
    """Chooses among messages, without looking at their bodies."""

    async def select(self, messages: Sequence[Outline]) -> list[Outline]:
        """Those that match, in the order given."""
        ...


class CelFilter:
    """A compiled CEL expression; refuses with `InvalidRequest` what cannot be one, or costs too much.

    The evaluation has no limit of its own. So macros, which go through lists, are refused; and so is `matches`, which
    would read its pattern anew for every message, for up to a third of a second each.
    """

    def __init__(self, source: str, pointer: str = "/filter") -> None:
        if len(source.encode()) > LARGEST_FILTER:
            raise _fault(pointer, f"A filter has at most {LARGEST_FILTER} bytes.")
        self._source = source
        try:
            self._program = _cel().compile(source)
        except ValueError as error:
            raise _fault(pointer, f"This is no CEL expression: {error}") from error
        if _uses_macros(source):
            raise _fault(pointer, "A filter cannot use macros (all, exists, exists_one, map, filter).")
        if "matches" in self._program.functions():
            raise _fault(pointer, "A filter cannot use matches; there are startsWith, endsWith and contains.")
        if strangers := set(self._program.variables()) - {"message"}:
            raise _fault(pointer, f"A filter knows only the name message, not {', '.join(sorted(strangers))}.")

    async def select(self, messages: Sequence[Outline]) -> list[Outline]:
        """Those that match, in the order given; a large scan runs beside the event loop."""
        if len(messages) < LARGE_SCAN and sum(len(one.envelope.properties) for one in messages) < LARGE_PROPERTIES:
            return self._matching(messages)
        return await asyncio.get_running_loop().run_in_executor(EVALUATION, self._matching, messages)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CelFilter) and other._source == self._source

    def __hash__(self) -> int:
        return hash(self._source)

    def _matching(self, messages: Sequence[Outline]) -> list[Outline]:
        return [message for message in messages if self._matches(message)]

    def _matches(self, message: Outline) -> bool:
        context = _cel().Context(variables={"message": _view(message)})
        try:
            return self._program.execute(context) is True
        except (ArithmeticError, LookupError, TypeError, ValueError, RuntimeError):
            return False


class Everything:
    """The filter of a caller who gave none."""

    async def select(self, messages: Sequence[Outline]) -> list[Outline]:
        """All of them."""
        return list(messages)


def _uses_macros(source: str) -> bool:
    """Whether a macro is called, by the judgement of the parser, which alone knows texts and comments from calls.

    It replaces macros by what they stand for, so it is shown the expression with names that it takes for functions.
    """
    renamed = _cel().compile(MACROS.sub(r"\1_macro", source))
    return any(name.endswith("_macro") for name in renamed.functions())


@cache
def _cel() -> ModuleType:
    """The library of the expressions, from the first filter on."""
    import cel  # noqa: PLC0415  # it brings a whole terminal along, 8 MiB that a server without filters is spared

    return cel


def _view(message: Outline) -> Mapping[str, Any]:
    envelope = message.envelope
    return {
        "message_id": envelope.message_id,
        "content_type": envelope.content_type,
        "correlation_id": envelope.correlation_id,
        "subject": envelope.subject,
        "reply_to": envelope.reply_to,
        "to": envelope.to,
        "group_id": envelope.group_id,
        "traceparent": envelope.traceparent,
        "sequence_number": message.sequence_number,
        "state": message.state.label,
        "priority": message.priority,
        "enqueued_at": _moment(message.enqueued_at),
        "available_at": _moment(message.available_at),
        "expires_at": _moment(message.expires_at),
        "delivery_count": message.delivery_count,
        "failure_count": message.failure_count,
        "redelivered": is_redelivered(message),
        "last_failure": message.last_failure,
        "dead_letter_reason": message.dead_letter_reason,
        "dead_letter_description": message.dead_letter_description,
        "dead_lettered_at": _moment(message.dead_lettered_at),
        "body_bytes": message.body_bytes,
        "properties": msgspec.json.decode(envelope.properties) if envelope.properties else {},
    }


def _moment(instant: Instant | None) -> datetime | None:
    """What the library takes for a timestamp."""
    return None if instant is None else EPOCH + timedelta(microseconds=instant)


def _fault(pointer: str, detail: str) -> InvalidRequest:
    return InvalidRequest(faults=[Fault(pointer, detail)])
