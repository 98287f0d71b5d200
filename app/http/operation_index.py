"""Find the operation of a request in trees of path segments, made from the routes of the application.

Matching the regular expressions of the framework's router costs more than all other work that a frequent request needs
before the broker.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import unquote

from starlette.routing import Match, Route

from app.http.asgi import Scope
from app.http.operation_handler import OperationHandler


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

    literals: dict[str, "_Node"] = field(default_factory=dict[str, "_Node"])
    parameter: "_Node | None" = None
    methods: dict[str, IndexedOperation] = field(default_factory=dict[str, IndexedOperation])

    def child(self, segment: str) -> "_Node":
        """Return the node behind this segment of a declared path, a new one at the first use."""
        if not segment.startswith("{"):
            return self.literals.setdefault(segment, _Node())
        self.parameter = self.parameter or _Node()
        return self.parameter


_NOWHERE = _Node()


class OperationIndex:
    """The operations of one server by path and method.

    Paths with the same number of segments share a tree. Where one of them has a literal, the parameter of another one
    never has this value.
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
