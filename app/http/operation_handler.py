"""Answer the requests to one operation: authorize, read, decode, run the endpoint, encode."""

from time import perf_counter
from typing import Any

import structlog

from app.domain.queue import is_valid_name
from app.domain.refusals import BackendUnavailable, Refusal
from app.domain.weight import MESSAGE_OVERHEAD_BYTES
from app.http.answer_headers import finish_of
from app.http.asgi import ClientDisconnected, Receive, Scope, Send
from app.http.authorize import Authorization
from app.http.context import AppContext
from app.http.decoding import body_decoder, entry_counter
from app.http.interface import Interface
from app.http.operation import EmptyBody, Operation
from app.http.query import query_decoder
from app.http.request import Request, invalid_path
from app.http.request_body import UNCOUNTED_BYTES, BodyReservation, read_body
from app.http.request_headers import CONDITIONS, HeaderCheck, RequestHeaders
from app.http.response import Response, head_and_content, send_until_taken

INVALID_NAME = "The name of a {} has 1 to 128 letters, digits, dots, dashes or underscores, and begins and ends with a letter or digit."

_SLOW_BODY_SECONDS = 1.0
"""How long a body may take before the rights of its sender are checked again."""

log = structlog.get_logger("peeklock.api")


class OperationHandler:
    """An ASGI application that answers one operation of an interface.

    The application that finds the operation of a request, by its path or otherwise, puts `path_params` into the scope: a
    value for each parameter in the path of the operation.
    """

    def __init__(self, operation: Operation, context: AppContext, interface: Interface[Any]) -> None:
        self.operation = operation
        self._context = context
        self._endpoint = self._with_reserved_answer if operation.answer_bytes else operation.endpoint
        self._name_parameter = operation.name_parameter
        self._authorization = Authorization(
            interface.authenticate,
            operation.right,
            operation.local_access_policy(context),
            operation.kind,
            operation.lists_own,
        )
        self._read_credential = interface.credential_reader(operation.right)
        self._error_response = interface.error_response
        self._check_headers = _header_check(operation).check
        self._decode = body_decoder(operation.body, is_message=operation.empty_body is EmptyBody.REFUSED)
        self._count_entries = entry_counter(operation.body)
        self._decode_query = query_decoder(operation)
        self._finish = finish_of(operation)
        self._name = operation.name
        self._metrics = context.metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request. Every error becomes an answer of the interface."""
        started_at = perf_counter()
        request_id: str = scope["state"]["request_id"]
        outcome = "ok"
        try:
            response = await self._handle(scope, receive)
        except (Refusal, BackendUnavailable) as error:
            response = self._error_response(error, request_id)
            outcome = error.code
        except ClientDisconnected:
            self._metrics.observe(self._name, "client-gone", started_at)
            return
        except Exception as error:
            log.exception("unexpected error", operation=self.operation.name, request_id=request_id, error=repr(error))
            response = self._error_response(error, request_id)
            outcome = "internal-error"
        await self._respond(receive, send, response)
        self._metrics.observe(self._name, outcome, started_at)

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
        responses = self._context.response_budget
        responses.acquire_unchecked(len(content))
        is_taken = False
        try:
            is_taken = await send_until_taken(receive, send, head, content)
        finally:
            responses.release(len(content))
            if response.on_lost is not None and not is_taken:
                response.on_lost()

    async def _handle(self, scope: Scope, receive: Receive) -> Response:
        headers = RequestHeaders(scope["headers"])
        path: dict[str, str] = scope["path_params"]
        name = path[self._name_parameter] if self._name_parameter else None
        credential = self._read_credential(headers)
        principal = await self._authorization.accept(credential, name, headers, scope["state"])
        if self._name_parameter and name is not None and not is_valid_name(name):
            raise invalid_path(self._name_parameter, INVALID_NAME.format(self.operation.kind))
        max_bytes = self._context.max_request_bytes
        length = self._check_headers(headers, max_bytes)
        query = self._decode_query(scope["query_string"]) if scope["query_string"] or self.operation.query else None
        reservation = BodyReservation(self._context.request_budget)
        try:
            raw, body = b"", None
            # Without a declared body none is read: some of these operations need no key, and a body reserves bytes.
            if self.operation.body is not None:
                reservation.grow(length)
                read_started_at = self._context.broker.clock.monotonic()
                raw = await read_body(receive, length, max_bytes, reservation)
                # A client may take half an hour to send a body, and a revoked key works for seconds.
                if self._context.broker.clock.monotonic() >= read_started_at + _SLOW_BODY_SECONDS:
                    principal = await self._authorization.check(name, credential)
                body = self._decode(raw)
                if self._count_entries is not None:
                    # An entry of two bytes of JSON becomes objects of a thousand bytes.
                    reservation.grow(len(raw) + MESSAGE_OVERHEAD_BYTES * self._count_entries(body))
            request = Request(
                self._context,
                self._context.broker,
                self._authorization,
                credential,
                principal,
                scope["state"],
                path,
                query,
                headers,
                receive,
                raw,
                body,
                scope.get("root_path", ""),
            )
            response = await self._endpoint(request)
            return response if self._finish is None else self._finish(scope, request, response)
        finally:
            reservation.release()

    async def _with_reserved_answer(self, request: Request[Any]) -> Response:
        """Run the endpoint once the answer has its bytes: slow clients may hold those of other answers."""
        async with self._context.response_budget.reserve(self.operation.answer_bytes):
            return await self.operation.endpoint(request)


def _header_check(operation: Operation) -> HeaderCheck:
    read = {name.lower().encode() for name in operation.headers}
    return HeaderCheck(
        unread=frozenset() if operation.is_tolerant else frozenset(CONDITIONS) - read,
        has_body=operation.body is not None,
        is_json=operation.body not in (None, bytes),
        ignores_body=operation.method == "GET",
    )
