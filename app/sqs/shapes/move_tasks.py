"""Tasks that move messages from a dead-letter queue."""

from typing import Annotated

import msgspec

from app.sqs.shapes.members import AnswerStruct, Arn, RequestStruct, in_query

MAX_RATE = 500
"""The largest number of messages per second that SQS accepts."""
MAX_LISTED_TASKS = 10


class StartMessageMoveTask(RequestStruct, kw_only=True):
    """The request of StartMessageMoveTask."""

    source_arn: Arn
    destination_arn: Arn | None = None
    max_number_of_messages_per_second: Annotated[int, msgspec.Meta(ge=1, le=MAX_RATE)] | None = None


class StartedTask(AnswerStruct, kw_only=True):
    """The answer of StartMessageMoveTask."""

    task_handle: str


class CancelMessageMoveTask(RequestStruct, kw_only=True):
    """The request of CancelMessageMoveTask."""

    task_handle: Annotated[str, msgspec.Meta(max_length=1024)]


class CancelledTask(AnswerStruct, omit_defaults=False, kw_only=True):
    """The answer of CancelMessageMoveTask."""

    approximate_number_of_messages_moved: int


class ListMessageMoveTasks(RequestStruct, kw_only=True):
    """The request of ListMessageMoveTasks."""

    source_arn: Arn
    max_results: Annotated[int, msgspec.Meta(ge=1, le=MAX_LISTED_TASKS)] = 1


class ListedTask(AnswerStruct, kw_only=True):
    """One task. Only a running one has a handle."""

    status: str
    source_arn: str
    approximate_number_of_messages_moved: int
    started_timestamp: int
    task_handle: str | None = None
    destination_arn: str | None = None
    max_number_of_messages_per_second: int | None = None
    approximate_number_of_messages_to_move: int | None = None
    failure_reason: str | None = None


class TaskList(AnswerStruct, omit_defaults=False, kw_only=True):
    """The answer of ListMessageMoveTasks."""

    results: Annotated[tuple[ListedTask, ...], in_query("ListMessageMoveTasksResultEntry")]
