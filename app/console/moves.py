"""The page of moves: the plan of a move task, its start, the last tasks of the queue, and their cancellation."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, TypeAlias

from fastapi import APIRouter, Depends
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from app.broker.administration.move import cancel_move, find_targets, list_moves, start_move
from app.broker.administration.plan import plan_move
from app.broker.administration.queues import reload_queue
from app.console.access import needs
from app.console.dead_letters import PLAN_SECONDS, target_queue
from app.console.form_fields import form_texts
from app.console.forms import decoded, faults_of, status_of_form
from app.console.pages import CurrentPage, PageRequest
from app.domain.access import Right
from app.domain.move_task import MoveRequest, MoveState, other_queues
from app.domain.plan import Plan
from app.domain.queue import Queue
from app.domain.refusals import Refusal
from app.wire.moves import StartMove

NAMES = ("to_queue", "rate_per_second")

MoveFields: TypeAlias = Annotated[Mapping[str, str], Depends(form_texts(*NAMES))]
NoFields: TypeAlias = Annotated[Mapping[str, str], Depends(form_texts())]

router = APIRouter(prefix="/console/queues/{queue}/moves")
may_manage = Depends(needs(Right.MANAGE, "queue"))


@dataclass(frozen=True, slots=True)
class Moving:
    """What a form asks to move: the messages of this queue, as the request says."""

    queue: Queue
    request: MoveRequest


@router.get("", dependencies=[may_manage])
async def show_moves(page: CurrentPage, queue: str) -> HTMLResponse:
    """Show the last move tasks and, once the form of the page was sent, what a move would do."""
    fields = {name: page.query(name) for name in NAMES if name in page.request.query_params}
    return await _page(page, queue, fields, plan_it=bool(fields))


@router.post("", dependencies=[may_manage])
async def start(page: CurrentPage, queue: str, fields: MoveFields) -> Response:
    """Start a move task."""
    try:
        moving = await _moving(page, queue, fields)
        await start_move(page.context.broker.administration, moving.queue, moving.request)
    except Refusal as refusal:
        return await _page(page, queue, fields, refusal)
    return RedirectResponse(f"/console/queues/{queue}/moves", 303)


@router.post("/{move_id}/cancel", dependencies=[may_manage])
async def cancel(page: CurrentPage, queue: str, move_id: str, _: NoFields) -> Response:
    """Cancel a running task."""
    ports = page.context.broker.administration
    try:
        await cancel_move(ports, await reload_queue(ports, queue), move_id)
    except Refusal as refusal:
        return await _page(page, queue, {}, refusal)
    return RedirectResponse(f"/console/queues/{queue}/moves", 303)


async def _page(
    page: PageRequest,
    queue: str,
    fields: Mapping[str, str],
    refusal: Refusal | None = None,
    *,
    plan_it: bool = False,
) -> HTMLResponse:
    ports = page.context.broker.administration
    plan: Plan | None = None
    if plan_it:
        try:
            moving = await _moving(page, queue, fields)
            plan = await plan_move(ports, moving.queue, moving.request, PLAN_SECONDS)
        except Refusal as fault:
            refusal = fault
    tasks = await list_moves(ports, await reload_queue(ports, queue))
    return page.render(
        "moves.html",
        200 if refusal is None else status_of_form(refusal),
        name=queue,
        tab="",
        fields=fields,
        faults={} if refusal is None else faults_of(refusal),
        plan=plan,
        tasks=tasks,
        is_running=any(task.state is MoveState.RUNNING for task in tasks),
    )


async def _moving(page: PageRequest, queue: str, fields: Mapping[str, str]) -> Moving:
    """Return what a form asks for. Refuses with `InvalidRequest`, `QueueNotFound` or `Forbidden`, and as a send does."""
    ports = page.context.broker.administration
    body = decoded(StartMove, {name: fields.get(name, "").strip() for name in NAMES})
    found = await reload_queue(ports, queue)
    to_queue = None
    if body.to_queue is not None:
        page.visitor.require(Right.SEND, body.to_queue)
        to_queue = await target_queue(page, body.to_queue)
    targets = await find_targets(ports, found, to_queue)
    for target in other_queues(found, targets):
        page.visitor.require(Right.SEND, target.name)
    return Moving(found, MoveRequest(body.to_queue, tuple(target.id for target in targets), body.rate_per_second))
