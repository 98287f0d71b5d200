"""`peeklock explain`: why a message is not delivered, or why a queue is stalled."""

from typing import Annotated

import typer

from app.cli.client import CONNECTION, ApiClient, QueueName, queue_path
from app.cli.option_groups import with_options


@with_options(client=CONNECTION)
def explain(
    name: QueueName,
    client: ApiClient,
    sequence_number: Annotated[
        int | None, typer.Argument(min=1, help="Sequence number of a message. Without it the queue is explained.")
    ] = None,
) -> None:
    """Explain why a message is not delivered, how it ended, or why a queue is stalled."""
    rest = () if sequence_number is None else ("messages", str(sequence_number))
    explanation = client.call("GET", queue_path(name, *rest, "explain"))
    client.printer.answer(explanation, explanation["text"])
