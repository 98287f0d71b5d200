"""The application of the console: its pages, and what becomes of a refusal."""

from collections.abc import AsyncGenerator, Awaitable
from contextlib import asynccontextmanager
from urllib.parse import quote

import structlog
from fastapi import FastAPI, Request
from fastapi.responses import RedirectResponse, Response
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import ClientDisconnect

from app.broker.access.sessions import Sessions
from app.console import (
    assets,
    dead_letters,
    deletion,
    keys,
    live,
    message_forms,
    messages,
    moves,
    new_queue,
    overview,
    queue_settings,
    queues,
    resubmission,
    selection,
    signing_in,
    states,
    topic_settings,
    topics,
    trail,
    transactions,
)
from app.console.access import SAFE_METHODS, SignInNeeded, console_context, known_visitor, may_have_effect
from app.console.consumers import PausedConsumers
from app.console.context import ConsoleContext
from app.console.forms import FormBodyLimit, fault_answer, wants_json
from app.console.kept_forms import kept_form
from app.console.known_visitors import KnownVisitors
from app.console.pages import render
from app.console.reporting import Reporting
from app.console.signing_in import SIGN_IN
from app.console.summaries import Summaries
from app.console.total_plots import PlotsOfAll
from app.domain.refusals import BackendUnavailable, Refusal, StoreUnavailable
from app.http.asgi import ASGI, Receive, Scope, Send
from app.http.context import AppContext
from app.http.local_access import LocalAccessPolicy
from app.http.problems import TITLES, status_of
from app.http.queue_statistics import QueueStatistics

PREFIX = "/console"
ROUTERS = (
    assets.router,
    signing_in.router,
    live.router,
    overview.router,
    new_queue.router,
    queues.router,
    queue_settings.router,
    message_forms.router,
    messages.router,
    dead_letters.router,
    moves.router,
    selection.router,
    resubmission.router,
    trail.router,
    topics.router,
    topic_settings.router,
    states.router,
    transactions.router,
    keys.router,
    deletion.router,
)
MIN_COMPRESSED_BYTES = 1024
STORE_AWAY = "The database does not answer"
DOUBT = "It is not known whether this request took effect."

log = structlog.get_logger("peeklock.console")


@asynccontextmanager
async def open_console(
    context: AppContext, sessions: Sessions | None, reporting: Reporting, report_url: str | None
) -> AsyncGenerator[FastAPI]:
    """Keep the activity of queues up to date, and return the application of the console."""
    broker, clock, activity = context.broker, context.broker.clock, reporting.activity
    # Statistics of its own: those of /metrics are then as new as without a console.
    statistics = QueueStatistics(broker.store.queues, broker.lock_store, broker.counters, clock)
    paused = PausedConsumers(broker.consumers)
    policy = LocalAccessPolicy(context.is_loopback, requires_json=False, requires_admin_header=False)
    console = ConsoleContext(
        broker,
        context.authenticator,
        sessions,
        policy,
        activity,
        paused,
        Summaries(activity, paused),
        PlotsOfAll(activity),
        statistics,
        KnownVisitors(clock),
        context.long_poll_cap_seconds,
        context.max_request_bytes,
        context.request_budget,
        report_url,
        context.guide_dir is not None,
        context.sqs_secret,
    )

    async def sample() -> float:
        await paused.read()
        return await activity.sample(statistics, reporting.directory)

    try:
        async with reporting.repeat(sample, clock):
            yield build_console(console)
    finally:
        await statistics.close()


def build_console(context: ConsoleContext) -> FastAPI:
    """Return the application that answers what is at or below `/console`."""
    console = FastAPI(openapi_url=None, redirect_slashes=False, max_body_size=context.max_request_bytes)
    console.state.context = context
    for router in ROUTERS:
        console.include_router(router)
    console.add_exception_handler(SignInNeeded, _ask_to_sign_in)
    console.add_exception_handler(Refusal, _show_refusal)
    console.add_exception_handler(BackendUnavailable, _show_refusal)
    console.add_exception_handler(HTTPException, _show_http_error)
    console.add_exception_handler(ClientDisconnect, _answer_gone_client)
    console.add_exception_handler(Exception, _show_failure)
    console.add_middleware(FormBodyLimit, budget=context.request_budget)
    console.add_middleware(GZipMiddleware, minimum_size=MIN_COMPRESSED_BYTES)
    return console


def with_console(api: ASGI, console: ASGI) -> ASGI:
    """Return the application that answers the console's paths by the console, and all others by the API."""

    def answer(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        is_page = scope["path"] == PREFIX or scope["path"].startswith(PREFIX + "/")
        return (console if is_page else api)(scope, receive, send)

    return answer


async def _ask_to_sign_in(request: Request, _: Exception) -> Response:
    wanted = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    target = SIGN_IN if request.method != "GET" else f"{SIGN_IN}?next_page={quote(wanted)}"
    return RedirectResponse(target, 303)


async def _show_refusal(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal | BackendUnavailable)
    if isinstance(error, Refusal):
        return await _error_page(request, status_of(type(error)), str(error))
    is_away = isinstance(error, StoreUnavailable)
    detail = _with_doubt(request, str(error)) if is_away else str(error)
    return await _error_page(request, 503, detail, STORE_AWAY if is_away else None)


async def _show_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    detail = "The console has no such page." if error.status_code == 404 else str(error.detail)
    return await _error_page(request, error.status_code, detail)


async def _answer_gone_client(_: Request, __: Exception) -> Response:
    """Answer a client that has gone before its form had arrived: nothing has failed here, and no page is read."""
    return Response(status_code=400)


async def _show_failure(request: Request, error: Exception) -> Response:
    log.error("unexpected error", path=request.url.path, request_id=request.state.request_id, exc_info=error)
    detail = "Something went wrong here that should not have. The server's log has the cause."
    return await _error_page(request, 500, _with_doubt(request, detail))


def _with_doubt(request: Request, detail: str) -> str:
    """Add that a form may have taken effect, unless the text says something about this request itself."""
    is_settled = not may_have_effect(request) or "this request" in detail.lower()
    return detail if is_settled else f"{detail} {DOUBT}"


async def _error_page(request: Request, status: int, detail: str, title: str | None = None) -> Response:
    if wants_json(request):
        return fault_answer(status, detail)
    context = console_context(request)
    return render(
        request,
        context,
        known_visitor(request),
        "error.html",
        status,
        code=status,
        title=title or TITLES.get(status, "Refused"),
        detail=detail,
        request_id=request.state.request_id,
        is_page=request.method in SAFE_METHODS,
        has_figures=title == STORE_AWAY and context.activity.read_at is not None,
        kept=await kept_form(request),
    )
