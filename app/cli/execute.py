"""`peeklock execute`: settle, send and publish together, or not at all."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from app.cli.client import DEFAULT_URL, AsJson, Key, Url, connect, read_json, show


def execute(
    file: Annotated[
        Path | None,
        typer.Argument(exists=True, dir_okay=False, help="The request as JSON. Without it, standard input."),
    ] = None,
    idempotency_key: Annotated[
        str | None, typer.Option(help="A repeat with the same key gets the first answer and has no further effect.")
    ] = None,
    url: Url = DEFAULT_URL,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Settle deliveries, send and publish messages in one transaction, and print the results as JSON.

    The request has `settlements` (queue, lock_token, action), `sends` (queue, body) and `publishes` (topic, body).
    """
    headers = {"content-type": "application/json"}
    if idempotency_key is not None:
        headers["Idempotency-Key"] = idempotency_key
    content = file.read_bytes() if file else sys.stdin.buffer.read()
    client = connect(url, key, as_json)
    response = client.send("POST", "/v1/transactions/execute", content=content, headers=headers)
    show(read_json(response.content))
