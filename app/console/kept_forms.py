"""What was typed into a form that was refused. The page of the refusal gives it back."""

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fastapi import Request
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from app.console.access import CSRF_FIELD, SAFE_METHODS, check_token, console_context, session_secret
from app.console.forms import MAX_FORM_BYTES, read_form
from app.domain.refusals import BackendUnavailable, Refusal

HIDDEN_FIELDS = (
    CSRF_FIELD, "etag", "idempotency_key", "until", "left", "seen", "confirmed", "done", "plan", "action_name", "list", "number",
)  # fmt: skip
"""Fields that no person types. They are sent again, and are not shown."""

SECRET_FIELDS = ("api_key",)
"""Fields that a page never gives back."""

MAX_KEPT_CHARACTERS = MAX_FORM_BYTES
"""The largest form that is given back, as it is written in HTML: quotes and brackets are longer there."""

MAX_SHOWN_CHARACTERS = 2000
"""How much of a field is shown. Its hidden copy is complete."""


@dataclass(frozen=True, slots=True)
class KeptForm:
    """The fields of a refused form, and those of them that people have typed or chosen."""

    fields: Sequence[tuple[str, str]]
    shown: Sequence[tuple[str, str]]


async def kept_form(request: Request) -> KeptForm | None:
    """Return the form that was refused; None if a page of this console did not send it to a visitor known here.

    A client that is not known gets nothing back, so that no form is read for it. Nor does a form that is too large in HTML.
    """
    secret = session_secret(request)
    if request.method in SAFE_METHODS or secret is None or console_context(request).visitors.find(secret) is None:
        return None
    try:
        await check_token(request, secret)
        sent = (await read_form(request)).multi_items()
    except (Refusal, BackendUnavailable, HTTPException, ClientDisconnect):
        # The form itself was refused: it is foreign or too large. Or it has not arrived.
        return None
    fields = [(name, text) for name, text in sent if isinstance(text, str) and name not in SECRET_FIELDS]
    if _characters(fields) > MAX_KEPT_CHARACTERS:
        return None
    return KeptForm(fields, [(name, _shown(text)) for name, text in fields if text and name not in HIDDEN_FIELDS])


def _characters(fields: Iterable[tuple[str, str]]) -> int:
    return sum(len(html.escape(part)) for field in fields for part in field)


def _shown(text: str) -> str:
    return text if len(text) <= MAX_SHOWN_CHARACTERS else text[:MAX_SHOWN_CHARACTERS] + "…"
