"""Answer the requests to one operation: authorize, read, decode, run the endpoint, encode."""

from collections.abc import Mapping
from typing import Any

from app.domain.queue import is_valid_name
from app.domain.weight import MESSAGE_OVERHEAD_BYTES
from app.http.answer_headers import finish_of
from app.http.asgi import Receive, Scope
from app.http.authorize import Authorization, bearer_token
from app.http.context import AppContext
from app.http.decoding import body_decoder, entry_counter
from app.http.operation import EmptyBody, Operation
from app.http.query import query_decoder
from app.http.request import Request, invalid_path
from app.http.request_body import BodyReservation, read_body
from app.http.request_handler import OPERATION, RequestHandler
from app.http.request_headers import CONDITIONS, HeaderCheck, RequestHeaders
from app.http.response import Response, error_response

INVALID_NAME = "The name of a {} has 1 to 128 letters, digits, dots, dashes or underscores, and begins and ends with a letter or digit."

_SLOW_BODY_SECONDS = 1.0
"""How long a body may take before the rights of its sender are checked again."""


class OperationHandler(RequestHandler):
    """An ASGI application that answers one operation of the API.

    The application that finds the operation of a request, by its path or otherwise, puts `path_params` into the scope: a
    value for each parameter in the path of the operation.
    """

    def __init__(self, operation: Operation, context: AppContext) -> None:
        super().__init__(context, operation.name)
        authenticator = context.authenticator
        self.operation = operation
        self._endpoint = self._with_reserved_answer if operation.answer_bytes else operation.endpoint
        self._name_parameter = operation.name_parameter
        self._authorization = Authorization(
            authenticator and authenticator.authenticate,
            operation.right,
            operation.local_access_policy(context),
            operation.kind,
            operation.lists_own,
        )
        self._needs_key = operation.right is not None and authenticator is not None
        self._check_headers = _header_check(operation).check
        self._decode = body_decoder(operation.body, is_message=operation.empty_body is EmptyBody.REFUSED)
        self._count_entries = entry_counter(operation.body)
        self._decode_query = query_decoder(operation)
        self._finish = finish_of(operation)
        self._name = operation.name

    async def handle(self, scope: Scope, receive: Receive) -> Response:
        """Answer one request. Refuses as the endpoint does."""
        scope["state"][OPERATION] = self._name
        headers = RequestHeaders(scope["headers"])
        path: dict[str, str] = scope["path_params"]
        name = path[self._name_parameter] if self._name_parameter else None
        credential = bearer_token(headers) if self._needs_key else None
        principal = await self._authorization.accept(credential, name, headers, scope["state"])
        if self._name_parameter and name is not None and not is_valid_name(name):
            raise invalid_path(self._name_parameter, INVALID_NAME.format(self.operation.kind))
        max_bytes = self.context.max_request_bytes
        length = self._check_headers(headers, max_bytes)
        query = self._decode_query(scope["query_string"]) if scope["query_string"] or self.operation.query else None
        reservation = BodyReservation(self.context.request_budget)
        try:
            raw, body = b"", None
            # Without a declared body none is read: some of these operations need no key, and a body reserves bytes.
            if self.operation.body is not None:
                reservation.grow(length)
                read_started_at = self.context.broker.clock.monotonic()
                raw = await read_body(receive, length, max_bytes, reservation)
                # A client may take half an hour to send a body, and a revoked key works for seconds.
                if self.context.broker.clock.monotonic() >= read_started_at + _SLOW_BODY_SECONDS:
                    principal = await self._authorization.check(name, credential)
                body = self._decode(raw)
                if self._count_entries is not None:
                    # An entry of two bytes of JSON becomes objects of a thousand bytes.
                    reservation.grow(len(raw) + MESSAGE_OVERHEAD_BYTES * self._count_entries(body))
            request = Request(
                self.context,
                self.context.broker,
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

    def answer_error(self, error: Exception, state: Mapping[str, Any]) -> Response:
        """Return the problem that describes an error."""
        return error_response(error, state["request_id"])

    async def _with_reserved_answer(self, request: Request[Any]) -> Response:
        """Run the endpoint once the answer has its bytes: slow clients may hold those of other answers."""
        async with self.context.response_budget.reserve(self.operation.answer_bytes):
            return await self.operation.endpoint(request)


def _header_check(operation: Operation) -> HeaderCheck:
    read = {name.lower().encode() for name in operation.headers}
    return HeaderCheck(
        unread=frozenset() if operation.is_tolerant else frozenset(CONDITIONS) - read,
        has_body=operation.body is not None,
        is_json=operation.body not in (None, bytes),
        ignores_body=operation.method == "GET",
    )
