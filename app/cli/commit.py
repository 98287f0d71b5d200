"""`peeklock commit`: complete a message, send its results and add a version to a state, in one transaction."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from app.cli.client import CONNECTION, ApiClient, QueueName, queue_path
from app.cli.option_groups import with_options


@with_options(client=CONNECTION)
def commit(
    client: ApiClient,
    name: QueueName,
    lock_token: Annotated[str, typer.Argument(metavar="TOKEN", help="Lock token of the message.")],
    file: Annotated[
        Path | None,
        typer.Argument(exists=True, dir_okay=False, help="The request as JSON. Without it, standard input."),
    ] = None,
) -> None:
    """Complete a message, send its results and add a version to a state in one transaction, and print the result.

    The request has `sends` (queue, body), `publishes` (topic, body) and `state` (key, if_version, value, metadata). A
    repeat gets the first result.
    """
    content = file.read_bytes() if file else sys.stdin.buffer.read()
    path = queue_path(name, "locks", lock_token, "commit")
    client.printer.document(client.call_raw(path, content))
