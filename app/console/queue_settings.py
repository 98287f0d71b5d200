"""The settings of a queue, edited in two steps: a form, and a preview that says what the change does."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

from fastapi import APIRouter, Depends
from fastapi.responses import HTMLResponse, Response

from app.broker.administration.queues import QueueWithCounts, change_queue, get_queue
from app.broker.precondition import Precondition
from app.console import queue_form, retry_form
from app.console.access import needs
from app.console.form_fields import form_texts
from app.console.forms import faults_of, status_of_form
from app.console.pages import CurrentPage, PageRequest
from app.console.results import result_page
from app.console.sizes import exact_size_text, parse_size
from app.domain.access import Right
from app.domain.plurals import count_of
from app.domain.queue import (
    HeldLocks,
    Queue,
    QueueSettings,
    check_known,
    is_receive_enabled,
    is_send_enabled,
    revokes_locks,
)
from app.domain.refusals import Refusal

Fields: TypeAlias = Annotated[
    Mapping[str, str], Depends(form_texts(*queue_form.FIELD_NAMES, "etag", "confirmed", "draw", "keep_locks"))
]
"""The fields of the form and its preview. `draw` is the button that draws the delays of the form."""

YES, NO = "yes", "no"

router = APIRouter(prefix="/console/queues/{queue}/settings")
may_browse, may_manage = Depends(needs(Right.BROWSE, "queue")), Depends(needs(Right.MANAGE, "queue"))


@dataclass(frozen=True, slots=True)
class Change:
    """One setting that the form changes, as texts. `name` is that of the API."""

    name: str
    label: str
    before: str
    after: str


@router.get("", dependencies=[may_browse])
async def show_settings(page: CurrentPage, queue: str) -> HTMLResponse:
    """Show the settings. Visitors with the right to manage get a form that changes them."""
    listed = await get_queue(page.context.broker.administration, queue)
    return _form(page, listed, {**queue_form.settings_texts(listed.queue.settings), "etag": listed.queue.etag})


@router.post("", dependencies=[may_manage])
async def change_settings(page: CurrentPage, queue: str, fields: Fields) -> Response:
    """Show what the change does, or make it if the preview was confirmed and the settings are still as it has shown them."""
    listed = await get_queue(page.context.broker.administration, queue)
    try:
        check_known(listed.queue)
        settings = queue_form.settings_in(page.visitor, fields)
        if "draw" in fields:
            return _form(page, listed, fields)
        condition = Precondition({fields.get("etag", "")})
        condition.check("queue", queue, listed.queue.etag)
        if "confirmed" not in fields:
            return _preview(page, listed, fields, settings)
        locks = HeldLocks.KEEP if "keep_locks" in fields else HeldLocks.REVOKE
        await change_queue(page.context.broker.administration, listed.queue, lambda _: settings, condition, locks)
    except Refusal as refusal:
        return _form(page, listed, fields, refusal)
    return result_page(f"/console/queues/{queue}/settings", "change-settings", queue)


def changes(before: QueueSettings, after: QueueSettings) -> list[Change]:
    """Return the settings that differ."""
    old, new = queue_form.settings_texts(before), queue_form.settings_texts(after)
    found = [
        Change(field.json_name, field.label, _shown(field, old[field.name]), _shown(field, new[field.name]))
        for field in queue_form.FIELDS
        if old[field.name] != new[field.name]
    ]
    if before.retry != after.retry:
        policies = retry_form.policy_sentence(before.retry), retry_form.policy_sentence(after.retry)
        found.append(Change("retry", retry_form.LABEL, *policies))
    return found


def effects(queue: Queue, locked: int, after: QueueSettings) -> list[str]:
    """Return what a change of the settings does to the messages and clients of a queue now, in sentences."""
    before, found = queue.settings, list[str]()
    if locked and revokes_locks(before, after):
        locks = count_of(locked, "lock ends", "locks end")
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


def can_keep_locks(queue: Queue, locked: int, after: QueueSettings) -> bool:
    """Return whether a change of the settings would end locks that it could also keep."""
    return locked > 0 and revokes_locks(queue.settings, after) and queue.settings.redelivery is after.redelivery


def _shown(field: queue_form.SettingField, text: str) -> str:
    """Return what a field contains as a person reads it."""
    if field.kind == "switch":
        return YES if text else NO
    if field.kind == "size":
        return exact_size_text(parse_size(text))
    return dict(field.choices).get(text, text)


def _preview(
    page: PageRequest, listed: QueueWithCounts, fields: Mapping[str, str], settings: QueueSettings
) -> HTMLResponse:
    found = changes(listed.queue.settings, settings)
    done = effects(listed.queue, listed.counts.locked, settings)
    keepable = can_keep_locks(listed.queue, listed.counts.locked, settings)
    return _page(page, listed, fields, {}, found, done, is_preview=True, can_keep_locks=keepable)


def _form(
    page: PageRequest, listed: QueueWithCounts, fields: Mapping[str, str], refusal: Refusal | None = None
) -> HTMLResponse:
    return _page(page, listed, fields, faults_of(refusal) if refusal else {}, status=status_of_form(refusal))


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
    values = {
        **queue_form.PARTS,
        "fields": fields,
        "faults": faults,
        "changes": found,
        "effects": done,
        "can_keep_locks": how.get("can_keep_locks", False),
        "is_preview": is_preview,
        **queue_form.drawing_of(page.visitor, fields, listed.queue.settings, "Now stored"),
    }
    name = listed.queue.name
    return page.render("settings.html", status, name=name, tab="settings", etag=listed.queue.etag, **values)
