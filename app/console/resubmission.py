"""Edit a dead letter and send it again. The old message ends in the transaction that stores the new one."""

from collections.abc import Mapping
from typing import Annotated, TypeAlias

import msgspec
from fastapi import APIRouter, Depends
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from msgspec.structs import replace

from app.broker.administration.browse import read_message
from app.broker.administration.queues import reload_queue
from app.broker.administration.resubmit import resubmit
from app.console.bodies import MAX_SHOWN_BYTES
from app.console.form_fields import form_texts
from app.console.forms import faults_of
from app.console.message_forms import CONTENT_FIELDS, new_message_of, readable_json
from app.console.messages import number_of
from app.console.pages import CurrentPage, PageRequest
from app.console.sender_texts import RESUBMITTED_FIELDS, resubmitted_texts, with_hidden_texts
from app.domain.access import Right
from app.domain.message import BodyKind, Message, MessageState
from app.domain.refusals import Conflict, InvalidRequest, Refusal
from app.http.problems import status_of
from app.wire.text_bodies import text_of

RECEIVER = "console"
TOO_LARGE = "The body of this message is too large to edit on a page. Redrive the message, or receive it."
NOT_DEAD = "Only a dead-lettered message is resubmitted."

Fields: TypeAlias = Annotated[
    Mapping[str, str],
    Depends(form_texts("etag", *CONTENT_FIELDS, *(name for name, _, _ in RESUBMITTED_FIELDS))),
]

router = APIRouter(prefix="/console/queues/{queue}/messages/{sequence_number}/resubmit")


@router.get("")
async def show_resubmission(page: CurrentPage, queue: str, sequence_number: str) -> HTMLResponse:
    """Show the form with the message as it is."""
    _require_rights(page, queue)
    message = await _read(page, queue, sequence_number)
    if message.state is not MessageState.DEAD_LETTERED:
        raise Conflict(NOT_DEAD)
    if len(message.body) > MAX_SHOWN_BYTES:
        raise Conflict(TOO_LARGE)
    return _form(page, queue, message.sequence_number, fields_of(message))


@router.post("")
async def resubmit_message(page: CurrentPage, queue: str, sequence_number: str, fields: Fields) -> Response:
    """Replace a dead letter by the message of the form, if it is still as the form has shown it."""
    _require_rights(page, queue)
    number = number_of(sequence_number)
    found = await reload_queue(page.context.broker.administration, queue)
    try:
        seen = await _read(page, queue, sequence_number)
        new_message = new_message_of(fields)
        new_message = replace(new_message, envelope=with_hidden_texts(new_message.envelope, seen.envelope))
        etag = fields.get("etag", "")
        receipt = await resubmit(page.context.broker.administration, found, number, etag, new_message, RECEIVER)
    except Refusal as refusal:
        return _form(page, queue, number, fields, refusal)
    is_here = found.settings.forward_to is None and page.visitor.may(Right.BROWSE, queue)
    return RedirectResponse(f"/console/queues/{queue}/messages/{receipt.sequence_number if is_here else number}", 303)


def fields_of(message: Message) -> dict[str, str]:
    """Return the fields of the form for a message as it is."""
    envelope = message.envelope
    form, body = _body_fields(message)
    return {
        **resubmitted_texts(envelope),
        "body_form": form,
        "body": body,
        "priority": str(message.priority),
        "properties": readable_json(envelope.properties),
        "etag": message.etag,
    }


def _body_fields(message: Message) -> tuple[str, str]:
    """Return in which form a body is edited, and its text."""
    if message.body_kind is not BodyKind.BYTES:
        return "json", message.body.decode()
    text = text_of(message.body, message.envelope.headers.content_type)
    if text is None or "\r" in text:
        return "base64", msgspec.json.decode(msgspec.json.encode(message.body), type=str)
    return "text", text


def _require_rights(page: PageRequest, queue: str) -> None:
    """Refuse with `Forbidden` a visitor who could not do the same by requests: receive, complete and send."""
    for right in (Right.BROWSE, Right.LISTEN, Right.SEND):
        page.visitor.require(right, queue)


async def _read(page: PageRequest, queue: str, sequence_number: str) -> Message:
    found = await reload_queue(page.context.broker.administration, queue)
    return await read_message(page.context.broker.administration, found, number_of(sequence_number))


def _form(
    page: PageRequest, queue: str, number: int, fields: Mapping[str, str], refusal: Refusal | None = None
) -> HTMLResponse:
    status = 200 if refusal is None else 422 if isinstance(refusal, InvalidRequest) else status_of(type(refusal))
    return page.render(
        "resubmit.html",
        status,
        name=queue,
        tab="dead_letters",
        number=number,
        fields=fields,
        faults=faults_of(refusal) if refusal else {},
        sent_fields=RESUBMITTED_FIELDS,
    )
