"""Cross-origin requests: which pages of other sites a browser lets use this server (CORS, in the Fetch standard)."""

from collections.abc import Collection
from typing import Any, cast

from starlette.middleware.cors import CORSMiddleware

from app.api.http.asgi import ASGI

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
READABLE_HEADERS = ("*",)
"""Headers of answers that scripts of a page may read: all of them. A raw receive has a header for each field.

The names would be a kilobyte in each answer. Browsers take the asterisk for requests without cookies, and none is read.
"""

PREFLIGHT_SECONDS = 600
"""How long a browser may keep the permission."""


def allow_origins(application: ASGI, origins: Collection[bytes]) -> ASGI:
    """Return the application wrapped for pages of these origins. Without origins, return it unchanged.

    A page sends an API key as any client does. No cookie is read, so no page can use the rights of a visitor.
    """
    if not origins:
        return application
    return CORSMiddleware(
        cast("Any", application),
        allow_origins=[origin.decode() for origin in origins],
        allow_methods=METHODS,
        allow_headers=["*"],
        expose_headers=READABLE_HEADERS,
        max_age=PREFLIGHT_SECONDS,
    )
