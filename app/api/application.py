"""The HTTP application of a server: FastAPI, with every operation among its routes, and the index that finds them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import CoroutineType
from typing import Any, NamedTuple
from urllib.parse import unquote

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.routing import Match, Route

from app.api.endpoints.routes import OPERATIONS
from app.api.openapi.document import openapi_document
from app.api.openapi.guide import guide_pages, missing_page
from app.api.openapi.pages import document_pages
from app.domain.refusals import BackendUnavailable, Refusal
from app.http.asgi import ASGI, Receive, Scope, Send
from app.http.authorize import DEFAULT_RIGHT, Authorization, bearer_token
from app.http.context import AppContext
from app.http.cors import allow_origins
from app.http.local_access import LocalAccessPolicy
from app.http.operation import Operation
from app.http.operation_handler import OperationHandler
from app.http.problems import make_problem
from app.http.request_headers import RequestHeaders
from app.http.response import PROBLEM, encode, error_response, problem_response, respond

FRAMEWORK_CODES = {404: "not-found", 405: "method-not-allowed"}


def build_application(context: AppContext) -> ASGI:
    """Return the application of a server. A `RequestIdMiddleware` must wrap it, because requests need their id."""
    return allow_origins(Application(context), context.allowed_origins)


class Application(FastAPI):
    """Every operation of a server, and the other routes and mounted applications that are added before the first request.

    An operation declares the right that it needs. Any other route needs `DEFAULT_RIGHT` on all queues, so no route is
    open by mistake. What is not among `routes` is not found.
    """

    def __init__(self, context: AppContext) -> None:
        super().__init__(openapi_url=None, redirect_slashes=False, max_body_size=context.max_request_bytes)
        self.add_exception_handler(HTTPException, _framework_problem)
        self.router.routes += [OperationRoute(OperationHandler(operation, context)) for operation in OPERATIONS]
        self.router.routes += [
            OperationRoute(OperationHandler(page, context), include_in_schema=False) for page in self._pages(context)
        ]
        policy = LocalAccessPolicy(
            context.is_loopback,
            requires_json=False,
            requires_admin_header=False,
            allowed_origins=context.allowed_origins,
        )
        authenticator = context.authenticator
        self._needs_key = authenticator is not None
        self._default_authorization = Authorization(authenticator and authenticator.authenticate, DEFAULT_RIGHT, policy)

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> CoroutineType[Any, Any, None]:
        """Answer one HTTP request. HEAD is answered as GET; the server sends no body then."""
        if scope["type"] != "http":
            raise NotImplementedError(f"This application does not speak {scope['type']}.")
        method: str = "GET" if scope["method"] == "HEAD" else scope["method"]
        segments, methods = self._index.find(scope)
        if method in methods:
            found = methods[method]
            scope["path_params"] = {name: segments[position] for position, name in found.parameters}
            return found.handler(scope, receive, send)
        # The framework's router reads an escaped slash as a separator, unless it stays escaped.
        path = "/".join([segment.replace("/", "%2F") for segment in segments])
        return self._call_framework({**scope, "method": method, "path": path}, receive, send, methods)

    def openapi(self) -> dict[str, Any]:
        """The OpenAPI document of this application."""
        operations = [route.handler.operation for route in self._operation_routes() if route.include_in_schema]
        return openapi_document(operations, [route for route in self.routes if not isinstance(route, OperationRoute)])

    def _pages(self, context: AppContext) -> list[Operation]:
        """Return the operations for readers. The pages link to each other, and to the console if the server has one."""
        console = {"console": "Console"} if context.has_console else {}
        guide = guide_pages(context.guide_dir, {"docs": "API"} | console)
        self._has_guide = bool(guide)
        return [*document_pages(self.openapi, ({"docs/guide/": "Guide"} if guide else {}) | console), *guide]

    @cached_property
    def _index(self) -> OperationIndex:
        return OperationIndex(self._operation_routes())

    def _operation_routes(self) -> list[OperationRoute]:
        return [route for route in self.routes if isinstance(route, OperationRoute)]

    async def _call_framework(self, scope: Scope, receive: Receive, send: Send, methods: Iterable[str]) -> None:
        """Pass a request to a route that is no operation. `methods` are those of the operations on this path."""
        request_id: str = scope["state"]["request_id"]
        if any(route.matches(scope)[0] is not Match.NONE for route in self.routes):
            try:
                headers = RequestHeaders(scope["headers"])
                credential = bearer_token(headers) if self._needs_key else None
                await self._default_authorization.accept(credential, None, headers, scope["state"])
            except (Refusal, BackendUnavailable) as error:
                await respond(send, error_response(error, request_id))
            else:
                await super().__call__(scope, receive, send)
        elif allowed := sorted({*methods, "HEAD"} if "GET" in methods else methods):
            detail = f"{scope['method']} is not among the methods of this path: {', '.join(allowed)}."
            allow = ((b"allow", ", ".join(allowed).encode()),)
            await respond(send, problem_response(405, FRAMEWORK_CODES[405], detail, request_id, allow))
        else:
            missing = missing_page(scope) if self._has_guide else None
            detail = f"There is nothing at {scope['path']}."
            await respond(send, missing or problem_response(404, FRAMEWORK_CODES[404], detail, request_id))


async def _framework_problem(request: Request, error: Exception) -> Response:
    """Answer an error of a route that is no operation with a problem document."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    headers = error.headers if isinstance(error, HTTPException) else None
    detail = error.detail if isinstance(error, HTTPException) else "The request failed."
    problem = make_problem(status, FRAMEWORK_CODES.get(status, "refused"), detail, request.state.request_id)
    return Response(encode(problem), status, headers, media_type=PROBLEM.decode())


