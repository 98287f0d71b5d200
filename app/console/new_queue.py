"""The form that creates a queue with its settings."""

from collections.abc import Mapping
from typing import Annotated, TypeAlias

from fastapi import APIRouter, Depends
from fastapi.responses import HTMLResponse, Response

from app.broker.administration.queues import put_queue
from app.broker.precondition import Precondition
from app.console import queue_form
from app.console.form_fields import form_texts
from app.console.forms import FormFaults, faults_of, status_of_form
from app.console.names import check_new_name, check_somewhere, name_taken
from app.console.pages import CurrentPage, PageRequest
from app.console.results import result_page
from app.domain.access import Right
from app.domain.queue import QueueSettings
from app.domain.refusals import PreconditionFailed, Refusal
from app.http.request import ANY_TAG

Fields: TypeAlias = Annotated[Mapping[str, str], Depends(form_texts(*queue_form.FIELD_NAMES, "name", "draw"))]

router = APIRouter(prefix="/console/new-queue")


@router.get("")
async def show_form(page: CurrentPage) -> HTMLResponse:
    """Show the form with the defaults. Refuses with `Forbidden` a visitor who may manage no queue."""
    check_somewhere(page.visitor, Right.MANAGE)
    return _form(page, {"name": page.query("name"), **queue_form.settings_texts(QueueSettings())})


@router.post("")
async def create(page: CurrentPage, fields: Fields) -> Response:
    """Create the queue, and go to its page. A queue that exists stays as it is."""
    check_somewhere(page.visitor, Right.MANAGE)
    try:
        if "draw" in fields:
            queue_form.settings_in(page.visitor, fields)
            return _form(page, fields)
        faults = FormFaults()
        with faults.collected():
            name = check_new_name(fields)
        with faults.collected():
            settings = queue_form.settings_in(page.visitor, fields)
        faults.check()
        page.visitor.require(Right.MANAGE, name)
        await put_queue(page.context.broker.administration, name, settings, Precondition(None, ANY_TAG))
    except PreconditionFailed:
        return _form(page, fields, name_taken(fields, "queue"))
    except Refusal as refusal:
        return _form(page, fields, refusal)
    page.context.statistics.forget()
    return result_page(f"/console/queues/{name}", "create-queue", name)


def _form(page: PageRequest, fields: Mapping[str, str], refusal: Refusal | None = None) -> HTMLResponse:
    return page.render(
        "new_queue.html",
        status_of_form(refusal),
        **queue_form.PARTS,
        fields=fields,
        faults=faults_of(refusal) if refusal else {},
        **queue_form.drawing_of(page.visitor, fields, QueueSettings(), "By default"),
    )
