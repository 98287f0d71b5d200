"""Sign in with an API key, and sign out."""

from urllib.parse import unquote

from fastapi import APIRouter, Depends, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from app.console.access import (
    Context,
    CurrentVisitor,
    check_no_query,
    check_token,
    csrf_token,
    delete_session_cookie,
    new_secret,
    session_secret,
    set_session_cookie,
)
from app.console.context import ConsoleContext
from app.console.form_fields import form_texts, read_fields
from app.console.pages import render
from app.domain.refusals import Unauthenticated

SIGN_IN = "/console/sign-in"
START = "/console"
MAX_SIGN_IN_FIELD_BYTES = 4096
"""The largest field of the form, which every client may send."""

DOT_SEGMENTS = frozenset((".", ".."))
"""Segments with which a path may lead out of the console, even if they are escaped."""

NOT_ACCEPTED = "This API key is not accepted: it does not exist, has expired or was revoked."

router = APIRouter()


@router.get(SIGN_IN)
async def show_sign_in(request: Request, context: Context, next_page: str = START) -> HTMLResponse:
    """Show the form that takes an API key."""
    return _form(request, context, next_page)


@router.post(SIGN_IN)
async def sign_in(request: Request, context: Context) -> Response:
    """Start a session, and go to the page that needed it."""
    check_no_query(request)
    await check_token(request, session_secret(request) or "", MAX_SIGN_IN_FIELD_BYTES)
    fields = dict(await read_fields(request, ("api_key", "next_page")))
    if context.sessions is None:
        return RedirectResponse(START, 303)
    next_page = fields.get("next_page", START)
    try:
        secret = await context.sessions.sign_in(fields.get("api_key", "").strip())
    except Unauthenticated:
        return _form(request, context, next_page, NOT_ACCEPTED, status=401)
    response = RedirectResponse(local_path(next_page), 303)
    set_session_cookie(request, response, secret)
    return response


@router.post("/console/sign-out", dependencies=[Depends(form_texts())])
async def sign_out(request: Request, context: Context, visitor: CurrentVisitor) -> Response:
    """End the session, in the server as well as in the browser."""
    if context.sessions is not None:
        await context.sessions.sign_out(visitor.secret)
        context.visitors.forget(visitor.secret)
    response = RedirectResponse(SIGN_IN, 303)
    delete_session_cookie(request, response)
    return response


def local_path(target: str) -> str:
    """Return the path of a page of this console, and its start page for any other target."""
    path = target.partition("?")[0].partition("#")[0]
    is_below = path.startswith(START + "/") and DOT_SEGMENTS.isdisjoint(unquote(path).split("/"))
    is_here = path == START or is_below
    return target if is_here and target.isprintable() and "\\" not in target else START


def _form(
    request: Request, context: ConsoleContext, next_page: str, error: str | None = None, status: int = 200
) -> HTMLResponse:
    # No visitor is known yet, so the page needs a secret of its own for the token of its form.
    kept = session_secret(request)
    secret = kept or new_secret()
    values = {"csrf_token": csrf_token(secret), "next_page": local_path(next_page), "error": error}
    response = render(request, context, None, "sign_in.html", status, **values)
    if kept is None:
        set_session_cookie(request, response, secret)
    return response
