"""The pages for readers of the API: the OpenAPI document, and Swagger UI, which shows it at `/docs` with samples of code.

The files of Swagger UI are part of this package, so the page loads nothing from another server.
"""

import hashlib
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from app.api.openapi.code_samples import SERVER, code_samples
from app.api.openapi.document import served_below
from app.http.asgi import Headers
from app.http.operation import Endpoint, Operation
from app.http.request import Request
from app.http.response import JSON, Response, encode

FILES = Path(__file__).with_name("page_files")
VIEWER_FILES: Mapping[str, tuple[str, bytes]] = {
    "/docs/docs.css": ("docs.css", b"text/css; charset=utf-8"),
    "/docs/docs.js": ("docs.js", b"text/javascript; charset=utf-8"),
    "/docs/swagger-ui-bundle.js": ("swagger-ui/swagger-ui-bundle.js", b"text/javascript; charset=utf-8"),
    "/docs/swagger-ui.css": ("swagger-ui/swagger-ui.css", b"text/css; charset=utf-8"),
    "/docs/favicon-32x32.png": ("swagger-ui/favicon-32x32.png", b"image/png"),
}
"""The file and the media type of each path that the page at `/docs` loads."""

HTML = b"text/html; charset=utf-8"

LINKS_PLACE = b"<!-- links -->"
"""Where `docs.html` gets the links to other pages of the server."""

_MAX_ROOT_PATHS = 4
"""Root paths for which a process keeps the document. Each keeps a copy of it."""

CONTENT_SECURITY_POLICY = (
    # Swagger UI's style sheet contains its icons as data.
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS: Headers = (
    # Browsers keep a page, and ask by its ETag whether it has changed.
    (b"cache-control", b"no-cache"),
    (b"content-security-policy", CONTENT_SECURITY_POLICY),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
)


def document_pages(document: Callable[[], Mapping[str, Any]], links: Mapping[str, str]) -> list[Operation]:
    """Return the operations that serve the document and its viewer. None of them needs an API key.

    The viewer has these links: texts by their addresses, which are relative to `/docs`.
    """
    files = [page(path, (FILES / name).read_bytes, kind) for path, (name, kind) in VIEWER_FILES.items()]
    anchors = "".join(f'<a href="{address}">{text}</a>' for address, text in links.items()).encode()

    def viewer() -> bytes:
        return (FILES / "docs.html").read_bytes().replace(LINKS_PLACE, anchors)

    def samples() -> bytes:
        return encode({"server": SERVER, "samples": code_samples(document())})

    return [
        _document_page(document),
        page("/docs", viewer, HTML),
        redirect("/docs/", "../docs"),
        page("/docs/code-samples.json", samples, JSON),
        *files,
    ]


def page(path: str, content: Callable[[], bytes], media_type: bytes) -> Operation:
    """Return the operation that serves this content. The first request makes it, and the server keeps it.

    No API key is needed, and a page loads only what this server has. Its query is for its scripts, such as the words of a search.
    """

    @cache
    def answer() -> Response:
        return _tagged(content(), media_type)

    async def read_page(_request: Request[None]) -> Response:
        return answer()

    return _operation(path, read_page)


def redirect(path: str, target: str) -> Operation:
    """Return the operation that leads from a path to another, which is relative to it, because a proxy may add a path."""
    answer = Response(status=308, headers=((b"location", target.encode()), (b"cache-control", b"no-cache")))

    async def lead(_request: Request[None]) -> Response:
        return answer

    return Operation(lead, "GET", path, right=None, tag="index", responses={308: None}, is_tolerant=True)


def _document_page(document: Callable[[], Mapping[str, Any]]) -> Operation:
    """Return the operation that serves the document. It names the path below which a client finds this server."""

    @lru_cache(maxsize=_MAX_ROOT_PATHS)
    def answer(root_path: str) -> Response:
        return _tagged(encode(served_below(root_path, document())), JSON)

    async def read_document(request: Request[None]) -> Response:
        return answer(request.root_path)

    return _operation("/openapi.json", read_document)


def _tagged(content: bytes, media_type: bytes) -> Response:
    tag = hashlib.sha256(content).hexdigest()[:32]
    headers = (*HEADERS, (b"etag", b'"%s"' % tag.encode()))
    return Response(content=content, content_type=media_type, headers=headers, is_shared=True)


def _operation(path: str, endpoint: Endpoint) -> Operation:
    return Operation(
        endpoint, "GET", path, right=None, tag="index", responses={200: bytes, 304: None}, is_tolerant=True
    )
