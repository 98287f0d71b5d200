"""`peeklock history`: what happened to a message."""

from itertools import islice
from typing import Annotated

import typer

from app.cli.client import CONNECTION, ApiClient, QueueName, queue_path
from app.cli.option_groups import with_options

COLUMNS = ("at", "event", "state", "outcome", "receiver_id", "delivery_count", "reason")


@with_options(client=CONNECTION)
def history(
    name: QueueName,
    client: ApiClient,
    sequence_number: Annotated[int, typer.Argument(min=1, help="Sequence number of the message.")],
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of events.")] = 1000,
) -> None:
    """Show what happened to a message of a queue with a history, in order."""
    path = queue_path(name, "messages", str(sequence_number), "history")
    events = islice(client.pages(path, {"limit": min(limit, 1000)}), limit)
    client.printer.rows(events, COLUMNS, "events of this message")
