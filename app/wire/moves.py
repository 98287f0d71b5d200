"""Move tasks in requests and responses."""

from typing import Annotated, Literal, TypeAlias

import msgspec

from app.domain.move_task import MoveState, MoveTask
from app.wire.field_types import QueueName, Timestamp
from app.wire.plans import DryRun, PlanView
from app.wire.times import maybe_to_wire, to_wire

MoveStateName: TypeAlias = Literal["running", "completed", "cancelled", "failed"]
STATE_NAMES: dict[MoveState, MoveStateName] = {
    MoveState.RUNNING: "running",
    MoveState.COMPLETED: "completed",
    MoveState.CANCELLED: "cancelled",
    MoveState.FAILED: "failed",
}
MoveRate: TypeAlias = Annotated[
    float,
    msgspec.Meta(
        ge=0.001, le=1_000_000, description="The largest number of messages per second, of all servers together."
    ),
]


class StartMove(msgspec.Struct, forbid_unknown_fields=True):
    """The queue to which messages move (default: dead letters go back to the queues that dead-lettered them), and how fast."""

    to_queue: QueueName | None = None
    rate_per_second: MoveRate | None = None
    dry_run: DryRun = False


class CancelMove(msgspec.Struct, forbid_unknown_fields=True):
    """The parameters of a cancellation: none."""


class MoveView(msgspec.Struct, kw_only=True):
    """A move task."""

    id: str
    state: MoveStateName
    to_queue: str | None
    rate_per_second: float | None
    found: int
    moved: int
    started_at: Timestamp
    ended_at: Timestamp | None
    reason: str | None


class StartedMove(PlanView, omit_defaults=True, kw_only=True):
    """The task that was started, or with `dry_run` a plan."""

    move: MoveView | None = None


class MovePage(msgspec.Struct):
    """The last tasks of a queue, the newest first. There is one page."""

    items: list[MoveView]
    next_cursor: str | None = None


def move_view(task: MoveTask) -> MoveView:
    """Build the JSON of a task."""
    return MoveView(
        id=task.id,
        state=STATE_NAMES[task.state],
        to_queue=task.request.to_queue,
        rate_per_second=task.request.rate,
        found=task.found,
        moved=task.moved,
        started_at=to_wire(task.started_at),
        ended_at=maybe_to_wire(task.ended_at),
        reason=task.reason,
    )
