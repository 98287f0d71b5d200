"""`peeklock history`: what happened to a message."""

from itertools import islice
from typing import Annotated

import typer

from app.cli.client import DEFAULT_URL, AsJson, Key, QueueName, Url, connect, queue_path, show, show_table

COLUMNS = ("at", "event", "state", "outcome", "receiver_id", "delivery_count", "reason")


def history(
    name: QueueName,
    sequence_number: Annotated[int, typer.Argument(min=1, help="Sequence number of the message.")],
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of events.")] = 1000,
    url: Url = DEFAULT_URL,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Show what happened to a message of a queue with a history, in order."""
    path = queue_path(name, "messages", str(sequence_number), "history")
    events = list(islice(connect(url, key, as_json).pages(path, {"limit": min(limit, 1000)}), limit))
    if as_json:
        for event in events:
            show(event)
        return
    show_table(COLUMNS, [[event.get(column) for column in COLUMNS] for event in events])
