"""The page of the OpenAPI document."""

import hashlib
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from app.api.http.asgi import Headers
from app.api.http.operation import Operation
from app.api.http.request import Request
from app.api.http.response import JSON, Response, encode

HEADERS: Headers = (
    # Browsers keep a page, and ask by its ETag whether it has changed.
    (b"cache-control", b"no-cache"),
)


def document_pages(document: Callable[[], Mapping[str, Any]]) -> list[Operation]:
    """Return the operations that serve the document. None of them needs an API key."""
    return [_page("/openapi.json", lambda: encode(document()), JSON)]


def _page(path: str, content: Callable[[], bytes], media_type: bytes) -> Operation:
    """Return the operation that serves this content. The first request makes it, and the server keeps it."""

    @cache
    def tagged_content() -> tuple[bytes, str]:
        found = content()
        return found, hashlib.sha256(found).hexdigest()[:32]

    async def read_page(request: Request[None]) -> Response:
        found, tag = tagged_content()
        headers = (*HEADERS, (b"etag", b'"%s"' % tag.encode()))
        if tag in (request.if_none_match() or ()):
            return Response(status=304, headers=headers)
        return Response(content=found, content_type=media_type, headers=headers)

    return Operation(read_page, "GET", path, right=None, tag="index", responses={200: bytes, 304: None})
