"""Cross-origin requests: which pages of other sites a browser lets use this server (CORS, in the Fetch standard)."""

from collections.abc import Collection
from typing import Any, cast

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware

from app.http.asgi import ASGI, Receive, Scope, Send
from app.http.response import problem_response, respond

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
READABLE_HEADERS = ("*",)
"""Headers of answers that scripts of a page may read: all of them. A raw receive has a header for each field.

The names would be a kilobyte in each answer. Browsers take the asterisk for requests without cookies, and none is read.
"""

_PREFLIGHT_SECONDS = 600
"""How long a browser may keep the permission."""

QUESTION = {"origin", "access-control-request-method"}
"""The headers with which a browser asks for permission."""

PERMITTED = 200


def allow_origins(application: ASGI, origins: Collection[bytes]) -> ASGI:
    """Return the application wrapped for pages of these origins. Without origins, return it unchanged.

    A page sends an API key as any client does. No cookie is read, so no page can use the rights of a visitor.
    """
    if not origins:
        return application
    return PageAccess(
        cast("Any", application),
        allow_origins=[origin.decode() for origin in origins],
        allow_methods=METHODS,
        allow_headers=["*"],
        expose_headers=READABLE_HEADERS,
        max_age=_PREFLIGHT_SECONDS,
    )


class PageAccess(CORSMiddleware):
    """Middleware that tells browsers what pages of the listed origins may do. It refuses others with a problem document."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the question of a browser before the request of a page, or let the application answer."""
        if scope["type"] == "http" and scope["method"] == "OPTIONS":
            headers = Headers(scope=cast("Any", scope))
            if QUESTION.issubset(headers) and self.preflight_response(headers).status_code != PERMITTED:
                request_id: str = scope["state"]["request_id"]
                refusal = problem_response(403, "forbidden", self._reason(headers), request_id, ((b"vary", b"Origin"),))
                await respond(send, refusal)
                return
        await super().__call__(cast("Any", scope), cast("Any", receive), cast("Any", send))

    def _reason(self, headers: Headers) -> str:
        origin, method = headers["origin"], headers["access-control-request-method"]
        if not self.is_allowed_origin(origin):
            return f"Pages of {origin} may not use this server. PEEKLOCK_CORS_ORIGINS lists the origins that may."
        if method not in METHODS:
            return f"Pages may not send {method} requests. They may send {', '.join(METHODS)}."
        return "Pages of a public network may not use this server through a private network."
