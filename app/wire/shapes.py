"""What fields of requests may hold: limits of the domain, said once for every shape that uses them."""

from datetime import datetime
from typing import Annotated, TypeAlias

import msgspec

from app.domain.instant import to_seconds
from app.domain.message import (
    HIGHEST_PRIORITY,
    LARGEST_RECEIVE,
    LONGEST_DESCRIPTION,
    LONGEST_ID,
    LONGEST_REASON,
    LONGEST_TEXT,
    LOWEST_PRIORITY,
    MOST_PROPERTIES,
)
from app.domain.queue import LONGEST_LOCK, LONGEST_TTL, SHORTEST_LOCK
from app.domain.retry import LONGEST_DELAY

NO_CONTROLS = r"^[^\x00-\x1f\x7f]*$"
NO_NUL = r"^[^\x00]*$"

Id: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_ID, pattern=NO_CONTROLS)]
HeaderText: TypeAlias = Annotated[str, msgspec.Meta(max_length=LONGEST_TEXT, pattern=NO_CONTROLS)]
Reason: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_REASON, pattern=NO_NUL)]
Description: TypeAlias = Annotated[str, msgspec.Meta(max_length=LONGEST_DESCRIPTION, pattern=NO_NUL)]
Priority: TypeAlias = Annotated[int, msgspec.Meta(ge=LOWEST_PRIORITY, le=HIGHEST_PRIORITY)]
Moment: TypeAlias = Annotated[datetime, msgspec.Meta(tz=True)]
TtlSeconds: TypeAlias = Annotated[float, msgspec.Meta(gt=0, le=to_seconds(LONGEST_TTL))]
DelaySeconds: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=to_seconds(LONGEST_DELAY))]
LockSeconds: TypeAlias = Annotated[float, msgspec.Meta(ge=to_seconds(SHORTEST_LOCK), le=to_seconds(LONGEST_LOCK))]
WaitSeconds: TypeAlias = Annotated[float, msgspec.Meta(ge=0)]
ReceiveCount: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=LARGEST_RECEIVE)]
SequenceNumber: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
Filter: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=1024, description="A CEL expression over `message`.")]
LockTokenText: TypeAlias = Annotated[str, msgspec.Meta(max_length=64, description="`<sequence_number>.<32 hex digits>`")]

PropertyKey: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_ID)]
Properties: TypeAlias = Annotated[
    dict[PropertyKey, str | int | float | bool | None],
    msgspec.Meta(max_length=MOST_PROPERTIES, description="The sender's own names and scalar values."),
]
