"""The settings of a queue, edited in two steps: a form, and a preview that says what the change does."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from fastapi import APIRouter, Depends
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from app.broker.administration.queues import QueueWithCounts, change_queue, get_queue
from app.broker.precondition import Precondition
from app.console.access import needs
from app.console.forms import decoded, faults_of, json_field, typed
from app.console.pages import CurrentPage, PageRequest
from app.domain.access import Right
from app.domain.queue import Queue, QueueSettings, check_known, is_receive_enabled, is_send_enabled, revokes_locks
from app.domain.refusals import InvalidRequest, Refusal
from app.http.problems import status_of
from app.wire.queues import QueueSettingsBody, settings_body

SWITCHES = ("dead_letter_on_expiry", "history")
"""The settings that are on or off."""

FORWARDING = ("forward_to", "forward_dead_letters_to")

router = APIRouter(prefix="/console/queues/{queue}/settings")
may_browse, may_manage = Depends(needs(Right.BROWSE, "queue")), Depends(needs(Right.MANAGE, "queue"))


@dataclass(frozen=True, slots=True)
class Change:
    """One setting that the form changes, as texts."""

    name: str
    before: str
    after: str


@router.get("", dependencies=[may_browse])
async def show_settings(page: CurrentPage, queue: str) -> HTMLResponse:
    """Show the settings. Visitors with the right to manage get a form that changes them."""
    listed = await get_queue(page.context.broker.administration, queue)
    return _form(page, listed, {**fields_of(listed.queue.settings), "etag": listed.queue.etag})


@router.post("", dependencies=[may_manage])
async def change_settings(page: CurrentPage, queue: str) -> Response:
    """Show what the change does, or make it if the preview was confirmed and the settings are still as it has shown them."""
    fields = await typed(page.request)
    listed = await get_queue(page.context.broker.administration, queue)
    try:
        check_known(listed.queue)
        settings = _settings(page, fields)
        condition = Precondition({fields.get("etag", "")})
        condition.check("queue", queue, listed.queue.etag)
        if "confirmed" not in fields:
            return _preview(page, listed, fields, settings)
        await change_queue(page.context.broker.administration, listed.queue, lambda _: settings, condition)
    except Refusal as refusal:
        return _form(page, listed, fields, refusal)
    return RedirectResponse(f"/console/queues/{queue}/settings", 303)


def fields_of(settings: QueueSettings) -> dict[str, str]:
    """Return the texts of the form that has these settings."""
    values: dict[str, Any] = msgspec.to_builtins(settings_body(settings))
    return {name: _text(value) for name, value in values.items()}


def changes(before: QueueSettings, after: QueueSettings) -> list[Change]:
    """Return the settings that differ."""
    old, new = fields_of(before), fields_of(after)
    return [Change(name, old[name], new[name]) for name in old if old[name] != new[name]]


def effects(queue: Queue, locked: int, after: QueueSettings) -> list[str]:
    """Return what a change of the settings does to the messages and clients of a queue now, in sentences."""
    before, found = queue.settings, list[str]()
    if locked and revokes_locks(before, after):
        locks = "1 lock ends" if locked == 1 else f"{locked:,} locks end"
        found.append(f"{locks}. The messages return to the queue, and no delivery of them counts as failed.")
    if is_send_enabled(before) and not is_send_enabled(after):
        found.append("Sends are refused from now on.")
    if is_receive_enabled(before) and not is_receive_enabled(after):
        found.append("Receives are refused from now on.")
    if before.group_in_flight != after.group_in_flight:
        found.append("Messages of groups are blocked or become available by the new limit. Locks stay.")
    if before.history and not after.history:
        found.append("No further events are recorded. Those recorded before stay until their time is over.")
    return found


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else ""
    if isinstance(value, dict):
        return msgspec.json.encode(value).decode()
    return f"{value:g}" if isinstance(value, float) and value.is_integer() and value < 1e15 else str(value)


def _settings(page: PageRequest, fields: Mapping[str, str]) -> QueueSettings:
    """Return the settings in a form. Refuses with `InvalidRequest`, and with `Forbidden` a queue to forward to that the
    visitor may not send to.
    """
    given: dict[str, object] = {name: fields.get(name, "").strip() for name in QueueSettingsBody.__struct_fields__}
    for name in SWITCHES:
        given[name] = bool(given[name])
    retry = json_field("retry", fields.get("retry", ""))
    given["retry"] = None if retry is None else msgspec.json.decode(retry)
    for name in FORWARDING:
        if target := fields.get(name, "").strip():
            page.visitor.require(Right.SEND, target)
    return decoded(QueueSettingsBody, given).settings()


def _preview(
    page: PageRequest, listed: QueueWithCounts, fields: Mapping[str, str], settings: QueueSettings
) -> HTMLResponse:
    found = changes(listed.queue.settings, settings)
    done = effects(listed.queue, listed.counts.locked, settings)
    return _page(page, listed, fields, {}, found, done, is_preview=True)


def _form(
    page: PageRequest, listed: QueueWithCounts, fields: Mapping[str, str], refusal: Refusal | None = None
) -> HTMLResponse:
    status = 200 if refusal is None else 422 if isinstance(refusal, InvalidRequest) else status_of(type(refusal))
    return _page(page, listed, fields, faults_of(refusal) if refusal else {}, status=status)


def _page(
    page: PageRequest,
    listed: QueueWithCounts,
    fields: Mapping[str, str],
    faults: Mapping[str, str],
    found: Sequence[Change] = (),
    done: Sequence[str] = (),
    **how: Any,
) -> HTMLResponse:
    status, is_preview = how.get("status", 200), how.get("is_preview", False)
    values = {"fields": fields, "faults": faults, "changes": found, "effects": done, "is_preview": is_preview}
    name = listed.queue.name
    return page.render("settings.html", status, name=name, tab="settings", etag=listed.queue.etag, **values)
