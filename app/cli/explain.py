"""`peeklock explain`: why a message is not delivered, or why a queue is stalled."""

from typing import Annotated

import typer

from app.cli.client import DEFAULT_URL, AsJson, Key, QueueName, Url, connect, queue_path, show


def explain(
    name: QueueName,
    sequence_number: Annotated[
        int | None, typer.Argument(min=1, help="Sequence number of a message. Without it the queue is explained.")
    ] = None,
    url: Url = DEFAULT_URL,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Explain why a message is not delivered, how it ended, or why a queue is stalled."""
    rest = () if sequence_number is None else ("messages", str(sequence_number))
    explanation = connect(url, key, as_json).call("GET", queue_path(name, *rest, "explain"))
    show(explanation) if as_json else typer.echo(explanation["text"])
