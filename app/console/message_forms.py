"""Forms that send, edit and cancel messages. A fault is shown at its field, and what was typed is kept."""

import hashlib
from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

import msgspec
from fastapi import APIRouter, Depends
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from app.broker.administration.browse import read_message
from app.broker.administration.edit import cancel, edit
from app.broker.administration.queues import reload_queue
from app.broker.ports.attempts import Attempt
from app.broker.ports.maintaining import Edit
from app.broker.sending.send import send
from app.console.access import needs, new_secret
from app.console.form_fields import form_texts
from app.console.forms import decoded, faults_of, json_field
from app.console.messages import number_of
from app.console.pages import CurrentPage, PageRequest
from app.console.sender_texts import SENT_FIELDS
from app.console.setting_fields import seconds_in
from app.domain.access import Right
from app.domain.instant import from_seconds
from app.domain.message import DEFAULT_PRIORITY, Message, Receipt
from app.domain.queue import Queue
from app.domain.refusals import InvalidRequest, QueueNotFound, Refusal, invalid_at
from app.domain.sending import NewMessage
from app.http.problems import status_of
from app.http.request import ATTEMPT_RETENTION
from app.wire.message_fields import MessageToSend
from app.wire.messages import EditMessage
from app.wire.properties import decode_properties, encode_properties
from app.wire.values import due_time

ATTEMPT_FIELD = "idempotency_key"
"""The field that is different in each form, so that a form is recognised when it is sent again."""

NEW = {"body_form": "json", "body": '{"hello": "world"}', "priority": str(DEFAULT_PRIORITY)}
"""What the form has at first."""

CONTENT_FIELDS = ("body_form", "body", "properties")
"""The fields of what a message contains."""

SendFields: TypeAlias = Annotated[
    Mapping[str, str], Depends(form_texts(ATTEMPT_FIELD, *CONTENT_FIELDS, *(name for name, _, _ in SENT_FIELDS)))
]
EditFields: TypeAlias = Annotated[
    Mapping[str, str], Depends(form_texts("etag", "delay", "available_at", "priority", "properties"))
]
CancelFields: TypeAlias = Annotated[Mapping[str, str], Depends(form_texts("etag"))]

router = APIRouter(prefix="/console/queues/{queue}")
may_send, may_manage = Depends(needs(Right.SEND, "queue")), Depends(needs(Right.MANAGE, "queue"))


@router.get("/send", dependencies=[may_send])
async def show_send(page: CurrentPage, queue: str) -> HTMLResponse:
    """Show the form that sends a message."""
    await reload_queue(page.context.broker.administration, queue)
    return _send_form(page, queue, {**NEW, ATTEMPT_FIELD: new_secret()})


@router.post("/send", dependencies=[may_send])
async def send_message(page: CurrentPage, queue: str, fields: SendFields) -> Response:
    """Send a message, and go to its page. A form that is sent twice stores one message."""
    try:
        found = await reload_queue(page.context.broker.administration, queue)
        receipt = await _send(page, found, new_message_of(fields), fields)
    except QueueNotFound:
        raise
    except Refusal as refusal:
        return _send_form(page, queue, fields, refusal)
    is_here = found.settings.forward_to is None and page.visitor.may(Right.BROWSE, queue)
    sent = f"/messages/{receipt.sequence_number}" if is_here else f"/send?sent={receipt.sequence_number}"
    return RedirectResponse(f"/console/queues/{queue}{sent}", 303)


@router.get("/messages/{sequence_number}/edit", dependencies=[may_manage])
async def show_edit(page: CurrentPage, queue: str, sequence_number: str) -> HTMLResponse:
    """Show the form that edits a message."""
    message = await _read(page, queue, sequence_number)
    fields = {"priority": str(message.priority), "properties": readable_json(message.envelope.properties)}
    return _edit_form(page, queue, message, {**fields, "etag": message.etag})


@router.post("/messages/{sequence_number}/edit", dependencies=[may_manage])
async def edit_message(page: CurrentPage, queue: str, sequence_number: str, fields: EditFields) -> Response:
    """Change the due time, the priority and the properties of a message, if it is still as the form has shown it."""
    number = number_of(sequence_number)
    found = await reload_queue(page.context.broker.administration, queue)
    try:
        change = _change_of(fields)
        etag = {fields.get("etag", "")}
        await edit(page.context.broker.administration, found, number, lambda seen: _edit(seen, change), etag)
    except Refusal as refusal:
        return _edit_form(page, queue, await _read(page, queue, sequence_number), fields, refusal)
    return RedirectResponse(f"/console/queues/{queue}/messages/{number}", 303)


@router.post("/messages/{sequence_number}/cancel", dependencies=[may_manage])
async def cancel_message(page: CurrentPage, queue: str, sequence_number: str, fields: CancelFields) -> RedirectResponse:
    """Move a message to the archive as cancelled, if it is still as the page has shown it."""
    number = number_of(sequence_number)
    found = await reload_queue(page.context.broker.administration, queue)
    await cancel(page.context.broker.administration, found, number, {fields.get("etag", "")})
    return RedirectResponse(f"/console/queues/{queue}/messages/{number}", 303)


