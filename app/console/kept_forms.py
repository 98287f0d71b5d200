"""What was typed into a form that was refused. The page of the refusal gives it back."""

from collections.abc import Sequence
from dataclasses import dataclass

from fastapi import Request
from starlette.exceptions import HTTPException

from app.console.access import CSRF_FIELD, SAFE_METHODS, check_token, console_context, session_secret
from app.console.forms import read_form
from app.domain.refusals import BackendUnavailable, Refusal

HIDDEN_FIELDS = (CSRF_FIELD, "etag", "idempotency_key", "until", "left", "seen", "confirmed", "done")
"""Fields that no person types. They are sent again, and are not shown."""

SECRET_FIELDS = ("api_key",)
"""Fields that a page never gives back."""


@dataclass(frozen=True, slots=True)
class KeptForm:
    """The fields of a refused form, and those of them that people have typed or chosen."""

    fields: Sequence[tuple[str, str]]
    shown: Sequence[tuple[str, str]]


async def kept_form(request: Request) -> KeptForm | None:
    """Return the form that was refused; None if a page of this console did not send it to a visitor known here.

    A client that is not known gets nothing back, so that no form is read for it.
    """
    secret = session_secret(request)
    if request.method in SAFE_METHODS or secret is None or console_context(request).visitors.find(secret) is None:
        return None
    try:
        await check_token(request, secret)
        sent = (await read_form(request)).multi_items()
    except (Refusal, BackendUnavailable, HTTPException):
        # The form itself was refused: it is foreign or too large.
        return None
    fields = [(name, text) for name, text in sent if isinstance(text, str) and name not in SECRET_FIELDS]
    return KeptForm(fields, [field for field in fields if field[1] and field[0] not in HIDDEN_FIELDS])
