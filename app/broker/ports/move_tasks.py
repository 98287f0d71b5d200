"""The records of move tasks. `MaintainingStore` moves their pages."""

from typing import Protocol

from app.domain.move_task import MoveRequest, MoveTask
from app.domain.queue import Queue


class MoveTaskStore(Protocol):
    """The move tasks of all queues."""

    async def start(self, task_id: str, queue: Queue, request: MoveRequest, found: int) -> MoveTask:
        """Start a task of this queue. Only the last `KEPT_TASKS` of a queue are kept.

        Refuses with `MoveRunning` if one of this queue runs, also for concurrent calls. Raises `QueueGone` if the queue
        is deleted.
        """
        ...

    async def of_queue(self, queue_id: int) -> list[MoveTask]:
        """Return the last tasks of a queue, the newest first."""
        ...

    async def find(self, queue_id: int, task_id: str) -> MoveTask | None:
        """Return this task of this queue, or None."""
        ...

    async def running(self, limit: int) -> list[MoveTask]:
        """Return running tasks of queues that this version knows, in the order in which their pages are due."""
        ...

    async def cancel(self, queue_id: int, task_id: str) -> bool:
        """End a running task as cancelled; return whether it was running. A page that is being moved comes first."""
        ...
