"""The site of the documentation, served at `/docs/guide` from a directory that an operator names."""

import mimetypes
from collections.abc import Iterator, Mapping
from functools import partial
from html import escape
from pathlib import Path

from app.api.openapi.pages import HEADERS, HTML, page, redirect
from app.http.asgi import Scope, root_path
from app.http.operation import Operation
from app.http.request_headers import RequestHeaders
from app.http.response import Response

PREFIX = "/docs/guide"
HOME = "index.html"
PAGE = "text/html"
MISSING = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Not found · Peeklock</title>
<h1>The guide has no such page</h1>
<p><a href="{home}">To the first page of the guide</a></p>
</html>
"""
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
    return [redirect(PREFIX, "guide/"), home, *files]


def missing_page(scope: Scope) -> Response | None:
    """Return a page with a link to the guide for a browser that asks for a page that the guide does not have; None for others."""
    accept = RequestHeaders(scope["headers"]).text(b"accept") or ""
    if not scope["path"].startswith(f"{PREFIX}/") or PAGE not in accept.lower():
        return None
    home = escape(f"{root_path(scope)}{PREFIX}/")
    return Response(status=404, content=MISSING.format(home=home).encode(), content_type=HTML, headers=HEADERS)


def _files(directory: Path) -> Iterator[Path]:
    """Yield the files below a directory, without links that lead out of it."""
    top = directory.resolve()
    for file in sorted(directory.rglob("*")):
        if file.is_file() and file.resolve().is_relative_to(top):
            yield file


def _file_page(path: str, file: Path, links: Mapping[str, str]) -> Operation:
    kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
    charset = "; charset=utf-8" if kind.startswith("text/") else ""
    content = partial(_with_links, path, file, links) if kind == PAGE else file.read_bytes
    return page(path, content, f"{kind}{charset}".encode())


def _with_links(path: str, file: Path, links: Mapping[str, str]) -> bytes:
    """Return a page with these links. They are relative to the page, because a proxy may add a path before it."""
    root = "../" * (path.count("/") - 1)
    anchors = "".join(f'<a href="{root}{address}">{text}</a>' for address, text in links.items())
    return file.read_bytes().replace(LINKS_PLACE, anchors.encode())
