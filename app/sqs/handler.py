"""Answer the requests of one protocol: read the signature and the body, find the action, authorize, call and encode."""

import re
from collections.abc import Mapping
from typing import Any

from app.domain.queue import is_valid_name
from app.domain.refusals import BackendUnavailable, QueueNotFound, Refusal
from app.http.asgi import Receive, Scope
from app.http.authorize import Authorization
from app.http.context import AppContext
from app.http.decoding import body_decoder
from app.http.local_access import LocalAccessPolicy
from app.http.request import Request
from app.http.request_body import BodyReservation, read_body
from app.http.request_handler import OPERATION, RequestHandler
from app.http.request_headers import CONDITIONS, HeaderCheck, RequestHeaders
from app.http.response import INTERNAL_ERROR, Response
from app.sqs.call import Action, Call
from app.sqs.credentials import Credential, Credentials
from app.sqs.errors import UnknownAction, aws_error
from app.sqs.protocol import AwsProtocol, NamedAction
from app.sqs.shapes.members import RequestStruct
from app.sqs.signature import SignedRequest

SERVICE = "sqs"
UNKNOWN = "sqs_unknown_action"
QUEUE_PATH = re.compile(r"/[0-9]{12}/[^/]+")
"""The path of a queue's URL. The account has no meaning."""
_MAX_QUOTED = 100
_CHECK_HEADERS = HeaderCheck(unread=frozenset(CONDITIONS), has_body=True, is_json=False, ignores_body=False).check


class SqsHandler(RequestHandler):
    """An ASGI application that answers requests of one protocol."""

    def __init__(
        self,
        context: AppContext,
        protocol: AwsProtocol,
        credentials: Credentials,
        actions: Mapping[str, Action],
        url: str | None,
    ) -> None:
        super().__init__(context, self._error_answer, UNKNOWN)
        self._protocol = protocol
        self._credentials = credentials
        self._actions = actions
        self._url = url
        policy = LocalAccessPolicy(context.is_loopback, requires_json=False, requires_admin_header=False)
        self._authorizations = {
            name: Authorization(credentials.authenticate, action.right, policy, lists_own=action.lists_own)
            for name, action in actions.items()
        }

    async def handle(self, scope: Scope, receive: Receive) -> Response:
        """Answer one request. Refuses as the action does, with an `Unauthenticated`, and with `UnknownAction`."""
        headers = RequestHeaders(scope["headers"])
        signed = SignedRequest(scope["method"], _paths(scope), scope["query_string"], headers)
        credential = await self._credentials.read(signed)
        length = _CHECK_HEADERS(headers, self.context.max_request_bytes)
        reservation = BodyReservation(self.context.request_budget)
        try:
            reservation.grow(length)
            raw = await read_body(receive, length, self.context.max_request_bytes, reservation)
            self._credentials.verify(credential, signed, raw, SERVICE)
            named = self._protocol.read(headers, raw, scope["query_string"])
            call = await self._call(scope, receive, headers, credential, named)
            answer = await self._actions[named.name].endpoint(call)
            return self._protocol.answer(named.name, answer, call.request.request_id)
        finally:
            reservation.release()

    async def _call(
        self, scope: Scope, receive: Receive, headers: RequestHeaders, credential: Credential, named: NamedAction
    ) -> Call[Any]:
        """Return the decoded call, once the client may make it. Refuses with `Forbidden` and `InvalidRequest`."""
        action = self._actions.get(named.name)
        if action is None:
            raise UnknownAction(f"This server does not know the action {named.name[:_MAX_QUOTED]}.")
        scope["state"][OPERATION] = action.operation_name
        body: RequestStruct = body_decoder(action.request)(named.members(action.request))
        name = action.name_of(body, _path_of_queue(scope))
        authorization = self._authorizations[named.name]
        principal = await authorization.accept(credential.key_id, name or None, headers, scope["state"])
        if name and not is_valid_name(name):
            raise QueueNotFound(f"No queue has the name {name[:_MAX_QUOTED]}.")
        scope["path_params"] = path = {"queue": name}
        request = Request(
            self.context,
            self.context.broker,
            authorization,
            credential.key_id,
            principal,
            scope["state"],
            path,
            None,
            headers,
            receive,
            b"",
            None,
            scope.get("root_path", ""),
        )
        return Call(request, body, name, credential.region, self._url or _base_url(scope, headers))

    def _error_answer(self, error: Exception, request_id: str) -> Response:
        is_known = isinstance(error, Refusal | BackendUnavailable)
        return self._protocol.error(aws_error(error), str(error) if is_known else INTERNAL_ERROR, request_id)


def _path_of_queue(scope: Scope) -> str:
    path: str = scope["path"]
    return path if QUEUE_PATH.fullmatch(path) else ""


def _paths(scope: Scope) -> tuple[str, ...]:
    """Return the paths that the client may have signed: with the root path, which a proxy may have removed, or without."""
    path: str = scope["raw_path"].decode("latin-1")
    root: str = scope.get("root_path", "")
    if not root:
        return (path,)
    return (root + path, root, path) if path == "/" else (root + path, path)


def _base_url(scope: Scope, headers: RequestHeaders) -> str:
    """Return the URL at which the client has found the server."""
    host = headers.values.get(b"host", b"").decode("latin-1")
    return f"{scope['scheme']}://{host}{scope.get('root_path', '')}"
