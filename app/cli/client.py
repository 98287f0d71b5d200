"""How commands speak to a server, and how its answers look on a terminal."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias
from urllib.parse import quote

import httpx
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn
from rich.table import Table

out = Console(soft_wrap=True, highlight=False)
err = Console(stderr=True, soft_wrap=True, highlight=False)

Url: TypeAlias = Annotated[str, typer.Option(envvar="PEEKLOCK_URL", help="The server.")]
Key: TypeAlias = Annotated[str | None, typer.Option(envvar="PEEKLOCK_API_KEY", help="API key of the caller.")]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print the server's JSON, one document a line.")]
QueueName: TypeAlias = Annotated[str, typer.Argument(metavar="QUEUE", help="Name of the queue.")]

DEFAULT_URL = "http://127.0.0.1:8080"
ANSWER_SECONDS = 75.0
"""Above the longest wait of a receive, so that the server answers first."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server at a URL. Every refusal ends the command with exit status 1 and the problem on standard error."""

    http: httpx.Client
    as_json: bool

    def call(self, method: str, path: str, body: Any = None, query: Mapping[str, Any] | None = None) -> Any:
        """The decoded answer of one call; None for an empty one."""
        response = self.send(method, path, json=body, params=query)
        return response.json() if response.content else None

    def send(self, method: str, path: str, **request: Any) -> httpx.Response:
        """One call, given as httpx takes it."""
        try:
            response = self.http.request(method, path, **request)
        except httpx.HTTPError as error:
            err.print(f"No answer from {self.http.base_url}: {error}", markup=False)
            raise typer.Exit(1) from None
        if response.is_error:
            self._complain(response)
        return response

    def pages(self, path: str, query: Mapping[str, Any]) -> Iterator[Any]:
        """The items of a list, page after page."""
        cursor: str | None = None
        while True:
            page = self.call("GET", path, query={**query, **({"cursor": cursor} if cursor else {})})
            yield from page["items"]
            cursor = page["next_cursor"]
            if cursor is None:
                return

    def _complain(self, response: httpx.Response) -> None:
        problem: dict[str, Any] = {"code": str(response.status_code), "detail": response.text}
        with suppress(ValueError):
            problem.update(response.json())
        if self.as_json:
            err.print(json.dumps(problem), markup=False)
        else:
            err.print(f"{problem['code']}: {problem['detail']}", markup=False)
            for fault in problem.get("errors", ()):
                err.print(f"  at {fault['pointer'] or '/'}: {fault['detail']}", markup=False)
        raise typer.Exit(1)


def connect(url: str, key: str | None, as_json: bool = False) -> Server:
    """A server to speak to."""
    headers = {"authorization": f"Bearer {key}"} if key else {}
    return Server(httpx.Client(base_url=url, headers=headers, timeout=ANSWER_SECONDS), as_json)


def queue_path(name: str, *rest: str) -> str:
    """The path of something in a queue."""
    return "/".join(("/v1/queues", quote(name, safe=""), *rest))


def show(document: Any) -> None:
    """Print a document as JSON, on one line."""
    typer.echo(json.dumps(document, ensure_ascii=False))


def show_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print rows under their headings."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*("" if value is None else str(value) for value in row))
    out.print(table)


def progress() -> Progress:
    """A progress bar on standard error; silent where nobody is looking."""
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        console=err,
        transient=True,
        disable=not sys.stderr.isatty(),
    )
