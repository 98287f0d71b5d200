"""Who looks at a page, and what they may do.

People sign in with an API key, and their browser keeps a session instead (`app/broker/access/sessions.py`). On a server that needs
no key yet, they need not sign in; the checks of `LocalAccessPolicy` then keep pages of other sites out. A request that
changes something carries a token that only pages of this console know.
"""

import hmac
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, TypeAlias

from fastapi import Depends, Request, Response

from app.console.context import ConsoleContext
from app.console.forms import MAX_FIELD_BYTES, read_form
from app.console.known_visitors import KnownVisitor
from app.domain.access import ANONYMOUS, Principal, Right
from app.domain.instant import to_seconds
from app.domain.queue import is_valid_name
from app.domain.refusals import Forbidden, InvalidRequest, NotFound, StoreUnavailable, Unauthenticated
from app.domain.session import SESSION_BYTES, SESSION_DURATION
from app.http.asgi import root_path
from app.http.authorize import IS_AUTHENTICATED, authorize
from app.http.local_access import is_same_origin

COOKIE, SECURE_COOKIE, HOST_COOKIE = "peeklock_session", "__Secure-peeklock_session", "__Host-peeklock_session"
"""The names of the session's cookie: over HTTP, over HTTPS below a root path, and over HTTPS at the root of a host. No other
host can set the last one. Other servers may share the host, so a cookie below a root path is sent only there."""

CSRF_FIELD, CSRF_HEADER = "csrf_token", "x-csrf-token"
SAFE_METHODS = ("GET", "HEAD")
MAX_SECRET_LENGTH = 128

NO_QUERY = "This form takes no query. Send its fields in the body."
FOREIGN_FORM = "This form was not sent by a page of this console, or its page is too old. Load the page again."


class SignInNeeded(Exception):
    """The page needs a session."""


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who looks at a page. `secret` is that of the session, or random if no session is needed."""

    principal: Principal
    secret: str
    is_signed_in: bool

    @property
    def csrf_token(self) -> str:
        """The token that requests of this visitor carry if they change something."""
        return csrf_token(self.secret)

    def may(self, right: str, name: str | None = None) -> bool:
        """Return whether the visitor holds the right on a queue, topic or state; None asks for all of them."""
        return self.principal.grant.allows(Right(right), name)

    def may_somewhere(self, right: str) -> bool:
        """Return whether the visitor holds the right on any names."""
        return Right(right) in self.principal.grant.rights

    def require(self, right: Right, name: str | None, kind: str = "queue") -> None:
        """Refuse with `Forbidden` a visitor without this right."""
        authorize(self.principal, right, name, kind)


def csrf_token(secret: str) -> str:
    """Return the token of the pages that this visitor has loaded."""
    return hmac.digest(secret.encode(), b"csrf token", "sha256").hex()


def console_context(request: Request) -> ConsoleContext:
    """Return what the pages of this server share."""
    context: ConsoleContext = request.app.state.context
    return context


async def current_visitor(request: Request) -> Visitor:
    """Return who looks at the page. Refuses with `Forbidden` requests from other sites.

    Raises `SignInNeeded` without a session, where one is needed.
    """
    visitor = await _look_up_visitor(request)
    request.scope["state"][IS_AUTHENTICATED] = True
    console_context(request).visitors.remember(visitor.secret, KnownVisitor(visitor.principal, visitor.is_signed_in))
    if request.method not in SAFE_METHODS:
        check_no_query(request)
        await check_token(request, visitor.secret)
        # A form may arrive slowly, and the session may end meanwhile.
        await read_form(request)
        visitor = await _look_up_visitor(request)
        request.state.may_have_effect = True
    return visitor


def may_have_effect(request: Request) -> bool:
    """Return whether the request has come so far that it may have changed something."""
    return getattr(request.state, "may_have_effect", False)


def known_visitor(request: Request) -> Visitor | None:
    """Return the visitor as the database has last described them, None if this process does not know them."""
    context, secret = console_context(request), session_secret(request)
    known = None if secret is None else context.visitors.find(secret)
    if secret is None or known is None:
        return None
    if not known.is_signed_in and context.policy.origin_violation(dict(request.headers.raw)):
        return None
    return Visitor(known.principal, secret, known.is_signed_in)


async def current_or_known_visitor(request: Request) -> Visitor:
    """Return who looks at figures that are in memory: as `current_visitor`, or while the database is away as last known."""
    try:
        return await current_visitor(request)
    except StoreUnavailable:
        if (visitor := known_visitor(request)) is None:
            raise
        return visitor


Context: TypeAlias = Annotated[ConsoleContext, Depends(console_context)]
CurrentVisitor: TypeAlias = Annotated[Visitor, Depends(current_visitor)]
CurrentOrKnownVisitor: TypeAlias = Annotated[Visitor, Depends(current_or_known_visitor)]


def needs(right: Right, parameter: str | None = None, kind: str = "queue") -> Callable[..., Awaitable[None]]:
    """Return the dependency of a page that needs this right on what a path parameter names; without one, on everything.

    It refuses with `NotFound` what is no name: not every store can look for such a text.
    """

    async def check(request: Request, visitor: CurrentVisitor) -> None:
        name: str | None = request.path_params[parameter] if parameter else None
        visitor.require(right, name, kind)
        if name is not None and not is_valid_name(name):
            raise NotFound(f"This is not the name of a {kind}.")

    return check


def check_no_query(request: Request) -> None:
    """Refuse with `InvalidRequest` a query beside a form, such as `?dry_run=true`: it would be ignored."""
    if request.url.query:
        raise InvalidRequest(NO_QUERY)


async def check_token(request: Request, secret: str, max_field_bytes: int = MAX_FIELD_BYTES) -> None:
    """Refuse with `Forbidden` a request that no page of this console has sent to this visitor's session."""
    origin, host = request.headers.get("origin"), request.headers.get("host", "")
    if origin is not None and not is_same_origin(origin.lower(), host.lower()):
        raise Forbidden(FOREIGN_FORM)
    token = request.headers.get(CSRF_HEADER)
    if token is None:
        field = (await read_form(request, max_field_bytes)).get(CSRF_FIELD)
        token = field if isinstance(field, str) else ""
    if not hmac.compare_digest(token.encode(), csrf_token(secret).encode()):
        raise Forbidden(FOREIGN_FORM)


