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
from app.sqs.call import Action, Call, Service
from app.sqs.credentials import Credential, SignatureAuthenticator
from app.sqs.errors import UnknownAction
from app.sqs.protocol import QUEUES, AwsProtocol, NamedAction
from app.sqs.shapes.members import RequestStruct
from app.sqs.signature import SignedRequest
from app.wire.decode_errors import shortened

SERVICE = "aws_service"
"""The entry of a request's state with the name of its service, once it is known."""
UNKNOWN = "sqs_unknown_action"
QUEUE_PATH = re.compile(r"/[0-9]{12}/[^/]+")
"""The path of a queue's URL. The account has no meaning."""
_CHECK_HEADERS = HeaderCheck(unread=frozenset(CONDITIONS), has_body=True, is_json=False, ignores_body=False).check


class SqsHandler(RequestHandler):
    """An ASGI application that answers requests of one protocol."""

    def __init__(
        self,
        context: AppContext,
        protocol: AwsProtocol,
        authenticator: SignatureAuthenticator,
        services: Mapping[str, Service],
        url: str | None,
    ) -> None:
        super().__init__(context, UNKNOWN)
        self._protocol = protocol
        self._authenticator = authenticator
        self._services = services
        self._url = url
        policy = LocalAccessPolicy(context.is_loopback, requires_json=False, requires_admin_header=False)
        self._authorizations = {
            action: Authorization(authenticator.authenticate, action.right, policy, lists_own=action.lists_own)
            for service in services.values()
            for action in service.actions.values()
        }

    async def handle(self, scope: Scope, receive: Receive) -> Response:
        """Answer one request. Refuses as the action does, with an `Unauthenticated`, and with `UnknownAction`."""
        headers = RequestHeaders(scope["headers"])
        signed = SignedRequest(scope["method"], _paths(scope), scope["query_string"], headers)
        credential = await self._authenticator.read(signed)
        length = _CHECK_HEADERS(headers, self.context.max_request_bytes)
        reservation = BodyReservation(self.context.request_budget)
        try:
            reservation.grow(length)
            raw = await read_body(receive, length, self.context.max_request_bytes, reservation)
            named = self._protocol.read(headers, raw, scope["query_string"])
            scope["state"][SERVICE] = named.service
            self._authenticator.verify(credential, signed, raw, named.service)
            action = self._action(named)
            scope["state"][OPERATION] = f"{named.service}_{action.endpoint.__name__}"
            body: RequestStruct = body_decoder(action.request)(named.members(action.request))
            call = await self._call(scope, receive, headers, credential, action, body)
            answer = await action.endpoint(call)
            return self._protocol.answer(named, answer, call.request.request_id)
        finally:
            reservation.release()

    def _action(self, named: NamedAction) -> Action:
        """Return the declaration of an action. Refuses with `UnknownAction`."""
        action = self._services[named.service].actions.get(named.name)
        if action is None:
            raise UnknownAction(f"This server does not know the action {shortened(named.name)}.")
        return action

    async def _call(
        self,
        scope: Scope,
        receive: Receive,
        headers: RequestHeaders,
        credential: Credential,
        action: Action,
        body: RequestStruct,
    ) -> Call[Any]:
        """Return the call, once the client may make it. Refuses with `Forbidden` and as `name_of` does."""
        name = action.name_of(body, _path_of_queue(scope))
        authorization = self._authorizations[action]
        principal = await authorization.accept(credential.key_id, name or None, headers, scope["state"])
        if name and not is_valid_name(name):
            raise QueueNotFound(f"No queue has the name {shortened(name)}.")
        scope["path_params"] = path = {"queue": name}
        request = Request(
            context=self.context,
            broker=self.context.broker,
            authorization=authorization,
            credential=credential.key_id,
            principal=principal,
            state=scope["state"],
            path=path,
            query=None,
            headers=headers,
            receive=receive,
            raw_body=b"",
            body=None,
            root_path=scope.get("root_path", ""),
        )
        return Call(request, body, name, credential.region, self._url or _base_url(scope, headers))

    def answer_error(self, error: Exception, state: Mapping[str, Any]) -> Response:
        """Return what the clients of the service are told, those of SQS until the service is known."""
        service = state.get(SERVICE, QUEUES)
        is_known = isinstance(error, Refusal | BackendUnavailable)
        told = self._services[service].error_of(error)
        return self._protocol.error(service, told, str(error) if is_known else INTERNAL_ERROR, state["request_id"])


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
    """Return the URL of the server as the client knows it."""
    host = headers.values.get(b"host", b"").decode("latin-1")
    return f"{scope['scheme']}://{host}{scope.get('root_path', '')}"
