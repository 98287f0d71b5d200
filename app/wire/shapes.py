"""What fields of requests and answers may hold: limits of the domain, said once for every shape that uses them."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from app.domain.expressions import CALLS, MOST_ADDITIONS, MOST_SYMBOLS
from app.domain.instant import to_seconds
from app.domain.message import (
    HIGHEST_PRIORITY,
    LARGEST_FILTER,
    LARGEST_RECEIVE,
    LONGEST_DESCRIPTION,
    LONGEST_ID,
    LONGEST_REASON,
    LONGEST_TEXT,
    LOWEST_PRIORITY,
    MOST_PROPERTIES,
    MessageState,
)
from app.domain.queue import LONGEST_LOCK, LONGEST_NAME, LONGEST_TTL, NAME, SHORTEST_LOCK
from app.domain.retry import LONGEST_DELAY

LARGEST_INT64 = 2**63 - 1
SMALLEST_INT64 = -(2**63)
LATEST = datetime(9000, 1, 1, tzinfo=UTC)
"""No due time lies beyond, so that a time to live added to it still has a name."""

THE_END: Final = r"(?![\s\S])"
"""What Python must be told for the `$` of JSON Schema, which does not also match before a last newline."""


def only(
    characters: str, description: str | None = None, *, min_length: int | None = None, max_length: int
) -> msgspec.Meta:
    """Text of these characters alone, within these lengths."""
    return msgspec.Meta(
        pattern=f"^{characters}*{THE_END}", min_length=min_length, max_length=max_length, description=description
    )


PRINTABLE = r"[^\x00-\x1f\x7f]"
ASCII = r"[\x20-\x7e]"
NO_NUL = r"[^\x00]"

QueueName: TypeAlias = Annotated[
    str, msgspec.Meta(pattern=f"^{NAME.pattern}{THE_END}", min_length=1, max_length=LONGEST_NAME)
]
Id: TypeAlias = Annotated[str, only(PRINTABLE, min_length=1, max_length=LONGEST_ID)]
HeaderText: TypeAlias = Annotated[str, only(PRINTABLE, max_length=LONGEST_TEXT)]
ContentType: TypeAlias = Annotated[
    str, only(ASCII, "The media type of the body.", min_length=1, max_length=LONGEST_TEXT)
]
Reason: TypeAlias = Annotated[
    str, only(NO_NUL, "A short word for machines, kept with the message.", min_length=1, max_length=LONGEST_REASON)
]
Description: TypeAlias = Annotated[
    str, only(NO_NUL, "A sentence for people, kept with the message.", max_length=LONGEST_DESCRIPTION)
]
Priority: TypeAlias = Annotated[
    int, msgspec.Meta(ge=LOWEST_PRIORITY, le=HIGHEST_PRIORITY, description="Higher is received first.")
]
Moment: TypeAlias = Annotated[datetime, msgspec.Meta(tz=True, extra_json_schema={"format": "date-time"})]
TtlSeconds: TypeAlias = Annotated[
    float,
    msgspec.Meta(ge=0.001, le=to_seconds(LONGEST_TTL), description="How long the message lives, from its due time."),
]
DelaySeconds: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=to_seconds(LONGEST_DELAY))]
LockSeconds: TypeAlias = Annotated[
    float, msgspec.Meta(ge=to_seconds(SHORTEST_LOCK), le=to_seconds(LONGEST_LOCK), description="How long a lock lasts.")
]
WaitSeconds: TypeAlias = Annotated[
    float, msgspec.Meta(ge=0, description="How long to wait for the first message; the server caps it.")
]
ReceiveCount: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=LARGEST_RECEIVE)]
SequenceNumber: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=LARGEST_INT64)]
HowMany: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=LARGEST_INT64, description="At most so many.")]
Filter: TypeAlias = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        description=f"""
            A CEL expression over `message`, of at most {LARGEST_FILTER} bytes. A filter knows these fields of it:
            `message_id`, `content_type`, `correlation_id`, `subject`, `reply_to`, `to`, `group_id`, `traceparent`,
            `sequence_number`, `state`, `priority`, `enqueued_at`, `available_at`, `expires_at`, `delivery_count`,
            `failure_count`, `redelivered`, `last_failure`, `dead_letter_reason`, `dead_letter_description`,
            `dead_lettered_at`, `body_bytes` and `properties`. Times are timestamps: `message.enqueued_at <
            timestamp('2030-01-01T00:00:00Z')`. A name that is missing, or a clash of types, is no match.

            A filter compares single values. It reads fields (`message.subject`), properties (`message.properties.region`,
            `message.properties['region']`), looks for a name (`'region' in message.properties`) or in a list of texts and
            numbers (`message.priority in [1, 2]`). It can call {", ".join(f"`{name}`" for name in sorted(CALLS))}.
            It has at most {MOST_ADDITIONS} additions and {MOST_SYMBOLS} operators, brackets and commas.
        """,
        extra_json_schema={"maxLength": LARGEST_FILTER},
    ),
]
"""Its bytes are counted where it is compiled: a schema can only count characters, of which there are never more."""
LockTokenText: TypeAlias = Annotated[
    str, msgspec.Meta(max_length=64, description="`<sequence_number>.<32 hexadecimal digits>`, as received.")
]

PropertyKey: TypeAlias = Annotated[str, only(NO_NUL, min_length=1, max_length=LONGEST_ID)]
PropertyNumber: TypeAlias = Annotated[int, msgspec.Meta(ge=SMALLEST_INT64, le=LARGEST_INT64)]
PropertyValue: TypeAlias = str | PropertyNumber | float | bool | None
Properties: TypeAlias = Annotated[
    dict[PropertyKey, PropertyValue],
    msgspec.Meta(max_length=MOST_PROPERTIES, description="The sender's own names, each with a scalar value."),
]

StateName: TypeAlias = Literal["available", "scheduled", "locked", "deferred", "dead_lettered"]
STATE_NAMES: Final[Mapping[MessageState, StateName]] = {
    MessageState.AVAILABLE: "available",
    MessageState.SCHEDULED: "scheduled",
    MessageState.LOCKED: "locked",
    MessageState.DEFERRED: "deferred",
    MessageState.DEAD_LETTERED: "dead_lettered",
}
AnyJson: TypeAlias = Annotated[msgspec.Raw, msgspec.Meta(description="Any JSON value; kept byte for byte.")]
Base64: TypeAlias = Annotated[str, msgspec.Meta(extra_json_schema={"contentEncoding": "base64"})]
Timestamp: TypeAlias = Annotated[str, msgspec.Meta(extra_json_schema={"format": "date-time"})]
"""A time as it is answered: RFC 3339 in UTC with microseconds."""


class Page(msgspec.Struct, forbid_unknown_fields=True):
    """Which part of a list: at most `limit` items after `cursor`, the `next_cursor` of the page before."""

    limit: Annotated[int, msgspec.Meta(ge=1, le=1000, description="Items on a page, at most.")] = 100
    cursor: Annotated[str, msgspec.Meta(max_length=256, description="`next_cursor` of the page before.")] | None = None
