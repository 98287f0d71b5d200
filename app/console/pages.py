"""Pages from templates. Every value is escaped, and a value that a template does not have is an error."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import jinja2
from fastapi import Depends, Request
from fastapi.responses import HTMLResponse

import app
from app.console.access import CSRF_FIELD, Context, CurrentVisitor, Visitor, session_secret, set_session_cookie
from app.console.assets import asset_url
from app.console.context import ConsoleContext
from app.console.formats import (
    format_bytes,
    format_duration,
    format_exact_bytes,
    format_number,
    format_rate,
    format_time,
    mark_code,
    mark_times,
)
from app.console.results import result_of
from app.console.servers import scope_note
from app.console.sizes import exact_beside
from app.domain.plurals import count_of
from app.http.asgi import root_path
from app.wire.times import to_wire

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'"
)
HEADERS: Mapping[str, str] = {
    "cache-control": "no-store",
    "content-security-policy": CONTENT_SECURITY_POLICY,
    # Without a referrer a browser sends forms with the origin `null`, which is that of no page of this console.
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "vary": "accept-encoding",
}


def render(
    request: Request, context: ConsoleContext, visitor: Visitor | None, template: str, status: int = 200, **values: Any
) -> HTMLResponse:
    """Return a page. A visitor without a session gets a cookie, so that the page may send forms."""
    snapshot = context.activity.snapshot
    page = templates.get_template(template).render(
        visitor=visitor,
        version=app.__version__,
        csrf_field=CSRF_FIELD,
        path=request.url.path,
        root=root_path(request.scope),
        engine=context.broker.store.engine,
        lock_store=context.broker.lock_store.state,
        is_store_up=snapshot.queues is not None or context.activity.number == 0,
        is_store_slow=snapshot.is_slow,
        report_url=context.report_url,
        has_guide=context.has_guide,
        takes_no_keys=context.authenticator is None,
        scope=scope_note(context.activity),
        result=result_of(request),
        **values,
    )
    response = HTMLResponse(page, status, headers=dict(HEADERS))
    if visitor is not None and session_secret(request) != visitor.secret:
        set_session_cookie(request, response, visitor.secret)
    return response


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A request for a page: the server's context, and who asks."""

    request: Request
    context: ConsoleContext
    visitor: Visitor

    def render(self, template: str, status: int = 200, **values: Any) -> HTMLResponse:
        """Return a page."""
        return render(self.request, self.context, self.visitor, template, status, **values)

    def query(self, name: str) -> str:
        """Return a value in the address, empty without one. It has no NUL, which PostgreSQL stores in no text."""
        return self.request.query_params.get(name, "").replace("\0", "").strip()


def page_request(request: Request, context: Context, visitor: CurrentVisitor) -> PageRequest:
    """Return the request for a page."""
    return PageRequest(request, context, visitor)


CurrentPage: TypeAlias = Annotated[PageRequest, Depends(page_request)]


FILTERS: Mapping[str, Callable[..., str]] = {
    "number": format_number,
    "counted": count_of,
    "rate": format_rate,
    "duration": format_duration,
    "bytes": format_bytes,
    "exact_bytes": format_exact_bytes,
    "exact_beside": exact_beside,
    "time": format_time,
    "iso": to_wire,
    "mark_times": mark_times,
    "mark_code": mark_code,
}


def _templates() -> jinja2.Environment:
    environment: Any = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"sort_keys": False}
    environment.filters.update(FILTERS)
    environment.globals.update(asset=asset_url)
    return environment


templates = _templates()
