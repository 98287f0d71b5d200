"""Moves the pages of running move tasks. It runs in every replica, without a leader."""

from app.broker.administration.move_page import move_page
from app.broker.administration.ports import AdministrationPorts
from app.domain.instant import to_seconds
from app.domain.move_task import MoveTask
from app.domain.refusals import BackendUnavailable, NewerQueue

MAX_TASKS = 100
"""Tasks that a pass takes a step of, those whose page is due first. The next pass begins with the others."""

MAX_DELAY_SECONDS = 1.0
"""Another replica may start a task at any time."""

MIN_DELAY_SECONDS = 0.005
"""Pages that are due shortly after each other are moved in one pass."""


async def advance_moves(ports: AdministrationPorts) -> float | None:
    """Move the next page of each task that is due; return the seconds until the next one is due.

    A task that fails now does not stop the others: the first failure is raised when all are done.
    """
    tasks = await ports.store.moves.running(MAX_TASKS)
    failures: list[BackendUnavailable] = []
    is_advanced = False
    for task in tasks:
        if not task.due_in:
            try:
                is_advanced = await move_page(ports, task) or is_advanced
            except NewerQueue:
                # A newer server moves its messages.
                continue
            except BackendUnavailable as failure:
                failures.append(failure)
    if failures:
        raise failures[0]
    return 0.0 if is_advanced else _delay(tasks)


def _delay(tasks: list[MoveTask]) -> float:
    seconds = min((to_seconds(task.due_in) for task in tasks if task.due_in), default=MAX_DELAY_SECONDS)
    return min(max(seconds, MIN_DELAY_SECONDS), MAX_DELAY_SECONDS)
