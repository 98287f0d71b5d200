"""Completes answers: adds the link to the next page, or answers 304 if the client has the answer already."""

from collections.abc import Callable
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, quote, urlencode

from app.http.asgi import Scope
from app.http.operation import Operation
from app.http.request import Request
from app.http.response import Response

Finish: TypeAlias = Callable[[Scope, Request[Any], Response], Response]


def finish_of(operation: Operation) -> Finish | None:
    """Return the function that completes the answers of an operation, None if they are complete."""
    if 304 in operation.responses:
        return _unless_unchanged
    return _with_next_link if is_paged(operation) else None


def is_paged(operation: Operation) -> bool:
    """Return whether an operation answers a page of a list."""
    return operation.query is not None and "cursor" in operation.query.__struct_fields__


def _unless_unchanged(_scope: Scope, request: Request[Any], response: Response) -> Response:
    """Answer 304 if the client has this representation (RFC 9110, 13.1.2)."""
    tags = request.if_none_match()
    if tags is None or dict(response.headers)[b"etag"].decode().strip('"') not in tags:
        return response
    return Response(status=304, headers=response.headers)


def _with_next_link(scope: Scope, _request: Request[Any], response: Response) -> Response:
    """Add the link to the next page (RFC 8288), if there is one."""
    cursor = response.body.next_cursor
    if cursor is not None:
        given = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        query = urlencode([*((name, value) for name, value in given if name != "cursor"), ("cursor", cursor)])
        link = f'<{quote(scope["path"])}?{query}>; rel="next"'
        response.headers = (*response.headers, (b"link", link.encode()))
    return response
