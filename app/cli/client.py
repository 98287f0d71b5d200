"""The HTTP client of the commands, and the options that every command with a server has."""

import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from inspect import Parameter
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, cast
from urllib.parse import quote

import msgspec
import typer

from app.cli.context_file import BadContextFile, ContextFile, NoSuchContext
from app.cli.option_groups import option
from app.cli.output import Output, Printer, read_json, say

if TYPE_CHECKING:
    import httpx

QueueName: TypeAlias = Annotated[str, typer.Argument(metavar="QUEUE", help="Name of the queue.")]
Yes: TypeAlias = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
DryRun: TypeAlias = Annotated[
    bool, typer.Option("--dry-run", help="Show what the command would do, and change nothing.")
]

DEFAULT_URL = "http://127.0.0.1:8080"
RESPONSE_TIMEOUT_SECONDS = 75.0
"""Longer than the longest wait of a receive, so that the server answers first."""

OUTPUT_OPTIONS = (
    option(
        "output",
        Annotated[
            Output | None, typer.Option("--output", "-o", help="Output format. By default, tables and sentences.")
        ],
    ),
    option(
        "as_json",
        Annotated[bool, typer.Option("--json", help="The same as --output json: one document per line.")],
        default=False,
    ),
)
CONNECTION_OPTIONS = (
    option(
        "server_url",
        Annotated[
            str | None,
            typer.Option("--url", envvar="PEEKLOCK_URL", help=f"URL of the server. {DEFAULT_URL} without a context."),
        ],
    ),
    option(
        "api_key",
        Annotated[
            str | None, typer.Option("--api-key", "--key", envvar="PEEKLOCK_API_KEY", help="API key of the caller.")
        ],
    ),
    option(
        "context",
        Annotated[
            str | None,
            typer.Option("--context", help="Use the URL and the API key of this context. See `peeklock context`."),
        ],
    ),
)


@dataclass(frozen=True, slots=True)
class ApiClient:
    """A client of a server. A refusal prints the problem on standard error and exits with status 1."""

    http: "httpx.Client"
    printer: Printer

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """Send a request, and return the decoded answer; None for an empty answer."""
        if body is None:
            return _decoded(self.send(method, path, params=query, headers=headers))
        headers = {"content-type": "application/json", **(headers or {})}
        return _decoded(self.send(method, path, content=encode(body), params=query, headers=headers))

    def call_raw(self, path: str, content: bytes, headers: Mapping[str, str] | None = None) -> Any:
        """Send JSON as it is, and return the decoded answer."""
        headers = {"content-type": "application/json", **(headers or {})}
        return _decoded(self.send("POST", path, content=content, headers=headers))

    def send(self, method: str, path: str, **request: Any) -> "httpx.Response":
        """Send a request with the arguments of httpx, and return its response."""
        response = self.try_send(method, path, **request)
        if response.is_error:
            self.printer.problem(problem_of(response))
            raise typer.Exit(1)
        return response

    def try_send(self, method: str, path: str, **request: Any) -> "httpx.Response":
        """Send a request with the arguments of httpx, and return its response, even if it is a refusal."""
        import httpx

        try:
            return self.http.request(method, path, **request)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            say(f"No answer from {self.http.base_url}: {error}")
            raise typer.Exit(1) from None
        except ValueError as error:  # text that no header has
            say(f"This cannot be sent: {error}")
            raise typer.Exit(2) from None

    def pages(self, path: str, query: Mapping[str, Any]) -> Iterator[Any]:
        """Yield the items of a list, page by page."""
        cursor: str | None = None
        while True:
            page = self.call("GET", path, query={**query, **({"cursor": cursor} if cursor else {})})
            yield from page["items"]
            cursor = page["next_cursor"]
            if cursor is None:
                return


class OutputGroup:
    """`--output` and `--json`, as a printer."""

    parameters: Sequence[Parameter] = OUTPUT_OPTIONS

    def collect(self, values: dict[str, Any]) -> Printer:
        """See `OptionGroup`."""
        return Printer(Output.JSON if values["as_json"] else values["output"])


class ConnectionGroup:
    """The server, the key and the form of output, as a client."""

    parameters: Sequence[Parameter] = (*CONNECTION_OPTIONS, *OUTPUT_OPTIONS)

    def collect(self, values: dict[str, Any]) -> ApiClient:
        """See `OptionGroup`."""
        url, key = find_server(values["server_url"], values["api_key"], values["context"])
        return connect(url or DEFAULT_URL, key, OutputGroup().collect(values))


