"""`peeklock dead-letter list | redrive`: messages that cannot be processed."""

from itertools import islice
from typing import Annotated

import typer

from app.cli.client import CONNECTION, ApiClient, DryRun, QueueName, queue_path, without_none
from app.cli.option_groups import with_options
from app.cli.selections import BATCH_SIZE, FilterText, Limit, change_messages

COLUMNS = ("sequence_number", "message_id", "failure_count", "dead_letter_reason", "dead_letter_description")


@with_options(client=CONNECTION)
def list_dead_letters(name: QueueName, client: ApiClient, filter_: FilterText = None, limit: Limit = 50) -> None:
    """List the dead-lettered messages of a queue with their reasons."""
    query = without_none(state="dead_lettered", filter=filter_, limit=min(limit or BATCH_SIZE, BATCH_SIZE))
    messages = islice(client.pages(queue_path(name, "messages"), query), limit)
    client.printer.rows(messages, COLUMNS, "dead-lettered messages")


@with_options(client=CONNECTION)
def redrive_dead_letters(
    name: QueueName,
    client: ApiClient,
    to_queue: Annotated[str | None, typer.Option(help="Target queue, if it is another one.")] = None,
    filter_: FilterText = None,
    limit: Limit = None,
    rate: Annotated[
        float | None, typer.Option("--rate-per-second", "--rate", help="Maximum messages per second.")
    ] = None,
    dry_run: DryRun = False,
) -> None:
    """Make dead-lettered messages available again, with their counts reset."""
    request_body = without_none(to_queue=to_queue, filter=filter_, rate_per_second=rate)
    change_messages(client, queue_path(name, "dead-letter", "redrive"), request_body, "moved", limit, dry_run)
