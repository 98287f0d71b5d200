"""A table ahead of the framework's router that finds an operation by splitting its path.

The table is derived from the declarations that the framework documents, so nothing is declared
twice; a path that no operation has goes on to the framework. Walking a router's regular expressions
costs more than everything else that a hot request needs before its verb.
"""

from collections.abc import Iterable
from typing import NamedTuple
from urllib.parse import unquote

from app.api.bodies import ASGI, Event, Receive, Scope, Send
from app.api.operation import Application, Reply, problem_reply, respond


class _Entry(NamedTuple):
    """`taken` are the words that stand at a parameter's place in other paths, and there mean something else."""

    literals: tuple[tuple[int, str], ...]
    parameters: tuple[tuple[int, str], ...]
    taken: frozenset[tuple[int, str]]
    application: Application


class Dispatcher:
    """Sends a request to one of `applications`, its operation's, or else to `fallback`."""

    def __init__(self, applications: Iterable[Application], fallback: ASGI) -> None:
        self.applications = tuple(applications)
        self.fallback = fallback
        self._table: dict[tuple[str, int], list[_Entry]] = {}
        paths = [application.operation.path.split("/") for application in self.applications]
        for path, application in zip(paths, self.applications, strict=True):
            key = (application.operation.method, len(path))
            self._table.setdefault(key, []).append(_entry(path, paths, application))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request; HEAD is GET without the body."""
        if scope["type"] != "http":
            await self.fallback(scope, receive, send)
            return
        method: str = scope["method"]
        segments = _segments(scope)
        if method == "HEAD":
            method, send = "GET", _without_body(send)
        for entry in self._table.get((method, len(segments)), ()):
            if _fits(entry, segments):
                scope["path_params"] = {name: segments[place] for place, name in entry.parameters}
                await entry.application(scope, receive, send)
                return
        if allowed := self._allowed(segments):
            await respond(send, _not_allowed(scope, allowed))
        else:
            await self.fallback(scope, receive, send)

    def name_of(self, scope: Scope) -> str | None:
        """The operation that answers a request, where there is one; for those who watch, so not made to be fast."""
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        segments = _segments(scope)
        entries = self._table.get((method, len(segments)), ())
        return next((entry.application.operation.name for entry in entries if _fits(entry, segments)), None)

    def _allowed(self, segments: list[str]) -> list[str]:
        """The methods that this path does have."""
        methods = {
            method
            for (method, length), entries in self._table.items()
            if length == len(segments) and any(_fits(entry, segments) for entry in entries)
        }
        return sorted(methods | {"HEAD"} if "GET" in methods else methods)


def _segments(scope: Scope) -> list[str]:
    """The parts of a request's path; a slash that was escaped belongs to its part (RFC 3986, 2.2)."""
    raw: bytes = scope["raw_path"]
    if b"%2" in raw:
        return [unquote(part) for part in raw.decode().split("/")]
    path: str = scope["path"]
    return path.split("/")


def _fits(entry: _Entry, segments: list[str]) -> bool:
    for place, text in entry.literals:
        if segments[place] != text:
            return False
    for place, _ in entry.parameters:
        word = segments[place]
        if not word or (place, word) in entry.taken:
            return False
    return True


def _entry(path: list[str], paths: list[list[str]], application: Application) -> _Entry:
    literals = tuple((place, text) for place, text in enumerate(path) if not text.startswith("{"))
    parameters = tuple((place, text[1:-1]) for place, text in enumerate(path) if text.startswith("{"))
    taken = frozenset(
        (place, other[place])
        for place, _ in parameters
        for other in paths
        if len(other) == len(path) and other[:place] == path[:place] and not other[place].startswith("{")
    )
    # Paths of one length differ most at their ends, so these are compared first.
    return _Entry(literals[::-1], parameters, taken, application)


def _not_allowed(scope: Scope, allowed: list[str]) -> Reply:
    detail = f"{scope['method']} is not among the methods of this path: {', '.join(allowed)}."
    allow = ((b"allow", ", ".join(allowed).encode()),)
    return problem_reply(405, "method-not-allowed", detail, scope["state"]["request_id"], allow)


def _without_body(send: Send) -> Send:
    async def send_head(event: Event) -> None:
        await send({**event, "body": b""} if event["type"] == "http.response.body" else event)

    return send_head