def session_secret(request: Request) -> str | None:
    """Return the secret in the cookie of a request, None without one."""
    secret = request.cookies.get(secure_cookie(request)) or request.cookies.get(COOKIE)
    return secret if secret and len(secret) <= MAX_SECRET_LENGTH else None


def set_session_cookie(request: Request, response: Response, secret: str) -> None:
    """Let the browser keep a session until it ends. Scripts and other sites never get it."""
    is_https = is_over_https(request)
    name = secure_cookie(request) if is_https else COOKIE
    response.set_cookie(
        name,
        secret,
        max_age=int(to_seconds(SESSION_DURATION)),
        path=cookie_path(request, name),
        secure=is_https,
        httponly=True,
        samesite="strict",
    )


def delete_session_cookie(request: Request, response: Response) -> None:
    """Let the browser forget the session."""
    for name in (COOKIE, secure_cookie(request)):
        path, secure = cookie_path(request, name), name != COOKIE
        response.delete_cookie(name, path=path, secure=secure, httponly=True, samesite="strict")


def secure_cookie(request: Request) -> str:
    """Return the name of the cookie over HTTPS."""
    return SECURE_COOKIE if root_path(request.scope) else HOST_COOKIE


def cookie_path(request: Request, name: str) -> str:
    """Return the path to which a browser sends a cookie."""
    return "/" if name == HOST_COOKIE else f"{root_path(request.scope)}/console"


def is_over_https(request: Request) -> bool:
    """Return whether the browser uses HTTPS. A trusted proxy reports it, or the browser shows it: by the origin of a form, or
    by a cookie that it sends only over HTTPS."""
    says_https = request.headers.get("origin", "").startswith("https://") or secure_cookie(request) in request.cookies
    return request.url.scheme == "https" or says_https


def new_secret() -> str:
    """Return a new secret for a visitor without a session."""
    return secrets.token_urlsafe(SESSION_BYTES)


async def _look_up_visitor(request: Request) -> Visitor:
    context, secret = console_context(request), session_secret(request)
    try:
        return await _signed_in(context, secret) or await _anonymous(context, request, secret)
    except SignInNeeded:
        if secret is not None:
            context.visitors.forget(secret)
        raise


async def _signed_in(context: ConsoleContext, secret: str | None) -> Visitor | None:
    if context.sessions is None or secret is None:
        return None
    try:
        return Visitor(await context.sessions.find(secret), secret, is_signed_in=True)
    except Unauthenticated:
        return None


async def _anonymous(context: ConsoleContext, request: Request, secret: str | None) -> Visitor:
    """Return a visitor of a server that needs no API key."""
    if context.authenticator is not None:
        try:
            await context.authenticator.authenticate(None)
        except Unauthenticated:
            raise SignInNeeded from None
    if violation := context.policy.origin_violation(dict(request.headers.raw)):
        raise Forbidden(violation)
    return Visitor(ANONYMOUS, secret or new_secret(), is_signed_in=False)
