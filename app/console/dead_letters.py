"""The dead letters of a queue: by their reason, by the time they came, and each in a list that a filter narrows.

Many of them can be redriven and purged, and a purge can be undone. `selection.py` acts on those that are selected in the list.

An action shows its plan first. It is then carried out in steps of a few seconds, each a request, so that a page shows its
progress and can stop it. A browser without scripts sends one step at a time.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias
from urllib.parse import urlencode

from fastapi import APIRouter, Depends
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from app.broker.administration.dead_letter_groups import (
    DeadLetterGroup,
    EarlierDeadLetters,
    dead_since,
    group_dead_letters,
)
from app.broker.administration.plan import plan_redrive, plan_restore, plan_selection
from app.broker.administration.purge import purge
from app.broker.administration.queues import get_queue, reload_queue
from app.broker.administration.redrive import check_rate, redrive
from app.broker.administration.restore import restore
from app.broker.administration.select_messages import MessageSelection
from app.broker.filtering.filters import CelFilter, Filter, MatchAll
from app.console.access import needs
from app.console.bodies import first_line
from app.console.form_fields import form_texts
from app.console.forms import decoded, fault_answer, faults_of, status_of_form, wants_json
from app.console.messages import list_page
from app.console.names import check_typed_name
from app.console.pages import CurrentPage, PageRequest
from app.console.trend import trend_of
from app.domain.access import Right
from app.domain.instant import SECOND, Instant
from app.domain.message import Message, MessageState
from app.domain.plan import Plan
from app.domain.queue import Queue
from app.domain.refusals import FieldError, QueueNotFound, Refusal, invalid_at
from app.wire.queues import PurgeQueue, RedriveDeadLetters, RestoreMessages
from app.wire.times import from_wire, to_wire

MAX_GROUPS = 100
"""Groups of a page, the largest ones."""

STEP_SECONDS = 2.0
"""How long one step of an action takes, unless it finds nothing or its rate is slow."""

PLAN_SECONDS = 2.0
NO_PLAN = "This form has no plan. Load the page again."
RESTORE_SPAN = 3600 * SECOND
"""How far back an undo looks at first."""

EXAMPLES = (
    ("message.dead_letter_reason == 'bad_address'", "a reason"),
    ("message.dead_letter_reason.startsWith('http-5')", "the beginning of a reason"),
    ("message.dead_lettered_at > timestamp('2030-01-01T00:00:00Z')", "dead-lettered after a time"),
    ("message.subject == 'order.placed'", "a subject"),
    ("message.properties.region == 'eu'", "a property"),
)
"""Filters that people start from."""

RedriveFields: TypeAlias = Annotated[
    Mapping[str, str], Depends(form_texts("filter", "to_queue", "rate_per_second", "until", "left"))
]
PurgeFields: TypeAlias = Annotated[Mapping[str, str], Depends(form_texts("filter", "name", "until", "left"))]
RestoreFields: TypeAlias = Annotated[Mapping[str, str], Depends(form_texts("since", "filter", "left"))]
DEAD = [MessageState.DEAD_LETTERED]

router = APIRouter(prefix="/console/queues/{queue}/dead-letters")
may_browse, may_manage = Depends(needs(Right.BROWSE, "queue")), Depends(needs(Right.MANAGE, "queue"))


@dataclass(frozen=True, slots=True)
class Redriving:
    """What a form asks to redrive: these messages, to this queue, at this rate."""

    queue: Queue
    to_queue: Queue
    message_filter: Filter
    rate: float | None


@dataclass(frozen=True, slots=True)
class GroupRow:
    """The dead letters of one reason, the query that lists them, and whether the list shows them now."""

    group: DeadLetterGroup
    query: str
    is_shown: bool


@dataclass(frozen=True, slots=True)
class DeadLetterRow:
    """A dead letter in the list: the message, when it came, and the first line of its body."""

    message: Message
    since: Instant
    line: str


@router.get("", dependencies=[may_browse])
async def show_dead_letters(page: CurrentPage, queue: str) -> HTMLResponse:
    """Show the dead letters by their reason and by time, and those that match a filter one by one."""
    ports = page.context.broker.administration
    listed = await get_queue(ports, queue)
    expression, cursor = page.query("filter"), page.query("cursor")
    wanted: dict[str, object] = {"state": ["dead_lettered"], "filter": expression, "cursor": cursor}
    found_page = await list_page(page.context, listed.queue, wanted)
    found = await group_dead_letters(ports, listed.queue)
    groups = [_group_row(group, expression) for group in found.groups[:MAX_GROUPS]]
    query = [("filter", expression)] if expression else []
    return page.render(
        "dead_letters.html",
        422 if found_page.faults else 200,
        name=queue,
        tab="dead_letters",
        found=found,
        rows=groups,
        # The count, the groups and the trend come from one read. It does not cover a part of more.
        total=found.count if found.is_complete else max(listed.counts.dead_lettered, found.count),
        trend=trend_of(found, await page.context.broker.store.now()),
        dead_letters=[_dead_letter_row(message) for message in found_page.messages],
        faults=found_page.faults,
        expression=expression,
        examples=EXAMPLES,
        is_first=not cursor,
        first_page="?" + urlencode(query),
        next_page=found_page.next_cursor and "?" + urlencode([*query, ("cursor", found_page.next_cursor)]),
        keeps_archive=listed.queue.settings.archive_retention > 0,
    )


def _group_row(group: DeadLetterGroup, expression: str) -> GroupRow:
    chosen = reason_filter(group.reason)
    return GroupRow(group, "?" + urlencode({"filter": chosen}), chosen == expression)


def _dead_letter_row(message: Message) -> DeadLetterRow:
    return DeadLetterRow(message, dead_since(message), first_line(message.body, message.body_kind))


def reason_filter(reason: str | None) -> str:
    """Return the filter for the dead letters of this reason."""
    return f"message.dead_letter_reason == {json.dumps(reason, ensure_ascii=False)}"


# ---- redrive ---------------------------------------------------------------------------------------------------------


@router.get("/redrive", dependencies=[may_manage])
async def show_redrive(page: CurrentPage, queue: str) -> HTMLResponse:
    """Show what a redrive would move."""
    return await _show_redrive(page, queue, dict(page.request.query_params))


@router.post("/redrive", dependencies=[may_manage])
async def redrive_step(page: CurrentPage, queue: str, fields: RedriveFields) -> Response:
    """Redrive as many messages as a step takes."""
    try:
        wanted = await _redriving(page, queue, fields)
        left = _left(fields)
        limit = left if wanted.rate is None else min(left or 1 << 62, max(1, int(wanted.rate * STEP_SECONDS)))
        selection = MessageSelection(DEAD, EarlierDeadLetters(wanted.message_filter, _until(fields)), limit)
        seconds = STEP_SECONDS if wanted.rate is None else page.context.time_limit_seconds
        moved = await redrive(
            page.context.broker.administration, wanted.queue, wanted.to_queue, selection, wanted.rate, seconds
        )
    except Refusal as refusal:
        return _fault(refusal) if _is_script(page) else await _show_redrive(page, queue, fields, refusal)
    return _stepped(page, fields, moved, left)


async def _show_redrive(
    page: PageRequest, queue: str, fields: Mapping[str, str], refusal: Refusal | None = None
) -> HTMLResponse:
    plan, now = None, await page.context.broker.store.now()
    if refusal is None:
        try:
            wanted = await _redriving(page, queue, fields)
            selection = MessageSelection(DEAD, wanted.message_filter)
            ports = page.context.broker.administration
            plan = await plan_redrive(ports, wanted.queue, wanted.to_queue, selection, None, PLAN_SECONDS)
        except Refusal as fault:
            refusal = fault
    return _action(page, "redrive.html", queue, fields, refusal, plan=plan, until=now)


async def _redriving(page: PageRequest, queue: str, fields: Mapping[str, str]) -> Redriving:
    """Return what a form asks for. Refuses with `InvalidRequest`, `QueueNotFound` or `Forbidden`."""
    names = ("filter", "to_queue", "rate_per_second")
    body = decoded(RedriveDeadLetters, {name: fields.get(name, "").strip() for name in names})
    found = to_queue = await reload_queue(page.context.broker.administration, queue)
    if body.to_queue is not None and body.to_queue != queue:
        page.visitor.require(Right.SEND, body.to_queue)
        to_queue = await target_queue(page, body.to_queue)
    check_rate(body.rate_per_second, page.context.time_limit_seconds)
    return Redriving(found, to_queue, _filter(body.filter), body.rate_per_second)


async def target_queue(page: PageRequest, name: str) -> Queue:
    """Return the queue of this name. The refusal points at the field `to_queue`."""
    try:
        return await page.context.broker.queue_cache.by_name(name)
    except QueueNotFound as missing:
        raise QueueNotFound(field_errors=[FieldError("/to_queue", missing.detail)]) from None


# ---- purge -----------------------------------------------------------------------------------------------------------


@router.get("/purge", dependencies=[may_manage])
async def show_purge(page: CurrentPage, queue: str) -> HTMLResponse:
    """Show what a purge would remove."""
    return await _show_purge(page, queue, dict(page.request.query_params))


@router.post("/purge", dependencies=[may_manage])
async def purge_step(page: CurrentPage, queue: str, fields: PurgeFields) -> Response:
    """Remove as many dead letters as a step takes, if the name of the queue was typed."""
    try:
        found = await reload_queue(page.context.broker.administration, queue)
        check_typed_name(fields, queue, "queue")
        chosen = EarlierDeadLetters(_filter(_purge_body(fields).filter), _until(fields))
        left = _left(fields)
        removed = await purge(
            page.context.broker.administration, found, MessageSelection(DEAD, chosen, left), STEP_SECONDS
        )
    except Refusal as refusal:
        return _fault(refusal) if _is_script(page) else await _show_purge(page, queue, fields, refusal)
    return _stepped(page, fields, removed, left)


async def _show_purge(
    page: PageRequest, queue: str, fields: Mapping[str, str], refusal: Refusal | None = None
) -> HTMLResponse:
    plan, now = None, await page.context.broker.store.now()
    found = await reload_queue(page.context.broker.administration, queue)
    try:
        selection = MessageSelection(DEAD, _filter(_purge_body(fields).filter))
        plan = await plan_selection(page.context.broker.administration, found, selection, PLAN_SECONDS)
    except Refusal as fault:
        refusal = refusal or fault
    values = {"until": now, "keeps_archive": found.settings.archive_retention > 0}
    undo = urlencode({"since": to_wire(now), "filter": fields.get("filter", "")})
    return _action(page, "purge.html", queue, fields, refusal, plan, undo=undo, **values)


def _purge_body(fields: Mapping[str, str]) -> PurgeQueue:
    return decoded(PurgeQueue, {"filter": fields.get("filter", "").strip()})


# ---- undo ------------------------------------------------------------------------------------------------------------


@router.get("/restore", dependencies=[may_manage])
async def show_restore(page: CurrentPage, queue: str) -> HTMLResponse:
    """Show what an undo would bring back."""
    fields = dict(page.request.query_params)
    if "since" not in fields:
        fields["since"] = to_wire(await page.context.broker.store.now() - RESTORE_SPAN)
    return await _show_restore(page, queue, fields)


@router.post("/restore", dependencies=[may_manage])
async def restore_step(page: CurrentPage, queue: str, fields: RestoreFields) -> Response:
    """Bring back as many purged and cancelled messages as a step takes."""
    try:
        found = await reload_queue(page.context.broker.administration, queue)
        left = _left(fields)
        selection, since = _restorable(found, fields, left)
        restored = await restore(page.context.broker.administration, found, selection, since, STEP_SECONDS)
    except Refusal as refusal:
        return _fault(refusal) if _is_script(page) else await _show_restore(page, queue, fields, refusal)
    return _stepped(page, fields, restored, left)


async def _show_restore(
    page: PageRequest, queue: str, fields: Mapping[str, str], refusal: Refusal | None = None
) -> HTMLResponse:
    plan, now = None, await page.context.broker.store.now()
    found = await reload_queue(page.context.broker.administration, queue)
    if refusal is None:
        try:
            selection, since = _restorable(found, fields, None)
            plan = await plan_restore(page.context.broker.administration, found, selection, since, PLAN_SECONDS)
        except Refusal as fault:
            refusal = fault
    return _action(page, "restore.html", queue, fields, refusal, plan=plan, until=now)


def _restorable(queue: Queue, fields: Mapping[str, str], limit: int | None) -> tuple[MessageSelection, Instant]:
    body = decoded(RestoreMessages, {name: fields.get(name, "").strip() for name in ("since", "filter")})
    max_bytes = queue.settings.max_message_bytes
    selection = MessageSelection((), _filter(body.filter), limit, max_message_bytes=max_bytes)
    return selection, from_wire(body.since) if body.since else 0


# ---- steps -----------------------------------------------------------------------------------------------------------


def _action(
    page: PageRequest,
    template: str,
    queue: str,
    fields: Mapping[str, str],
    refusal: Refusal | None,
    plan: Plan | None,
    **values: Any,
) -> HTMLResponse:
    """Show the form of an action, with its plan or with what is wrong."""
    faults = {} if refusal is None else faults_of(refusal)
    shown = {"name": queue, "tab": "dead_letters", "fields": fields, "faults": faults, "plan": plan}
    return page.render(template, status_of_form(refusal), **shown, done=fields.get("done", ""), **values)


def _stepped(page: PageRequest, fields: Mapping[str, str], done: int, left: int | None) -> Response:
    """Answer how many messages a step has changed: to a script, or with the page of what is left."""
    if _is_script(page):
        return JSONResponse({"done": done, "is_finished": not done or done == left})
    kept = {name: fields[name] for name in ("filter", "to_queue", "rate_per_second", "since") if fields.get(name)}
    return RedirectResponse(f"{page.request.url.path}?{urlencode({**kept, 'done': done})}", 303)


def _fault(refusal: Refusal) -> JSONResponse:
    """Answer a refusal to a script."""
    return fault_answer(status_of_form(refusal), refusal.detail)


def _is_script(page: PageRequest) -> bool:
    return wants_json(page.request)


def _filter(source: str | None) -> Filter:
    return MatchAll() if source is None else CelFilter(source)


def _left(fields: Mapping[str, str]) -> int | None:
    """Return how many messages of the plan are left, None if the plan did not count them all. Refuses with `InvalidRequest`."""
    return _plan_number(fields["left"]) if fields.get("left") else None


def _until(fields: Mapping[str, str]) -> Instant:
    """Return when the plan was made. Refuses with `InvalidRequest`."""
    return _plan_number(fields.get("until", ""))


def _plan_number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19 and int(text)):
        raise invalid_at("", NO_PLAN)
    return int(text)
