"""A table ahead of the framework's router that finds an operation by splitting its path.

The table is derived from the very operations that the router and the OpenAPI document know, so
nothing is declared twice; whatever it does not know goes on to the framework. Walking the router's
regular expressions costs more than everything else that a hot request needs before its verb.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple, TypeAlias

from app.api.bodies import Receive, Scope, Send
from app.api.operation import Application

ASGI: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]


class _Entry(NamedTuple):
    literals: tuple[tuple[int, str], ...]
    parameters: tuple[tuple[int, str], ...]
    application: Application


class Dispatcher:
    """Sends a request to its operation's application, or else to `fallback`."""

    def __init__(self, applications: Iterable[Application], fallback: ASGI) -> None:
        self._fallback = fallback
        self._table: dict[tuple[str, int], list[_Entry]] = {}
        for application in applications:
            segments = application.operation.path.split("/")
            key = (application.operation.method, len(segments))
            self._table.setdefault(key, []).append(_entry(segments, application))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        segments: list[str] = scope["path"].split("/")
        for literals, parameters, application in self._table.get((scope["method"], len(segments)), ()):
            if all(segments[place] == text for place, text in literals):
                scope["path_params"] = {name: segments[place] for place, name in parameters}
                await application(scope, receive, send)
                return
        await self._fallback(scope, receive, send)


def _entry(segments: list[str], application: Application) -> _Entry:
    literals = tuple((place, text) for place, text in enumerate(segments) if not text.startswith("{"))
    parameters = tuple((place, text[1:-1]) for place, text in enumerate(segments) if text.startswith("{"))
    return _Entry(literals, parameters, application)
