"""Find the operation of a request in a table, keyed by the method and the number of path segments.

The table comes from the declarations that the document is made of, so nothing is declared twice. Other paths go to the
framework. Matching the regular expressions of the framework's router costs more than all other work that a frequent
request needs before the broker.
"""

from collections.abc import Iterable
from typing import NamedTuple
from urllib.parse import unquote

from app.api.http.asgi import ASGI, Event, Receive, Scope, Send
from app.api.http.operation_handler import OperationHandler
from app.api.http.response import Response, problem_response, respond


class _Route(NamedTuple):
    """`reserved` are the literal segments of other paths where this path has a parameter; the parameter excludes them."""

    literals: tuple[tuple[int, str], ...]
    parameters: tuple[tuple[int, str], ...]
    reserved: frozenset[tuple[int, str]]
    handler: OperationHandler


class Dispatcher:
    """Pass a request to the handler of its operation, or to `fallback`."""

    def __init__(self, handlers: Iterable[OperationHandler], fallback: ASGI) -> None:
        self.handlers = tuple(handlers)
        self.fallback = fallback
        self._table: dict[tuple[str, int], list[_Route]] = {}
        paths = [handler.operation.path.split("/") for handler in self.handlers]
        for path, handler in zip(paths, self.handlers, strict=True):
            key = (handler.operation.method, len(path))
            self._table.setdefault(key, []).append(_route(path, paths, handler))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request. HEAD is answered as GET, without the body."""
        if scope["type"] != "http":
            await self.fallback(scope, receive, send)
            return
        method: str = scope["method"]
        segments = _segments(scope)
        if method == "HEAD":
            method, send = "GET", _without_body(send)
        for route in self._table.get((method, len(segments)), ()):
            if _matches(route, segments):
                scope["path_params"] = {name: segments[index] for index, name in route.parameters}
                await route.handler(scope, receive, send)
                return
        if allowed := self._allowed(segments):
            await respond(send, _not_allowed(scope, allowed))
        else:
            await self.fallback(scope, receive, send)

    def operation_name(self, scope: Scope) -> str | None:
        """Return the operation that answers a request, None without one. The access log uses it, so it is not optimized."""
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        segments = _segments(scope)
        routes = self._table.get((method, len(segments)), ())
        return next((route.handler.operation.name for route in routes if _matches(route, segments)), None)

    def _allowed(self, segments: list[str]) -> list[str]:
        """Return the methods of this path."""
        methods = {
            method
            for (method, length), routes in self._table.items()
            if length == len(segments) and any(_matches(route, segments) for route in routes)
        }
        return sorted(methods | {"HEAD"} if "GET" in methods else methods)


def _segments(scope: Scope) -> list[str]:
    """Return the segments of a path. An escaped slash is part of its segment (RFC 3986, 2.2)."""
    raw: bytes = scope["raw_path"]
    if b"%2" in raw:
        return [unquote(part) for part in raw.decode().split("/")]
    path: str = scope["path"]
    return path.split("/")


def _matches(route: _Route, segments: list[str]) -> bool:
    for index, text in route.literals:
        if segments[index] != text:
            return False
    for index, _ in route.parameters:
        segment = segments[index]
        if not segment or (index, segment) in route.reserved:
            return False
    return True


def _route(path: list[str], paths: list[list[str]], handler: OperationHandler) -> _Route:
    literals = tuple((index, text) for index, text in enumerate(path) if not text.startswith("{"))
    parameters = tuple((index, text[1:-1]) for index, text in enumerate(path) if text.startswith("{"))
    reserved = frozenset(
        (index, other[index])
        for index, _ in parameters
        for other in paths
        if len(other) == len(path) and other[:index] == path[:index] and not other[index].startswith("{")
    )
    # Paths with the same number of segments differ most at the end, so the end is compared first.
    return _Route(literals[::-1], parameters, reserved, handler)


def _not_allowed(scope: Scope, allowed: list[str]) -> Response:
    detail = f"{scope['method']} is not among the methods of this path: {', '.join(allowed)}."
    allow = ((b"allow", ", ".join(allowed).encode()),)
    return problem_response(405, "method-not-allowed", detail, scope["state"]["request_id"], allow)


def _without_body(send: Send) -> Send:
    async def send_head(event: Event) -> None:
        await send({**event, "body": b""} if event["type"] == "http.response.body" else event)

    return send_head
