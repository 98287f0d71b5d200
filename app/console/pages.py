"""Pages from templates. Every value is escaped, and a value that a template does not have is an error."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jinja2
from fastapi import Request
from fastapi.responses import HTMLResponse

import app
from app.console.access import CSRF_FIELD, Visitor, session_secret, set_session_cookie
from app.console.assets import asset_url
from app.console.context import ConsoleContext
from app.domain.instant import Duration, Instant, to_seconds
from app.wire.times import to_wire

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'"
)
HEADERS: Mapping[str, str] = {
    "cache-control": "no-store",
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "vary": "accept-encoding, hx-request",
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
        engine=context.broker.store_description.engine,
        lock_store=context.broker.lock_store.state,
        is_store_up=snapshot.queues is not None or context.activity.number == 0,
        is_store_slow=snapshot.is_slow,
        is_fragment=is_fragment(request),
        **values,
    )
    response = HTMLResponse(page, status, headers=dict(HEADERS))
    if visitor is not None and session_secret(request) != visitor.secret:
        set_session_cookie(request, response, visitor.secret)
    return response


def is_fragment(request: Request) -> bool:
    """Return whether a script of the page asks for a part of it."""
    return request.headers.get("hx-request") == "true" and request.headers.get("hx-request-type") != "full"


def format_number(number: float) -> str:
    """Format a number with separators between thousands."""
    return f"{number:,.0f}"


def format_rate(rate: float) -> str:
    """Format a rate a second: two digits below 10, and a dash for none."""
    if rate == 0:
        return "–"
    return f"{rate:.2f}" if rate < 1 else f"{rate:.1f}" if rate < 10 else f"{rate:,.0f}"


def format_duration(duration: Duration | None) -> str:
    """Format a duration in its two largest units, as `3 h 20 min`; a dash for None."""
    if duration is None:
        return "–"
    seconds = to_seconds(duration)
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, seconds = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {seconds:02d} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes:02d} min"
    return f"{hours // 24} d {hours % 24} h"


def format_bytes(size: float) -> str:
    """Format a number of bytes in the largest unit of 1024 that fits."""
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 10 else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def format_time(instant: Instant) -> str:
    """Format an instant for people, in UTC; a script shows it in the zone of the reader."""
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=instant)).strftime("%Y-%m-%d %H:%M:%S UTC")


FILTERS: Mapping[str, Callable[..., str]] = {
    "number": format_number,
    "rate": format_rate,
    "duration": format_duration,
    "bytes": format_bytes,
    "time": format_time,
    "iso": to_wire,
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
