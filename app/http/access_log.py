"""Log every request at level debug: its operation and queue, the status of the answer, and the duration."""

import logging
import time

import structlog

from app.domain.queue import is_valid_name
from app.http.asgi import ASGI, Event, Receive, Scope, Send
from app.http.request_handler import OPERATION

LOGGER_NAME = "peeklock.access"
log = structlog.get_logger(LOGGER_NAME)


def is_enabled() -> bool:
    """Return whether the level debug is on. A server asks once at its start, so requests pay nothing while it is off."""
    return logging.getLogger(LOGGER_NAME).isEnabledFor(logging.DEBUG)


def with_access_log(application: ASGI) -> ASGI:
    """Return the application with a log of its requests, if the level debug is on."""
    return AccessLog(application) if is_enabled() else application


class AccessLog:
    """Middleware that logs no path, header or body, because these hold tokens, keys and data."""

    def __init__(self, application: ASGI) -> None:
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request and log it. `status` is null if the client disconnected before the answer."""
        started_at = time.perf_counter()
        status: int | None = None

        async def send_and_record(event: Event) -> None:
            nonlocal status
            if event["type"] == "http.response.start":
                status = event["status"]
            await send(event)

        try:
            await self._application(scope, receive, send_and_record)
        finally:
            log.debug(
                "answered",
                operation=scope["state"].get(OPERATION),
                method=scope["method"],
                queue=_queue(scope),
                status=status,
                milliseconds=round((time.perf_counter() - started_at) * 1000, 3),
                request_id=scope["state"]["request_id"],
            )


def _queue(scope: Scope) -> str | None:
    """Return the queue in the path if its name is valid, so that a client cannot forge log lines."""
    name = scope.get("path_params", {}).get("queue")
    return name if name is not None and is_valid_name(name) else None
