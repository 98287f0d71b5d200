"""Give every request an id, and close connections while the server drains."""

import random
import re
from collections.abc import Awaitable

from app.http.asgi import ASGI, Event, Headers, Receive, Scope, Send

REQUEST_ID = re.compile(rb"[\x21-\x7e]{1,128}")


class RequestIdMiddleware:
    """ASGI middleware that adds `X-Request-Id` to every answer, and `Connection: close` while the server drains."""

    def __init__(self, application: ASGI) -> None:
        self._application = application
        self.is_draining = False

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Answer one request with its id."""
        request_id = request_id_from(scope["headers"])
        scope.setdefault("state", {})["request_id"] = request_id.decode()

        def send_with_id(event: Event) -> Awaitable[None]:
            if event["type"] == "http.response.start":
                # A mounted application may leave out the headers, or send the same ones with each answer.
                headers = [*event.get("headers", ()), (b"x-request-id", request_id)]
                if self.is_draining:
                    headers.append((b"connection", b"close"))
                event = {**event, "headers": headers}
            return send(event)

        return self._application(scope, receive, send_with_id)


def request_id_from(headers: Headers) -> bytes:
    """Return the `X-Request-Id` of the client if it is valid, otherwise a new one."""
    for key, value in headers:
        if key == b"x-request-id" and REQUEST_ID.fullmatch(value):
            return value
    # The id must be unique but not secret, so the random generator of the process is enough.
    return b"%016x" % random.getrandbits(64)
