"""Commands that show messages without locking or changing them: `browse`, `explain`, `history` and `archive list`."""

from itertools import islice
from typing import Annotated

import typer

from app.cli.client import CONNECTION, ApiClient, QueueName, queue_path, without_none
from app.cli.option_groups import with_options
from app.cli.selections import FilterText

MESSAGE_COLUMNS = (
    "sequence_number", "state", "priority", "message_id", "enqueued_at", "failure_count", "locked_until"
)  # fmt: skip
EVENT_COLUMNS = ("at", "event", "state", "outcome", "receiver_id", "delivery_count", "reason")
BATCH_COLUMNS = ("number", "row_count", "sealed_at", "remove_at", "removed_at", "removal")
PAGE_SIZE = 1000


@with_options(client=CONNECTION)
def browse(
    name: QueueName,
    client: ApiClient,
    state: Annotated[str | None, typer.Option(help="Only messages in this state.")] = None,
    filter_: FilterText = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of messages.")] = 50,
) -> None:
    """Show messages without locking or changing them."""
    query = without_none(state=state, filter=filter_, limit=min(limit, PAGE_SIZE))
    messages = islice(client.pages(queue_path(name, "messages"), query), limit)
    client.printer.rows(messages, MESSAGE_COLUMNS, f"messages in queue {name}")


@with_options(client=CONNECTION)
def explain(
    name: QueueName,
    client: ApiClient,
    sequence_number: Annotated[
        int | None, typer.Argument(min=1, help="Sequence number of a message. Without it the queue is explained.")
    ] = None,
) -> None:
    """Explain why a message or a queue waits. For a message that has ended, say how it ended."""
    rest = () if sequence_number is None else ("messages", str(sequence_number))
    explanation = client.call("GET", queue_path(name, *rest, "explain"))
    client.printer.answer(explanation, explanation["text"])


@with_options(client=CONNECTION)
def history(
    name: QueueName,
    client: ApiClient,
    sequence_number: Annotated[int, typer.Argument(min=1, help="Sequence number of the message.")],
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of events.")] = PAGE_SIZE,
) -> None:
    """Show what happened to a message. Its queue must keep a history."""
    path = queue_path(name, "messages", str(sequence_number), "history")
    events = islice(client.pages(path, {"limit": min(limit, PAGE_SIZE)}), limit)
    client.printer.rows(events, EVENT_COLUMNS, "events of this message")


@with_options(client=CONNECTION)
def list_batches(
    client: ApiClient,
    after: Annotated[int, typer.Option(min=0, help="Only batches with a greater number.")] = 0,
) -> None:
    """List every sealed batch, also those whose messages were removed."""
    batches = client.pages("/v1/archive/batches", {"after": after, "limit": PAGE_SIZE})
    client.printer.rows(batches, BATCH_COLUMNS, "sealed batches")
