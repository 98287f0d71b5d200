"""`peeklock execute`: settle, send and publish together, or not at all."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from app.cli.client import CONNECTION, ApiClient
from app.cli.option_groups import with_options


@with_options(client=CONNECTION)
def execute(
    client: ApiClient,
    file: Annotated[
        Path | None,
        typer.Argument(exists=True, dir_okay=False, help="The request as JSON. Without it, standard input."),
    ] = None,
    idempotency_key: Annotated[
        str | None, typer.Option(help="A repeat with the same key gets the first answer and has no further effect.")
    ] = None,
) -> None:
    """Settle deliveries, send and publish messages in one transaction, and print the results as JSON.

    The request has `settlements` (queue, lock_token, action), `sends` (queue, body) and `publishes` (topic, body).
    """
    content = file.read_bytes() if file else sys.stdin.buffer.read()
    headers = {} if idempotency_key is None else {"Idempotency-Key": idempotency_key}
    client.printer.document(client.call_raw("/v1/transactions/execute", content, headers))
