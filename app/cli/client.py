"""The HTTP client of the commands, and the output of answers on a terminal."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, TypeAlias, cast
from urllib.parse import quote

import httpx
import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn
from rich.table import Table

WIDTH = 1_000_000
"""Characters of a line of output, more than any row of a table has: a folded row could be neither copied nor searched."""

out = Console(soft_wrap=True, highlight=False, width=WIDTH)
err = Console(stderr=True, soft_wrap=True, highlight=False)

Url: TypeAlias = Annotated[str, typer.Option(envvar="PEEKLOCK_URL", help="URL of the server.")]
Key: TypeAlias = Annotated[
    str | None, typer.Option("--api-key", "--key", envvar="PEEKLOCK_API_KEY", help="API key of the caller.")
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print the server's JSON, one document per line.")]
QueueName: TypeAlias = Annotated[str, typer.Argument(metavar="QUEUE", help="Name of the queue.")]

JSON_HEADERS = {"content-type": "application/json"}
DEFAULT_URL = "http://127.0.0.1:8080"
RESPONSE_TIMEOUT_SECONDS = 75.0
"""Longer than the longest wait of a receive, so that the server answers first."""


MAX_INT_DIGITS = 18
"""Characters of an integer, with its sign, that always fit into 64 bits."""

_encode = msgspec.json.Encoder(decimal_format="number").encode


@dataclass(frozen=True, slots=True)
class ApiClient:
    """A client of a server. A refusal prints the problem on standard error and exits with status 1."""

    http: httpx.Client
    as_json: bool

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """Send a request, and return the decoded answer; None for an empty answer."""
        response = self.send(method, path, json=body, params=query, headers=headers)
        return read_json(response.content) if response.content else None

    def send(self, method: str, path: str, **request: Any) -> httpx.Response:
        """Send a request with the arguments of httpx, and return its response."""
        try:
            response = self.http.request(method, path, **request)
        except httpx.HTTPError as error:
            err.print(f"No answer from {self.http.base_url}: {error}", markup=False)
            raise typer.Exit(1) from None
        except ValueError as error:  # a number that JSON cannot express, or invalid text
            err.print(f"This cannot be sent: {error}", markup=False)
            raise typer.Exit(2) from None
        if response.is_error:
            problem: dict[str, Any] = {"code": str(response.status_code), "detail": response.text}
            with suppress(ValueError):
                problem.update(read_json(response.content))
            self.print_problem(problem)
            raise typer.Exit(1)
        return response

    def pages(self, path: str, query: Mapping[str, Any]) -> Iterator[Any]:
        """Yield the items of a list, page by page."""
        cursor: str | None = None
        while True:
            page = self.call("GET", path, query={**query, **({"cursor": cursor} if cursor else {})})
            yield from page["items"]
            cursor = page["next_cursor"]
            if cursor is None:
                return

    def print_problem(self, problem: dict[str, Any]) -> None:
        """Print a problem document to standard error: its code, its detail and its faults, or the whole of it as JSON."""
        if self.as_json:
            err.print(_encode(problem).decode(), markup=False)
        else:
            err.print(f"{problem['code']}: {problem['detail']}", markup=False)
            for fault in problem.get("errors", ()):
                sentence = "" if fault["detail"] == problem["detail"] else f": {fault['detail']}"
                err.print(f"  at {fault['pointer']}{sentence}", markup=False)


def connect(url: str, key: str | None, as_json: bool = False) -> ApiClient:
    """Return a client of a server."""
    headers = {b"authorization": f"Bearer {key}".encode()} if key else {}
    return ApiClient(httpx.Client(base_url=url, headers=headers, timeout=RESPONSE_TIMEOUT_SECONDS), as_json)


def queue_path(name: str, *rest: str) -> str:
    """Return the path of a queue, or of a resource in it."""
    return "/".join(("/v1/queues", quote(name, safe=""), *rest))


def read_json(content: bytes) -> Any:
    """Decode JSON and keep numbers exact: a message may contain numbers that fit no machine type."""
    return json.loads(content, parse_float=Decimal, parse_int=_parse_int)


def show(document: Any) -> None:
    """Print a document as JSON, on one line."""
    typer.echo(_encode(document))


def show_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print rows under column headings, each row on one line."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column)
    for row in rows:
        table.add_row(*map(_cell_text, row))
    out.print(table)


def _cell_text(value: Any) -> str:
    """Return a value as text for a person."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value).items()
        return ", ".join(
            _cell_text(member) if name == "kind" else f"{name} {_cell_text(member)}" for name, member in members
        )
    if isinstance(value, list):
        return ", ".join(map(_cell_text, cast("list[Any]", value)))
    return str(value)


def _parse_int(digits: str) -> int | Decimal:
    return int(digits) if len(digits) <= MAX_INT_DIGITS else Decimal(digits)


def progress() -> Progress:
    """Return a progress bar on standard error, disabled if that is no terminal."""
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        console=err,
        transient=True,
        disable=not sys.stderr.isatty(),
    )