class OperationRoute(Route):
    """The route of an operation among those of the application. `OperationIndex` finds it for a request."""

    def __init__(self, handler: OperationHandler, *, include_in_schema: bool = True) -> None:
        self.handler = handler
        operation = handler.operation
        super().__init__(
            operation.path,
            handler,
            methods=[operation.method],
            name=operation.name,
            include_in_schema=include_in_schema,
        )

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match nothing, because the framework's router reads an escaped slash as a separator."""
        return Match.NONE, {}


class IndexedOperation(NamedTuple):
    """The handler of an operation, and the position and name of each parameter in its path."""

    handler: OperationHandler
    parameters: tuple[tuple[int, str], ...]


@dataclass(slots=True)
class _Node:
    """What may follow the first segments of a path: literals, or a parameter. Behind the last one: the methods."""

    literals: dict[str, _Node] = field(default_factory=dict[str, "_Node"])
    parameter: _Node | None = None
    methods: dict[str, IndexedOperation] = field(default_factory=dict[str, IndexedOperation])

    def child(self, segment: str) -> _Node:
        """Return the node behind this segment of a declared path, a new one at the first use."""
        if not segment.startswith("{"):
            return self.literals.setdefault(segment, _Node())
        self.parameter = self.parameter or _Node()
        return self.parameter


_NOWHERE = _Node()


class OperationIndex:
    """The operations of one server by path and method, in trees of path segments.

    Matching the regular expressions of the framework's router costs more than all other work that a frequent request needs
    before the broker. Paths with the same number of segments share a tree. Where one of them has a literal, the parameter
    of another one never has this value.
    """

    def __init__(self, routes: Iterable[OperationRoute]) -> None:
        self._roots: dict[int, _Node] = {}
        for route in routes:
            segments = route.path.split("/")
            node = self._roots.setdefault(len(segments), _Node())
            for segment in segments:
                node = node.child(segment)
            names = [(position, text[1:-1]) for position, text in enumerate(segments) if text.startswith("{")]
            node.methods[route.handler.operation.method] = IndexedOperation(route.handler, tuple(names))

    def find(self, scope: Scope) -> tuple[list[str], Mapping[str, IndexedOperation]]:
        """Return the segments of a path, and its operations by method: none for an unknown path.

        An escaped slash is part of its segment (RFC 3986, 2.2).
        """
        segments: list[str] = scope["path"].split("/")
        raw: bytes = scope["raw_path"]
        if b"%2" in raw:
            segments = [unquote(part) for part in raw.decode().split("/")]
        node = self._roots.get(len(segments), _NOWHERE)
        for segment in segments:
            if segment in node.literals:
                node = node.literals[segment]
            elif segment and node.parameter is not None:
                node = node.parameter
            else:
                return segments, {}
        return segments, node.methods
