"""Reads the fields of forms. A form with an unknown field, or with one that is given twice, is refused."""

from collections.abc import Awaitable, Callable, Collection, Sequence

from fastapi import Request

from app.console.access import CSRF_FIELD, CurrentVisitor
from app.console.forms import FORM_TYPE, media_type, read_form
from app.domain.refusals import InvalidRequest
from app.wire.decode_errors import shortened

NO_FORM = f"The fields of a form are sent as {FORM_TYPE}."


def form_texts(*names: str) -> Callable[..., Awaitable[dict[str, str]]]:
    """Return the dependency of a route whose form has these fields: it returns their texts.

    It refuses with `InvalidRequest` another field, and one that is given twice.
    """

    async def read(request: Request, _: CurrentVisitor) -> dict[str, str]:
        return dict(await read_fields(request, names))

    return read


def form_pairs(
    names: Collection[str], repeated: Collection[str]
) -> Callable[..., Awaitable[Sequence[tuple[str, str]]]]:
    """Return the dependency of a route whose form may repeat some fields. It returns names and texts in the order of the form."""

    async def read(request: Request, _: CurrentVisitor) -> Sequence[tuple[str, str]]:
        return await read_fields(request, names, repeated)

    return read


async def read_fields(
    request: Request, names: Collection[str], repeated: Collection[str] = ()
) -> Sequence[tuple[str, str]]:
    """Return the fields of a form with their texts, without its token. Browsers send each end of a line as two characters.

    Refuses with `InvalidRequest` what a form of these fields does not have.
    """
    if media_type(request) not in ("", FORM_TYPE):
        raise InvalidRequest(NO_FORM)
    sent, seen = (await read_form(request)).multi_items(), set[str]()
    for name, _ in sent:
        if name not in (CSRF_FIELD, *names, *repeated):
            raise InvalidRequest(f"This form has no field `{shortened(name)}`.")
        if name in seen and name not in repeated:
            raise InvalidRequest(f"This form gives the field `{shortened(name)}` twice.")
        seen.add(name)
    return [(name, text.replace("\r\n", "\n")) for name, text in sent if isinstance(text, str) and name != CSRF_FIELD]
