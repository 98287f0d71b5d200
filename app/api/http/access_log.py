"""A line at level debug for every request: what was asked of which queue, how it was answered and how soon."""

import logging
import time

import structlog

from app.api.http.asgi import Event, Receive, Scope, Send
from app.api.http.dispatch import Dispatcher
from app.domain.queue import is_valid_name

LOGGER_NAME = "peeklock.access"
log = structlog.get_logger(LOGGER_NAME)


def is_enabled() -> bool:
    """Whether anybody would see them; asked once, when a server starts, so that otherwise no request pays."""
    return logging.getLogger(LOGGER_NAME).isEnabledFor(logging.DEBUG)


class AccessLog:
    """Around a dispatcher. A line has neither path nor headers, which hold tokens and keys, and no body."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, and say so; `status` is null where the client was gone before it was answered."""
        started_at = time.perf_counter()
        status: int | None = None

        async def send_noting(event: Event) -> None:
            nonlocal status
            if event["type"] == "http.response.start":
                status = event["status"]
            await send(event)

        try:
            await self._dispatcher(scope, receive, send_noting)
        finally:
            log.debug(
                "answered",
                operation=self._dispatcher.operation_name(scope),
                method=scope["method"],
                queue=_queue(scope),
                status=status,
                milliseconds=round((time.perf_counter() - started_at) * 1000, 3),
                request_id=scope["state"]["request_id"],
            )


def _queue(scope: Scope) -> str | None:
    """The queue that the path names, where it can be a queue's name and no line of somebody's own making."""
    name = scope.get("path_params", {}).get("queue")
    return name if name is not None and is_valid_name(name) else None
