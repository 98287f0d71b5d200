"""Answer requests with the endpoint that a subclass runs: every error becomes an answer, and every answer is counted."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from time import perf_counter
from typing import Any

import structlog

from app.domain.refusals import BackendUnavailable, Refusal
from app.http.asgi import ClientDisconnected, Receive, Scope, Send
from app.http.context import AppContext
from app.http.request_body import UNCOUNTED_BYTES
from app.http.response import Response, head_and_content, send_until_taken

OPERATION = "operation"
"""The entry of a request's state with the name of its operation, for metrics and logs."""

log = structlog.get_logger("peeklock.api")


class RequestHandler(ABC):
    """An ASGI application that answers the requests to one or more operations of an interface."""

    def __init__(self, context: AppContext, unknown: str) -> None:
        """Create a handler. `unknown` names the operation in metrics while it is not known."""
        self.context = context
        self._unknown = unknown

    @abstractmethod
    async def handle(self, scope: Scope, receive: Receive) -> Response:
        """Authorize, read and decode a request, run its endpoint and encode the result.

        Sets `OPERATION` in the state of the request once it is known. Refuses as the endpoint does. Raises
        `ClientDisconnected`.
        """

    @abstractmethod
    def answer_error(self, error: Exception, state: Mapping[str, Any]) -> Response:
        """Return the answer to a `Refusal`, a `BackendUnavailable` or an unexpected error in the request with this state."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        started_at = perf_counter()
        outcome = "ok"
        try:
            response = await self.handle(scope, receive)
        except (Refusal, BackendUnavailable) as error:
            response = self.answer_error(error, scope["state"])
            outcome = error.code
        except ClientDisconnected:
            self._observe(scope, "client-gone", started_at)
            return
        except Exception as error:
            operation = scope["state"].get(OPERATION)
            log.exception(
                "unexpected error", operation=operation, request_id=scope["state"]["request_id"], error=repr(error)
            )
            response = self.answer_error(error, scope["state"])
            outcome = "internal-error"
        await self._respond(receive, send, response)
        self._observe(scope, outcome, started_at)

    def _observe(self, scope: Scope, outcome: str, started_at: float) -> None:
        self.context.metrics.observe(scope["state"].get(OPERATION, self._unknown), outcome, started_at)

    async def _respond(self, receive: Receive, send: Send, response: Response) -> None:
        """Send a response. A large one counts in the response budget until the client has taken all but its last bytes.

        A response with `on_lost` counts in any size.
        """
        head, content = head_and_content(response)
        if response.on_lost is None and (len(content) <= UNCOUNTED_BYTES or response.is_shared):
            await send(head)
            await send({"type": "http.response.body", "body": content})
            return
        # Free the messages: only their encoded bytes are needed.
        response.body = None
        responses = self.context.response_budget
        responses.acquire_unchecked(len(content))
        is_taken = False
        try:
            is_taken = await send_until_taken(receive, send, head, content)
        finally:
            responses.release(len(content))
            if response.on_lost is not None and not is_taken:
                response.on_lost()
