"""The site of the documentation, served at `/docs/guide` from a directory that an operator names."""

import mimetypes
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from app.api.openapi.pages import page
from app.http.asgi import Headers
from app.http.operation import Operation
from app.http.request import Request
from app.http.response import Response

PREFIX = "/docs/guide"
HOME = "index.html"
HEADERS: Headers = ((b"location", b"guide/"), (b"cache-control", b"no-cache"))
HTML = "text/html"
LINKS_PLACE = b"<!-- links of the server -->"
"""Where a page of the site gets the links to other pages of the server."""


def guide_pages(directory: Path | None, links: Mapping[str, str]) -> list[Operation]:
    """Return the operations that serve the files of this directory. None of them needs an API key.

    They are the files that exist when the server starts, so no path of a request leads out of the directory. Without a
    directory, or without a home page in it, nothing is served. Each page has these links: texts by their addresses, which
    are relative to the root of the server.
    """
    if directory is None or not (directory / HOME).is_file():
        return []
    names = {f"{PREFIX}/{file.relative_to(directory).as_posix()}": file for file in _files(directory)}
    files = [_file_page(path, file, links) for path, file in names.items()]
    home = _file_page(f"{PREFIX}/", directory / HOME, links)
    # Links of the home page are relative to its folder.
    redirect = Operation(
        _redirect_to_home, "GET", PREFIX, right=None, tag="index", responses={308: None}, is_tolerant=True
    )
    return [redirect, home, *files]


def _files(directory: Path) -> Iterator[Path]:
    """Yield the files below a directory, without links that lead out of it."""
    top = directory.resolve()
    for file in sorted(directory.rglob("*")):
        if file.is_file() and file.resolve().is_relative_to(top):
            yield file


def _file_page(path: str, file: Path, links: Mapping[str, str]) -> Operation:
    kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
    charset = "; charset=utf-8" if kind.startswith("text/") else ""
    content = partial(_with_links, path, file, links) if kind == HTML else file.read_bytes
    return page(path, content, f"{kind}{charset}".encode())


def _with_links(path: str, file: Path, links: Mapping[str, str]) -> bytes:
    """Return a page with these links. They are relative to the page, because a proxy may add a path before it."""
    root = "../" * (path.count("/") - 1)
    anchors = "".join(f'<a href="{root}{address}">{text}</a>' for address, text in links.items())
    return file.read_bytes().replace(LINKS_PLACE, anchors.encode())


async def _redirect_to_home(_request: Request[None]) -> Response:
    return Response(status=308, headers=HEADERS)
