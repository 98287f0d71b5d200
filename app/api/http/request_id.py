"""The front door: every request gets its id here, and a server that is leaving says so on its way out."""

import random
import re

from app.api.http.asgi import ASGI, Event, Headers, Receive, Scope, Send

REQUEST_ID = re.compile(rb"[\x21-\x7e]{1,128}")


class RequestIdMiddleware:
    """Pure ASGI middleware around everything: `X-Request-Id` on every answer, `Connection: close` while draining."""

    def __init__(self, application: ASGI) -> None:
        self._application = application
        self.is_draining = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one request on; anything but HTTP goes straight through."""
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        given = request_id_from(scope["headers"])
        scope.setdefault("state", {})["request_id"] = given.decode()

        async def send_with_id(event: Event) -> None:
            if event["type"] == "http.response.start":
                event["headers"].append((b"x-request-id", given))
                if self.is_draining:
                    event["headers"].append((b"connection", b"close"))
            await send(event)

        await self._application(scope, receive, send_with_id)


def request_id_from(headers: Headers) -> bytes:
    """The caller's own id where it is a harmless one, else a fresh one."""
    for key, value in headers:
        if key == b"x-request-id" and REQUEST_ID.fullmatch(value):
            return value
    # It only has to be another one each time, not a secret, so the operating system need not be asked for it.
    return b"%016x" % random.getrandbits(64)
