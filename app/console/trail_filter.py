"""What a message has to do with an id."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from app.domain.message import Envelope, MessageMetadata

TRACE_ID = re.compile(r"(?:[0-9a-f]{2}-)?([0-9a-f]{32})(?:-[0-9a-f]{16}-[0-9a-f]{2})?", re.ASCII)
"""A trace id, alone or within a `traceparent` (W3C Trace Context)."""


class Relation(StrEnum):
    """What a message has to do with the id, as people read it."""

    IS_IT = "has this id"
    MADE_FROM_IT = "was made from it"
    CORRELATED = "names it as its correlation"
    OF_TRACE = "shares the trace"


@dataclass(frozen=True, slots=True)
class TrailFilter:
    """Selects the messages of a trail. `trace` is the id of a trace if the id that is wanted is, or has, one.

    `ids` has that id as it was given, and without spaces at its ends, which people copy with it.
    """

    ids: tuple[str, ...]
    trace: str | None

    async def select(self, messages: Sequence[MessageMetadata]) -> list[MessageMetadata]:
        """Return the messages that match, in the order given."""
        return [message for message in messages if self.relation(message.envelope) is not None]

    def relation(self, envelope: Envelope) -> Relation | None:
        """Return what a message has to do with the id, None if it has nothing."""
        if envelope.message_id in self.ids:
            return Relation.IS_IT
        if any(_is_made_from(one, envelope.message_id) for one in self.ids):
            return Relation.MADE_FROM_IT
        if envelope.headers.correlation_id in self.ids:
            return Relation.CORRELATED
        is_of_trace = self.trace is not None and self.trace in (envelope.headers.traceparent or "")
        return Relation.OF_TRACE if is_of_trace else None


def trail_filter(wanted: str) -> TrailFilter:
    """Return the filter for messages with this id, those that were made from it, their answers, and those of the trace."""
    ids = tuple({wanted, wanted.strip()})
    trace = TRACE_ID.fullmatch(wanted.strip())
    return TrailFilter(ids, trace[1] if trace else None)


def _is_made_from(origin: str, message_id: str) -> bool:
    """Return whether a commit made this id from another one: `queue/origin/0`, or `origin/0` by an older server."""
    return message_id.startswith(f"{origin}/") or f"/{origin}/" in message_id
