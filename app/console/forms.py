"""The fields of forms: read as the API reads them, so that both have the same limits and say the same about faults."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec
from fastapi import Request
from fastapi.responses import JSONResponse
from starlette.datastructures import FormData
from starlette.exceptions import HTTPException

from app.domain.json_depth import TOO_DEEP, is_too_deep
from app.domain.refusals import (
    BackendUnavailable,
    FieldError,
    InvalidRequest,
    MessageTooLarge,
    Refusal,
    invalid_at,
)
from app.http.asgi import ASGI, Event, Receive, Scope, Send
from app.http.problems import status_of
from app.http.request_body import BodyReservation
from app.runtime.byte_budget import ByteBudget
from app.wire.decode_errors import invalid_request

Shape = TypeVar("Shape")

FORM_TYPE = "application/x-www-form-urlencoded"
MAX_FORM_BYTES = 2 << 20
"""Bytes of a form. A message of this size is sent by a program."""

FORM_COPIES = 3
"""Copies of a form in memory: as it was sent, its fields, and what is made of them."""

MAX_FIELDS = 256
"""Fields of a form: three for each property that a message may have, and those beside them."""

MAX_FIELD_BYTES = 1 << 20
"""The largest field, as it was sent: a quarter of a second is needed to read it."""


class FormBodyLimit:
    """Passes requests on to the console, and counts the bytes of their bodies as the API does.

    Refuses with `MessageTooLarge` a form of more than `MAX_FORM_BYTES`, and with `Overloaded` if the process holds no more.
    """

    def __init__(self, app: ASGI, budget: ByteBudget) -> None:
        self._app = app
        self._budget = budget

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        size = 0
        reservation = BodyReservation(self._budget)

        async def counted() -> Event:
            nonlocal size
            event = await receive()
            size += len(event.get("body", b""))
            if size > MAX_FORM_BYTES:
                raise MessageTooLarge(f"A form has at most {MAX_FORM_BYTES} bytes.")
            reservation.grow(FORM_COPIES * size)
            return event

        try:
            await self._app(scope, counted, send)
        finally:
            reservation.release()


class FormFaults:
    """Collects the faults of a form, so that its page shows all of them at once."""

    def __init__(self) -> None:
        self._found: list[FieldError] = []

    @contextmanager
    def collected(self) -> Generator[None]:
        """Keep the field errors of an `InvalidRequest` that is raised in this block, and continue after it."""
        try:
            yield
        except InvalidRequest as refusal:
            if not refusal.field_errors:
                raise
            self._found += refusal.field_errors

    def check(self) -> None:
        """Refuse with `InvalidRequest` a form with faults."""
        if self._found:
            raise InvalidRequest(field_errors=self._found)


def decoded(shape: type[Shape], fields: Mapping[str, object]) -> Shape:
    """Return the request that the fields of a form make; an empty field is left out.

    Refuses with `InvalidRequest` that names every wrong field.
    """
    given = {name: value for name, value in fields.items() if value not in ("", None, [])}
    try:
        return msgspec.convert(given, shape, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidRequest(field_errors=_decoding_faults(error, shape, given)) from None


def _decoding_faults(error: msgspec.ValidationError, shape: Any, given: Mapping[str, object]) -> list[FieldError]:
    """Return the faults of all fields. The decoder stops at the first, so the form is decoded again without that field."""
    [fault] = invalid_request(error, shape, "The form").field_errors
    others = {name: value for name, value in given.items() if name != _field_of(fault)}
    try:
        if len(others) < len(given):
            msgspec.convert(others, shape, strict=False)
    except msgspec.ValidationError as next_error:
        return [fault, *_decoding_faults(next_error, shape, others)]
    return [fault]


def _field_of(fault: FieldError) -> str:
    return fault.pointer.removeprefix("#").strip("/").partition("/")[0]


def status_of_form(refusal: Refusal | None) -> int:
    """Return the status of a page with a form: 200, or that of the refusal that it shows."""
    return 200 if refusal is None else status_of(type(refusal))


def faults_of(refusal: Refusal) -> dict[str, str]:
    """Return what is wrong by the names of fields. The empty name has what belongs to no field."""
    if not refusal.field_errors:
        return {"": refusal.detail}
    faults: dict[str, str] = {}
    for fault in refusal.field_errors:
        faults.setdefault(_field_of(fault), fault.detail)
    return faults


def wants_json(request: Request) -> bool:
    """Return whether a script of a page has sent the form, and not the browser. It may take other answers as pages."""
    return request.headers.get("accept", "").startswith("application/json")


def fault_answer(status: int, detail: str) -> JSONResponse:
    """Answer a script what is wrong."""
    return JSONResponse({"fault": detail}, status)


def media_type(request: Request) -> str:
    """Return the type of the body of a request, empty without one."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def read_form(request: Request, max_field_bytes: int = MAX_FIELD_BYTES) -> FormData:
    """Return the fields of a form, none for another body: no page of the console sends files.

    A later call returns the same fields, or refuses the form again: the rest of its body may never come.
    """
    if media_type(request) != FORM_TYPE:
        return FormData()
    refused: Exception | None = getattr(request.state, "form_refusal", None)
    if refused is not None:
        raise refused
    try:
        return await request.form(max_files=0, max_fields=MAX_FIELDS, max_part_size=max_field_bytes)
    except (Refusal, BackendUnavailable, HTTPException) as refusal:
        request.state.form_refusal = refusal
        raise


def json_field(name: str, text: str) -> msgspec.Raw | None:
    """Return a field that has JSON, as its bytes; None for an empty one. Refuses with `InvalidRequest`."""
    content = text.strip().encode()
    if is_too_deep(content):
        raise invalid_at(f"/{name}", TOO_DEEP)
    try:
        msgspec.json.decode(content or b"null", type=msgspec.Raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise invalid_at(f"/{name}", f"This is not valid JSON: {error}") from None
    return msgspec.Raw(content) if content else None
