"""The fields of forms: read as the API reads them, so that both have the same limits and say the same about faults."""

from collections.abc import Mapping
from typing import TypeVar

import msgspec
from fastapi import Request

from app.domain.refusals import Refusal, invalid_at
from app.wire.decode_errors import invalid_request
from app.wire.json_depth import TOO_DEEP, is_too_deep

Shape = TypeVar("Shape")


def decoded(shape: type[Shape], fields: Mapping[str, object]) -> Shape:
    """Return the request that the fields of a form make; an empty field is left out. Refuses with `InvalidRequest`."""
    given = {name: value for name, value in fields.items() if value not in ("", None, [])}
    try:
        return msgspec.convert(given, shape, strict=False)
    except msgspec.ValidationError as error:
        raise invalid_request(error, shape, "The form") from None


def faults_of(refusal: Refusal) -> dict[str, str]:
    """Return what is wrong by the names of fields. The empty name has what belongs to no field."""
    if not refusal.field_errors:
        return {"": refusal.detail}
    faults: dict[str, str] = {}
    for fault in refusal.field_errors:
        name = fault.pointer.removeprefix("#").strip("/").partition("/")[0]
        faults.setdefault(name, fault.detail)
    return faults


async def typed(request: Request) -> dict[str, str]:
    """Return the texts that a form was sent with. Browsers send each end of a line as two characters."""
    form = await request.form()
    return {name: value.replace("\r\n", "\n") for name, value in form.items() if isinstance(value, str)}


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