CONNECTION = ConnectionGroup()


class ServerGroup:
    """The server and the key, as the URL and the key to use. Each is None if nothing names it."""

    parameters: Sequence[Parameter] = CONNECTION_OPTIONS

    def collect(self, values: dict[str, Any]) -> tuple[str | None, str | None]:
        """See `OptionGroup`."""
        return find_server(values["server_url"], values["api_key"], values["context"])


SERVER = ServerGroup()


def connect(url: str, key: str | None, printer: Printer) -> ApiClient:
    """Return a client of a server."""
    # httpx imports its own command line where that is installed, which costs a third of a command's start-up.
    sys.modules.setdefault("httpx._main", cast("Any", None))
    import httpx

    headers = {b"authorization": f"Bearer {key}".encode()} if key else {}
    try:
        # Reading the certificates of authorities costs a sixth of a command's start-up. Redirects are not followed.
        is_direct = _is_reached_directly(httpx.URL(url).host)
        transport = httpx.HTTPTransport(verify=not url.startswith("http://")) if is_direct else None
        client = httpx.Client(base_url=url, headers=headers, timeout=RESPONSE_TIMEOUT_SECONDS, transport=transport)
    except (httpx.InvalidURL, ValueError) as error:
        raise typer.BadParameter(f"{url} is no URL of a server: {error}") from None
    return ApiClient(client, printer)


def _is_reached_directly(host: str) -> bool:
    """Return whether requests to this host use no proxy: none is set, or it is this host, which a proxy cannot reach."""
    from ipaddress import ip_address
    from urllib.request import getproxies

    try:
        return ip_address(host).is_loopback or not getproxies()
    except ValueError:
        return host == "localhost" or host.endswith(".localhost") or not getproxies()


def find_server(url: str | None, key: str | None, context: str | None) -> tuple[str | None, str | None]:
    """Return the URL and the key to use: those given, else those of the context.

    A context that is named by an option comes before the environment, the current context after it. The key of a
    context goes to no other URL than its own.
    """
    if context is not None:
        url = None if url == os.environ.get("PEEKLOCK_URL") else url
        key = None if key == os.environ.get("PEEKLOCK_API_KEY") else key
    try:
        stored = ContextFile.of_user().find(context)
    except NoSuchContext as error:
        raise typer.BadParameter(str(error), param_hint="--context") from None
    except BadContextFile as error:
        say(str(error))
        raise typer.Exit(1) from None
    if stored is None or (url is not None and url.rstrip("/") != stored.url.rstrip("/")):
        return url, key
    return stored.url, key or stored.api_key


def problem_of(response: "httpx.Response") -> dict[str, Any]:
    """Return the problem document of a refusal, or what is known of an answer without one."""
    problem: dict[str, Any] = {"code": str(response.status_code), "detail": response.text}
    with suppress(ValueError):
        problem.update(read_json(response.content))
    return problem


def queue_path(name: str, *rest: str) -> str:
    """Return the path of a queue, or of a resource in it."""
    return "/".join(("/v1/queues", quote(name, safe=""), *rest))


def without_none(**values: Any) -> dict[str, Any]:
    """Return the values that are given."""
    return {name: value for name, value in values.items() if value is not None}


def confirm(question: str, yes: bool) -> None:
    """Ask a question, unless it is answered already. Anything but yes ends the command with status 1."""
    if yes:
        return
    # typer.confirm would write a blank to standard output.
    typer.echo(f"{question} [y/N]: ", nl=False, err=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        say("Aborted.")
        raise typer.Exit(1)


def encode(body: Any) -> bytes:
    """Return a request as JSON. A value that JSON does not have ends the command with status 2."""
    try:
        _refuse_odd_numbers(body)
        return msgspec.json.encode(body)
    except ValueError as error:
        say(f"This cannot be sent: {error}")
        raise typer.Exit(2) from None


def _refuse_odd_numbers(value: Any) -> None:
    """Raise `ValueError` for a number that JSON does not have: msgspec would write null for it."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"JSON has no number {value}")
    if isinstance(value, dict):
        for member in cast("dict[str, Any]", value).values():
            _refuse_odd_numbers(member)


def _decoded(response: "httpx.Response") -> Any:
    return read_json(response.content) if response.content else None
