"""Plans in the responses of requests with `dry_run`."""

from typing import Annotated, Any, TypeAlias

import msgspec

from app.domain.plan import MAX_SAMPLE_SIZE, MessageSummary, Plan
from app.wire.field_types import STATE_NAMES, Priority, StateName, Timestamp
from app.wire.times import to_wire

DryRun: TypeAlias = Annotated[
    bool, msgspec.Meta(description="Answer what the request would do now, and change nothing.")
]
SampleMessages: TypeAlias = Annotated[
    list["SampleMessage"], msgspec.Meta(description=f"The first of these messages, at most {MAX_SAMPLE_SIZE}.")
]


class SampleMessage(msgspec.Struct, omit_defaults=True):
    """A message in a sample; fields without a value are omitted."""

    sequence_number: int
    message_id: str
    state: StateName
    priority: Priority
    enqueued_at: Timestamp
    subject: str | None = None
    dead_letter_reason: str | None = None


class PlanView(msgspec.Struct, omit_defaults=True, kw_only=True):
    """What the request would do now; the answer has these fields only if the request has `dry_run`."""

    count: int | None = None
    bytes: int | None = None
    complete: bool | None = None
    sample: SampleMessages | None = None


def plan_fields(plan: Plan) -> dict[str, Any]:
    """Return the fields of a plan in its response."""
    return {
        "count": plan.count,
        "bytes": plan.bytes,
        "complete": plan.is_complete,
        "sample": [_sample_message(message) for message in plan.sample],
    }


def _sample_message(message: MessageSummary) -> SampleMessage:
    return SampleMessage(
        sequence_number=message.sequence_number,
        message_id=message.message_id,
        state=STATE_NAMES[message.state],
        priority=message.priority,
        enqueued_at=to_wire(message.enqueued_at),
        subject=message.subject,
        dead_letter_reason=message.dead_letter_reason,
    )
