"""Move tasks in named statements, the same for every engine.

The transaction of a page locks the row of its task first, and waits for no other one that holds it. So the pages of a task
follow each other, and its position and its count change with them.
"""

from collections.abc import Sequence
from functools import partial

from app.broker.ports.maintaining import MoveStep, Redrive
from app.broker.ports.sending import QueueGone
from app.broker.ports.settling import Admitted
from app.domain.move_task import KEPT_TASKS, MoveRequest, MoveRunning, MoveState, MoveTask
from app.domain.queue import Queue
from app.store.shared import rows
from app.store.shared.database import Database, ReplicatedRecords, SqlSession
from app.store.shared.json_columns import write_move_request
from app.store.shared.redriving import before_held, redrive


class MoveTaskRecords(ReplicatedRecords):
    """`MoveTaskStore` over a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def start(self, task_id: str, queue: Queue, request: MoveRequest, found: int) -> MoveTask:
        """See `MoveTaskStore`."""
        return await self._database.transaction(
            partial(_start, task_id=task_id, queue=queue, request=request, found=found)
        )

    async def of_queue(self, queue_id: int) -> list[MoveTask]:
        """See `MoveTaskStore`."""
        found_rows = await self._database.fetch("moves_of_queue", queue_id=queue_id, limit=KEPT_TASKS)
        return [rows.move_task(row) for row in found_rows]

    async def find(self, queue_id: int, task_id: str) -> MoveTask | None:
        """See `MoveTaskStore`."""
        found_rows = await self._database.fetch("find_move", queue_id=queue_id, id=task_id)
        return rows.move_task(found_rows[0]) if found_rows else None

    async def running(self, limit: int) -> list[MoveTask]:
        """See `MoveTaskStore`."""
        return [rows.move_task(row) for row in await self._database.fetch("running_moves", limit=limit)]

    async def cancel(self, queue_id: int, task_id: str) -> bool:
        """See `MoveTaskStore`."""
        if await self._database.change("cancel_move", queue_id=queue_id, id=task_id):
            return True
        await self.await_replication()
        return False


async def _start(session: SqlSession, task_id: str, queue: Queue, request: MoveRequest, found: int) -> MoveTask:
    if [queue_id for (queue_id,) in await session.fetch("queue_for_update", name=queue.name)] != [queue.id]:
        raise QueueGone
    if await session.fetch("running_move", queue_id=queue.id):
        raise MoveRunning
    ((last_number,),) = await session.fetch("last_sequence_number")
    await session.change(
        "start_move",
        id=task_id,
        queue_id=queue.id,
        request=write_move_request(request),
        last_number=last_number or 0,
        found=found,
    )
    for (old_id,) in await session.fetch("old_moves", queue_id=queue.id, kept=KEPT_TASKS - 1):
        await session.change("delete_move", id=old_id)
    return rows.move_task((await session.fetch("find_move", queue_id=queue.id, id=task_id))[0])


async def advance(session: SqlSession, step: MoveStep) -> tuple[list[bool] | None, list[Admitted]]:
    """Carry out a step of a task, up to the first message that another transaction holds. Return whether each message has
    moved, and the messages that were admitted.

    Return None, and change nothing, if the step does not follow the last one or is not due. Raises `QueueGone` and
    `GroupInUse`; then nothing has changed.
    """
    task, page = step.task, step.redrives
    if not await session.fetch(
        "move_for_update", id=task.id, position=task.position, longest_pause=task.request.longest_pause
    ):
        return None, []
    redrives = await before_held(session, page) if page else page
    if len(redrives) < len(page):
        step = _until(step, redrives)
    moved, admitted = await redrive(session, redrives) if redrives else ([], [])
    await session.change(
        "advance_move",
        id=task.id,
        position=step.position,
        moved=sum(moved),
        pause=task.pause_after(step.position, sum(moved)),
        is_ended=int(step.state is not MoveState.RUNNING),
        state=step.state.value,
        reason=step.reason,
    )
    return [*moved, *[False] * (len(page) - len(moved))], admitted


def _until(step: MoveStep, redrives: Sequence[Redrive]) -> MoveStep:
    """Return the step that ends before the first message that another transaction holds."""
    first_held = step.redrives[len(redrives)].row.sequence_number
    return MoveStep(step.task, redrives, max(step.task.position, first_held - 1))
