"""`peeklock browse`: messages without locks."""

from itertools import islice
from typing import Annotated

import typer

from app.cli.client import CONNECTION, ApiClient, QueueName, queue_path, without_none
from app.cli.option_groups import with_options
from app.cli.selections import FilterText

COLUMNS = ("sequence_number", "state", "priority", "message_id", "enqueued_at", "failure_count", "locked_until")
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
    client.printer.rows(messages, COLUMNS, f"messages in queue {name}")
