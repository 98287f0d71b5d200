"""Answers the requests of AWS SDKs, and passes all others on."""

from collections.abc import Awaitable

from app.http.asgi import ASGI, Receive, Scope, Send
from app.http.context import AppContext
from app.sqs.credentials import SignatureAuthenticator
from app.sqs.handler import QUEUE_PATH, SqsHandler
from app.sqs.json_protocol import JsonProtocol, is_json_request
from app.sqs.query_protocol.protocol import QueryProtocol, is_query_request
from app.sqs.table import SERVICES

API_PREFIX = "/v1/"


def with_sqs(application: ASGI, context: AppContext, url: str | None) -> ASGI:
    """Return the application that answers the requests of AWS SDKs, and passes all others on.

    URLs of queues begin with `url`, or without one with that of the request.
    """
    authenticator = SignatureAuthenticator(context.authenticator, context.sqs_secret, context.broker.clock)
    in_json = SqsHandler(context, JsonProtocol(), authenticator, SERVICES, url)
    in_query = SqsHandler(context, QueryProtocol(), authenticator, SERVICES, url)

    def answer(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        return (handler_of(scope) or application)(scope, receive, send)

    def handler_of(scope: Scope) -> SqsHandler | None:
        path: str = scope["path"]
        if path.startswith(API_PREFIX) or not (path == "/" or QUEUE_PATH.fullmatch(path)):
            return None
        headers = dict(scope["headers"])
        if scope["method"] == "POST" and is_json_request(headers):
            return in_json
        return in_query if is_query_request(scope["method"], headers, scope["query_string"]) else None

    return answer
