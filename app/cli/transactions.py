"""`peeklock transaction`: open, show, commit and roll back transactions."""

from typing import Annotated, Any
from urllib.parse import quote

import typer

from app.cli.client import CONNECTION, ApiClient
from app.cli.option_groups import with_options

TransactionId = Annotated[str, typer.Argument(metavar="ID", help="Id of the transaction.")]


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


def _path(transaction_id: str, *rest: str) -> str:
    return "/".join(("/v1/transactions", quote(transaction_id, safe=""), *rest))
