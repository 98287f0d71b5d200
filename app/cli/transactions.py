"""`peeklock transaction`: open, show, commit and roll back transactions."""

from typing import Annotated, Any
from urllib.parse import quote

import typer

from app.cli.client import DEFAULT_URL, AsJson, Key, Url, connect, show

transaction = typer.Typer(
    name="transaction", help="Open, show, commit and roll back transactions.", no_args_is_help=True
)
TransactionId = Annotated[str, typer.Argument(metavar="ID", help="Id of the transaction.")]


@transaction.command("open")
def open_(
    timeout: Annotated[
        float | None, typer.Option(min=1, max=600, help="Seconds until it is rolled back. 60 by default.")
    ] = None,
    url: Url = DEFAULT_URL,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Open a transaction, and print its id. Pass it to `send` and `receive` with --transaction."""
    body = {} if timeout is None else {"timeout_seconds": timeout}
    opened = connect(url, key, as_json).call("POST", "/v1/transactions", body)
    show(opened) if as_json else typer.echo(opened["id"])


@transaction.command()
def get(transaction_id: TransactionId, url: Url = DEFAULT_URL, key: Key = None, as_json: AsJson = False) -> None:
    """Show a transaction and its members."""
    client = connect(url, key, as_json)
    path = _path(transaction_id)
    shown = client.call("GET", path)
    show({**shown, "items": list(client.pages(path, {"limit": 1000})), "next_cursor": None})


@transaction.command()
def commit(transaction_id: TransactionId, url: Url = DEFAULT_URL, key: Key = None, as_json: AsJson = False) -> None:
    """Commit a transaction: all of its members take effect."""
    committed: dict[str, Any] = connect(url, key, as_json).call("POST", _path(transaction_id, "commit"), {})
    if as_json:
        show(committed)
    else:
        typer.echo(f"committed: {len(committed['settlements'])} settled, {len(committed['sends'])} sent")


@transaction.command()
def rollback(transaction_id: TransactionId, url: Url = DEFAULT_URL, key: Key = None, as_json: AsJson = False) -> None:
    """Roll back a transaction: none of its members takes effect."""
    ended = connect(url, key, as_json).call("POST", _path(transaction_id, "rollback"), {})
    show(ended) if as_json else typer.echo("rolled back")


def _path(transaction_id: str, *rest: str) -> str:
    return "/".join(("/v1/transactions", quote(transaction_id, safe=""), *rest))
