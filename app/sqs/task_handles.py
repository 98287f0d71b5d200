"""The handles of move tasks: an opaque text that has the queue and the id of a task."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import NamedTuple

from app.domain.queue import is_valid_name
from app.sqs.errors import ResourceNotFound

_SEPARATOR = "/"
"""A character that no name of a queue has."""


class TaskReference(NamedTuple):
    """The queue of a task, and its id there."""

    queue_name: str
    task_id: str


def task_handle(queue_name: str, task_id: str) -> str:
    """Return the handle of a task."""
    return urlsafe_b64encode(f"{queue_name}{_SEPARATOR}{task_id}".encode()).decode()


def task_of_handle(handle: str) -> TaskReference:
    """Return the task of a handle. Refuses with `ResourceNotFound` what no server gives."""
    try:
        text = urlsafe_b64decode(handle).decode("ascii")
    except ValueError:
        raise ResourceNotFound("No move task has this TaskHandle.") from None
    name, _, task_id = text.partition(_SEPARATOR)
    if task_handle(name, task_id) != handle or not is_valid_name(name) or not task_id.replace("-", "").isalnum():
        raise ResourceNotFound("No move task has this TaskHandle.")
    return TaskReference(name, task_id)
