"""The site of the documentation, served at `/docs/guide` from a directory that an operator names."""

import mimetypes
from collections.abc import Iterator
from pathlib import Path

from app.api.openapi.pages import page
from app.http.asgi import Headers
from app.http.operation import Operation
from app.http.request import Request
from app.http.response import Response

PREFIX = "/docs/guide"
HOME = "index.html"
HEADERS: Headers = ((b"location", b"guide/"), (b"cache-control", b"no-cache"))


def guide_pages(directory: Path | None) -> list[Operation]:
    """Return the operations that serve the files of this directory. None of them needs an API key.

    They are the files that exist when the server starts, so no path of a request leads out of the directory. Without a
    directory, or without a home page in it, nothing is served.
    """
    if directory is None or not (directory / HOME).is_file():
        return []
    files = [_file_page(f"{PREFIX}/{file.relative_to(directory).as_posix()}", file) for file in _files(directory)]
    home = _file_page(f"{PREFIX}/", directory / HOME)
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


def _file_page(path: str, file: Path) -> Operation:
    kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
    charset = "; charset=utf-8" if kind.startswith("text/") else ""
    return page(path, file.read_bytes, f"{kind}{charset}".encode())


async def _redirect_to_home(_request: Request[None]) -> Response:
    return Response(status=308, headers=HEADERS)
