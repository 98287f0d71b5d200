"""Finds the requests of AWS SDKs among all others, and answers them."""

from collections.abc import Awaitable

import msgspec

from app.http.asgi import ASGI, Receive, Scope, Send
from app.http.context import AppContext
from app.sqs.credentials import Credentials
from app.sqs.handler import QUEUE_PATH, SqsHandler
from app.sqs.json_protocol import JsonProtocol, is_json_request
from app.sqs.query_protocol.requests import QueryRequests, is_query_request
from app.sqs.table import SERVICES

API_PREFIX = "/v1/"


class SqsOptions(msgspec.Struct, frozen=True):
    """The settings of this interface: the secret from which those of keys follow, and the URL that precedes those of queues."""

    secret: str | None
    url: str | None


def with_sqs(application: ASGI, context: AppContext, options: SqsOptions) -> ASGI:
    """Return the application that answers the requests of AWS SDKs, and passes all others on."""
    credentials = Credentials(context.authenticator, options.secret, context.broker.clock)
    in_json = SqsHandler(context, JsonProtocol(), credentials, SERVICES, options.url)
    in_query = SqsHandler(context, QueryRequests(), credentials, SERVICES, options.url)

    def answer(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        return (_handler(scope) or application)(scope, receive, send)

    def _handler(scope: Scope) -> SqsHandler | None:
        path: str = scope["path"]
        if path.startswith(API_PREFIX) or not (path == "/" or QUEUE_PATH.fullmatch(path)):
            return None
        headers = dict(scope["headers"])
        if scope["method"] == "POST" and is_json_request(headers):
            return in_json
        return in_query if is_query_request(scope["method"], headers, scope["query_string"]) else None

    return answer
