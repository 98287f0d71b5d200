"""`peeklock transaction`: open, show, commit and roll back transactions; `execute` and `commit`: a whole one in one request."""

import sys
from pathlib import Path
from typing import Annotated, Any, TypeAlias
from urllib.parse import quote

import typer

from app.cli.client import CONNECTION, ApiClient, QueueName, queue_path
from app.cli.option_groups import with_options

TransactionId: TypeAlias = Annotated[str, typer.Argument(metavar="ID", help="Id of the transaction.")]
RequestFile: TypeAlias = Annotated[
    Path | None, typer.Argument(exists=True, dir_okay=False, help="The request as JSON. Without it, standard input.")
]


@with_options(client=CONNECTION)
def open_(
    client: ApiClient,
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout-seconds", "--timeout", min=1, max=600, help="Seconds until it is rolled back. 60 by default."
        ),
    ] = None,
) -> None:
    """Open a transaction, and print its id. Pass it to `send` and `receive` with --transaction."""
    body = {} if timeout is None else {"timeout_seconds": timeout}
    opened = client.call("POST", "/v1/transactions", body)
    client.printer.answer(opened, opened["id"])


@with_options(client=CONNECTION)
def get(transaction_id: TransactionId, client: ApiClient) -> None:
    """Show a transaction and its members."""
    path = _path(transaction_id)
    shown = client.call("GET", path)
    members = list(client.pages(path, {"limit": 1000}))
    client.printer.document({**shown, "items": members, "next_cursor": None})


@with_options(client=CONNECTION)
def commit(transaction_id: TransactionId, client: ApiClient) -> None:
    """Commit a transaction: all of its members take effect."""
    committed: dict[str, Any] = client.call("POST", _path(transaction_id, "commit"), {})
    settled, sent = len(committed["settlements"]), len(committed["sends"])
    client.printer.answer(committed, f"committed: {settled} settled, {sent} sent")


@with_options(client=CONNECTION)
def rollback(transaction_id: TransactionId, client: ApiClient) -> None:
    """Roll back a transaction: none of its members takes effect."""
    ended = client.call("POST", _path(transaction_id, "rollback"), {})
    client.printer.answer(ended, "rolled back")


@with_options(client=CONNECTION)
def execute(
    client: ApiClient,
    file: RequestFile = None,
    idempotency_key: Annotated[
        str | None, typer.Option(help="A repeat with the same key gets the first answer and has no further effect.")
    ] = None,
) -> None:
    """Settle, send and publish messages in one transaction. Print the results as JSON.

    The request has `settlements` (queue, lock_token, action), `sends` (queue, body) and `publishes` (topic, body).
    """
    headers = {} if idempotency_key is None else {"Idempotency-Key": idempotency_key}
    client.printer.document(client.call_raw("/v1/transactions/execute", _read_request(file), headers))


@with_options(client=CONNECTION)
def commit_with_state(
    client: ApiClient,
    name: QueueName,
    lock_token: Annotated[str, typer.Argument(metavar="TOKEN", help="Lock token of the message.")],
    file: RequestFile = None,
) -> None:
    """Complete a message with its results and a new state. All of it takes effect in one transaction. Print the result.

    The request has `sends` (queue, body), `publishes` (topic, body) and `state` (key, if_version, value, metadata). A
    repeat gets the first result.
    """
    path = queue_path(name, "locks", lock_token, "commit")
    client.printer.document(client.call_raw(path, _read_request(file)))


def _read_request(file: Path | None) -> bytes:
    return file.read_bytes() if file else sys.stdin.buffer.read()


def _path(transaction_id: str, *rest: str) -> str:
    return "/".join(("/v1/transactions", quote(transaction_id, safe=""), *rest))
