"""Types of fields in requests and responses: the limits of the domain, defined once for every struct."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from app.domain.filter_expression import ALLOWED_FUNCTIONS, MAX_ADDITIONS, MAX_SYMBOLS
from app.domain.instant import to_seconds
from app.domain.message import (
    MAX_DESCRIPTION_LENGTH,
    MAX_FILTER_BYTES,
    MAX_ID_LENGTH,
    MAX_PRIORITY,
    MAX_PROPERTIES,
    MAX_REASON_LENGTH,
    MAX_RECEIVE_COUNT,
    MAX_TEXT_LENGTH,
    MIN_PRIORITY,
    SENDER_TEXTS,
    MessageState,
)
from app.domain.queue import MAX_LOCK_DURATION, MAX_NAME_LENGTH, MAX_TTL, MIN_LOCK_DURATION, NAME_PATTERN
from app.domain.retry import MAX_DELAY

MAX_INT64 = 2**63 - 1
MIN_INT64 = -(2**63)
MAX_DUE_TIME = datetime(9000, 1, 1, tzinfo=UTC)
"""The latest due time. A time to live added to it is still a valid datetime."""

END_OF_TEXT: Final = r"(?![\s\S])"
"""Python's form of `$` in JSON Schema, which does not match before a final newline."""


def text_of(
    characters: str, description: str | None = None, *, min_length: int | None = None, max_length: int
) -> msgspec.Meta:
    """Return the constraint for text of only these characters, within these lengths."""
    return msgspec.Meta(
        pattern=f"^{characters}*{END_OF_TEXT}", min_length=min_length, max_length=max_length, description=description
    )


PRINTABLE = r"[^\x00-\x1f\x7f]"
ASCII = r"[\x20-\x7e]"
NO_NUL = r"[^\x00]"

QueueName: TypeAlias = Annotated[
    str, msgspec.Meta(pattern=f"^{NAME_PATTERN.pattern}{END_OF_TEXT}", min_length=1, max_length=MAX_NAME_LENGTH)
]
Id: TypeAlias = Annotated[str, text_of(PRINTABLE, min_length=1, max_length=MAX_ID_LENGTH)]
HeaderText: TypeAlias = Annotated[str, text_of(PRINTABLE, max_length=MAX_TEXT_LENGTH)]
TRACEPARENT_PATTERN: Final = "[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}"
Traceparent: TypeAlias = Annotated[
    str,
    msgspec.Meta(
        pattern=f"^{TRACEPARENT_PATTERN}{END_OF_TEXT}",
        description="The W3C trace context of the message. Without it, the message gets that of the request.",
    ),
]
ContentType: TypeAlias = Annotated[
    str, text_of(ASCII, "The media type of the body.", min_length=1, max_length=MAX_TEXT_LENGTH)
]
Reason: TypeAlias = Annotated[
    str,
    text_of(
        NO_NUL, "A short machine-readable word, kept with the message.", min_length=1, max_length=MAX_REASON_LENGTH
    ),
]
Description: TypeAlias = Annotated[
    str, text_of(NO_NUL, "A human-readable sentence, kept with the message.", max_length=MAX_DESCRIPTION_LENGTH)
]
Priority: TypeAlias = Annotated[
    int, msgspec.Meta(ge=MIN_PRIORITY, le=MAX_PRIORITY, description="Higher is received first.")
]
DateTime: TypeAlias = Annotated[datetime, msgspec.Meta(tz=True, extra_json_schema={"format": "date-time"})]
TtlSeconds: TypeAlias = Annotated[
    float,
    msgspec.Meta(ge=0.001, le=to_seconds(MAX_TTL), description="How long the message lives, from its due time."),
]
DelaySeconds: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=to_seconds(MAX_DELAY))]
LockSeconds: TypeAlias = Annotated[
    float,
    msgspec.Meta(
        ge=to_seconds(MIN_LOCK_DURATION), le=to_seconds(MAX_LOCK_DURATION), description="How long a lock lasts."
    ),
]
WaitSeconds: TypeAlias = Annotated[
    float, msgspec.Meta(ge=0, description="How long to wait for the first message; the server caps it.")
]
ReceiveCount: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=MAX_RECEIVE_COUNT)]
SequenceNumber: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=MAX_INT64)]
MaxMessages: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=MAX_INT64, description="The largest number of messages.")]
Filter: TypeAlias = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        description=f"""
            A CEL expression over `message`, of at most {MAX_FILTER_BYTES} bytes. A filter can read these fields:
            {", ".join(f"`{name}`" for name in SENDER_TEXTS)},
            `sequence_number`, `state`, `priority`, `enqueued_at`, `available_at`, `expires_at`,
            `first_delivered_at`, `delivery_count`, `failure_count`, `redelivered`, `last_failure`,
            `dead_letter_reason`, `dead_letter_description`, `dead_lettered_at`, `body_bytes` and `properties`.
            Times are timestamps: `message.enqueued_at < timestamp('2030-01-01T00:00:00Z')`. A missing value or a
            type mismatch does not match.

            A filter compares single values. It reads fields (`message.subject`) and properties
            (`message.properties.region`, `message.properties['region']`). It tests for a name (`'region' in
            message.properties`) or for a value in a list of texts and numbers (`message.priority in [1, 2]`).
            It can call {", ".join(f"`{name}`" for name in sorted(ALLOWED_FUNCTIONS))}.
            It has at most {MAX_ADDITIONS} additions and {MAX_SYMBOLS} operators, brackets and commas.

            Only the filter of a subscription reads members of a body that is a JSON object (`message.body.order.total`,
            `message.body['order']`). Their names count like operators.
        """,
        extra_json_schema={"maxLength": MAX_FILTER_BYTES},
    ),
]
"""The bytes of a filter are counted when it is compiled. A schema can only count characters, which are never more."""
LockTokenText: TypeAlias = Annotated[
    str, msgspec.Meta(max_length=64, description="`<sequence_number>.<32 hexadecimal digits>`, as received.")
]