async def _send(page: PageRequest, queue: Queue, new_message: NewMessage, fields: Mapping[str, str]) -> Receipt:
    """Send the message of a form. The same form again is answered with the first receipt."""
    attempt = _attempt(page, queue, fields) if fields.get(ATTEMPT_FIELD) else None
    (receipt,) = (await send(page.context.broker.sending, queue.name, [new_message], attempt)).result
    return receipt


def _attempt(page: PageRequest, queue: Queue, fields: Mapping[str, str]) -> Attempt:
    content = hashlib.sha256(repr(sorted(fields.items())).encode())
    scope = "\0".join((page.visitor.principal.name, "send a form", queue.name, content.hexdigest()))
    return Attempt(hashlib.sha256(scope.encode()).digest(), content.digest(), ATTEMPT_RETENTION)


def new_message_of(fields: Mapping[str, str]) -> NewMessage:
    """Return the message that a form describes. Refuses with `InvalidRequest`."""
    given: dict[str, object] = {name: fields.get(name, "") for name, _, kind in SENT_FIELDS if kind != "duration"}
    given |= {f"{name}_seconds": _seconds(fields, name) for name, _, kind in SENT_FIELDS if kind == "duration"}
    body = fields.get("body", "")
    match fields.get("body_form"):
        case "text":
            given["body"] = msgspec.Raw(msgspec.json.encode(body))
            given["content_type"] = given["content_type"] or "text/plain"
        case "base64":
            given["body_base64"] = body.strip() or None
        case "json" | None:
            given["body"] = json_field("body", body)
        case _:
            raise invalid_at("/body_form", "A body is JSON, text, or bytes in base64.")
    given["properties"] = json_field("properties", fields.get("properties", ""))
    return decoded(MessageToSend, given).new_message()


def readable_json(content: bytes) -> str:
    """Return JSON in several lines; other bytes stay as they are."""
    try:
        return msgspec.json.format(content, indent=2).decode() if content else ""
    except (msgspec.DecodeError, UnicodeDecodeError):
        return content.decode("utf-8", "replace")


def _change_of(fields: Mapping[str, str]) -> EditMessage:
    """Return the change that a form describes. Refuses with `InvalidRequest`."""
    given: dict[str, object] = {name: fields.get(name, "") for name in ("available_at", "priority")}
    given |= {
        "delay_seconds": _seconds(fields, "delay"),
        "properties": json_field("properties", fields.get("properties", "")),
    }
    change = decoded(EditMessage, given)
    if given["available_at"] and given["delay_seconds"] is not None:
        raise invalid_at("/delay", "Give a due time or a delay, not both.")
    return change


def _seconds(fields: Mapping[str, str], name: str) -> float | None:
    """Return the duration in a field, None for an empty one. Refuses with `InvalidRequest`."""
    text = fields.get(name, "").strip()
    return seconds_in(MessageToSend, f".{name}_seconds", name, text) if text else None


def _edit(seen: Message, change: EditMessage) -> Edit:
    """Return the edit of a message. The form has all of its properties, so it replaces them."""
    at, seconds, priority = change.available_at, change.delay_seconds, change.priority
    return Edit(
        expected=seen,
        available_at=None if at is msgspec.UNSET or at is None else due_time(at, "/available_at"),
        delay=None if seconds is msgspec.UNSET or seconds is None else from_seconds(seconds),
        priority=None if priority is msgspec.UNSET else priority,
        properties=encode_properties(decode_properties(change.properties) or {}, "/properties"),
    )


async def _read(page: PageRequest, queue: str, sequence_number: str) -> Message:
    found = await reload_queue(page.context.broker.administration, queue)
    return await read_message(page.context.broker.administration, found, number_of(sequence_number))


def _send_form(
    page: PageRequest, queue: str, fields: Mapping[str, str], refusal: Refusal | None = None
) -> HTMLResponse:
    values: dict[str, Any] = {"fields": fields, "sent_fields": SENT_FIELDS, "sent": page.query("sent")}
    return _form(page, "send.html", queue, refusal, tab="send", **values)


def _edit_form(
    page: PageRequest, queue: str, message: Message, fields: Mapping[str, str], refusal: Refusal | None = None
) -> HTMLResponse:
    return _form(page, "edit.html", queue, refusal, tab="messages", fields=fields, message=message)


def _form(page: PageRequest, template: str, queue: str, refusal: Refusal | None, **values: Any) -> HTMLResponse:
    """Show a form, with what is wrong with it."""
    status = 200 if refusal is None else 422 if isinstance(refusal, InvalidRequest) else status_of(type(refusal))
    faults = faults_of(refusal) if refusal else {}
    return page.render(template, status, name=queue, faults=faults, **values)
