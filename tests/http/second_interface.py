"""An interface without `app/api`: one path, actions named by a header, signed requests, forms and plain text."""

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TypeAlias
from urllib.parse import parse_qs

from app.broker.receiving.receive import ReceiveRequest
from app.broker.sending.send import send
from app.broker.settling.outcomes import complete
from app.domain.access import ANY_RIGHT, Principal, Right
from app.domain.message import BodyKind, Envelope
from app.domain.refusals import Refusal, Unauthenticated
from app.domain.sending import NewMessage
from app.domain.settlement import LockToken, Settled, token_of
from app.http.asgi import Receive, Scope, Send
from app.http.authorize import authorize
from app.http.context import AppContext
from app.http.interface import Interface
from app.http.operation import Operation, operation
from app.http.operation_handler import OperationHandler
from app.http.problems import status_of
from app.http.receiving import loss_counter, receive_unless_disconnected
from app.http.request import Request
from app.http.request_headers import RequestHeaders
from app.http.response import Response, respond
from app.http.settling import settle_batch

PATH = "/actions"
TEXT = b"text/plain"
SECRET = b"known to every client"

Signature: TypeAlias = tuple[str, str]
"""The name of a client, and what it has signed its name with."""


def signature(client: str) -> str:
    """Return the signature of a client."""
    return hmac.digest(SECRET, client.encode(), hashlib.sha256).hex()


@operation("POST", PATH, right=ANY_RIGHT, tag="actions", body=bytes, responses={200: bytes})
async def put(request: Request[bytes]) -> Response:
    """Send the text of a form to its queue."""
    form = _form(request)
    authorize(request.principal, Right.SEND, form["queue"])
    message = NewMessage(Envelope(""), form["text"].encode(), BodyKind.BYTES)
    (receipt,) = (await send(request.broker.sending, form["queue"], [message])).result
    return _text(f"sent {receipt.sequence_number}")


@operation("POST", PATH, right=ANY_RIGHT, tag="actions", body=bytes, responses={200: bytes})
async def take(request: Request[bytes]) -> Response:
    """Complete the message with the token `done`, if one is given, and receive the next one."""
    form = _form(request)
    authorize(request.principal, Right.LISTEN, form["queue"])
    queue = await request.broker.queue_cache.by_name(form["queue"])
    if "done" in form:
        (result,) = await settle_batch(request.broker, queue, [complete(queue, LockToken.parse(form["done"]))])
        if not isinstance(result, Settled):
            return _text(f"not completed: {result}", 409)
    listening = replace(request.authorization, right=Right.LISTEN)
    wanted = ReceiveRequest(
        wait_seconds=float(form.get("seconds", 0)),
        check_access=partial(listening.check, queue.name, request.credential),
    )
    received = await receive_unless_disconnected(request, queue, wanted, None)
    if not received.messages:
        return _text("nothing")
    (message,) = received.messages
    response = _text(f"{token_of(message)} {message.body.decode()}")
    response.on_lost = loss_counter(request, wanted, received.messages)
    return response


class SecondInterface:
    """An ASGI application that finds the operation of a request by the header `X-Action`."""

    def __init__(self, context: AppContext, clients: Mapping[str, Principal]) -> None:
        self._clients = clients
        interface = Interface(_read_signature, self._authenticate, _error_response)
        operations: dict[bytes, Operation] = {b"Put": put, b"Take": take}
        self._handlers = {action: OperationHandler(found, context, interface) for action, found in operations.items()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        handler = self._handlers.get(dict(scope["headers"]).get(b"x-action", b""))
        if handler is None:
            await respond(send, _text("no such action", 400))
            return
        await handler({**scope, "path_params": {}}, receive, send)

    async def _authenticate(self, credential: Signature) -> Principal:
        client, signed = credential
        if client not in self._clients or not hmac.compare_digest(signed, signature(client)):
            raise Unauthenticated
        return self._clients[client]


def _read_signature(headers: RequestHeaders) -> Signature:
    client, _, signed = headers.values.get(b"x-signed-by", b"").decode().partition(":")
    return client, signed


def _error_response(error: Exception, request_id: str) -> Response:
    if isinstance(error, Refusal):
        return _text(f"refused: {error.code}", status_of(type(error)))
    return _text(f"failed: {request_id}", 500)


def _form(request: Request[bytes]) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(request.body.decode()).items()}


def _text(text: str, status: int = 200) -> Response:
    return Response(status=status, content=text.encode(), content_type=TEXT)