TransactionId: TypeAlias = Annotated[
    str,
    text_of(
        PRINTABLE,
        "An open transaction: this takes effect with its commit, or not at all.",
        min_length=1,
        max_length=MAX_ID_LENGTH,
    ),
]

PropertyKey: TypeAlias = Annotated[str, text_of(NO_NUL, min_length=1, max_length=MAX_ID_LENGTH)]
PropertyNumber: TypeAlias = Annotated[int, msgspec.Meta(ge=MIN_INT64, le=MAX_INT64)]
PropertyValue: TypeAlias = str | PropertyNumber | float | bool | None
Properties: TypeAlias = Annotated[
    dict[PropertyKey, PropertyValue],
    msgspec.Meta(
        max_length=MAX_PROPERTIES,
        description="Names chosen by the sender, each with a text, a number, true, false or null. Integers have 64 bits.",
    ),
]

StateName: TypeAlias = Literal["available", "scheduled", "locked", "deferred", "dead_lettered", "blocked"]
SentState: TypeAlias = Literal[
    "available", "scheduled", "locked", "deferred", "dead_lettered", "blocked", "uncommitted", "ended"
]
"""The state of a message that was sent; `uncommitted` until its transaction is committed. A duplicate may have `ended`."""
ViewedState: TypeAlias = Literal[StateName, "ended"]
"""The state of a message, or `ended` if it has left its queue."""
STATE_NAMES: Final[Mapping[MessageState, StateName]] = {
    MessageState.BLOCKED: "blocked",
    MessageState.AVAILABLE: "available",
    MessageState.SCHEDULED: "scheduled",
    MessageState.LOCKED: "locked",
    MessageState.DEFERRED: "deferred",
    MessageState.DEAD_LETTERED: "dead_lettered",
}
LockStoreState: TypeAlias = Annotated[str, msgspec.Meta(extra_json_schema={"enum": ["ok", "degraded", "none"]})]
AnyJson: TypeAlias = Annotated[msgspec.Raw, msgspec.Meta(description="Any JSON value; kept byte for byte.")]
Base64: TypeAlias = Annotated[str, msgspec.Meta(extra_json_schema={"contentEncoding": "base64"})]
Timestamp: TypeAlias = Annotated[str, msgspec.Meta(extra_json_schema={"format": "date-time"})]
"""A time in a response: RFC 3339 in UTC with microseconds."""


class Page(msgspec.Struct, forbid_unknown_fields=True):
    """A part of a list: at most `limit` items after `cursor`, the `next_cursor` of the previous page."""

    limit: Annotated[int, msgspec.Meta(ge=1, le=1000, description="The largest number of items on a page.")] = 100
    cursor: Annotated[str, msgspec.Meta(max_length=256, description="`next_cursor` of the previous page.")] | None = (
        None
    )
