"""Commands for messages that match a filter: `dead-letter list`, and in batches `dead-letter redrive` and `restore`."""

from itertools import islice
from typing import Annotated, Any, TypeAlias

import typer

from app.cli.client import CONNECTION, ApiClient, DryRun, QueueName, queue_path, without_none
from app.cli.option_groups import with_options
from app.cli.output import print_table
from app.cli.progress import progress

FilterText: TypeAlias = Annotated[
    str | None, typer.Option("--filter", help="CEL expression over `message`: only messages that match.")
]
Limit: TypeAlias = Annotated[int | None, typer.Option(min=1, help="Maximum number of messages.")]

PLAN_COLUMNS = ("sequence_number", "message_id", "state", "enqueued_at", "subject", "dead_letter_reason")
DEAD_LETTER_COLUMNS = (
    "sequence_number",
    "message_id",
    "failure_count",
    "dead_letter_reason",
    "dead_letter_description",
)
BATCH_SIZE = 1000
"""Messages per request of a purge or redrive, so that the progress bar moves and requests stay short."""


@with_options(client=CONNECTION)
def list_dead_letters(name: QueueName, client: ApiClient, filter_: FilterText = None, limit: Limit = 50) -> None:
    """List the dead-lettered messages of a queue with their reasons."""
    query = without_none(state="dead_lettered", filter=filter_, limit=min(limit or BATCH_SIZE, BATCH_SIZE))
    messages = islice(client.pages(queue_path(name, "messages"), query), limit)
    client.printer.rows(messages, DEAD_LETTER_COLUMNS, "dead-lettered messages")


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
    """Make dead-lettered messages available again. Both counts begin at 0."""
    request_body = without_none(to_queue=to_queue, filter=filter_, rate_per_second=rate)
    change_messages(client, queue_path(name, "dead-letter", "redrive"), request_body, "moved", limit, dry_run)


@with_options(client=CONNECTION)
def restore(
    name: QueueName,
    client: ApiClient,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only messages removed at this time (RFC 3339) or later.")
    ] = None,
    filter_: FilterText = None,
    limit: Limit = None,
    dry_run: DryRun = False,
) -> None:
    """Bring purged and cancelled messages back. Each is restored once, from the archive."""
    request_body = without_none(since=since, filter=filter_)
    change_messages(client, queue_path(name, "restore"), request_body, "restored", limit, dry_run)


def change_messages(
    client: ApiClient, path: str, request_body: dict[str, Any], field: str, limit: int | None, dry_run: bool
) -> None:
    """Change all messages that a request selects, or show which."""
    if dry_run:
        show_plan(client, path, request_body | without_none(limit=limit))
        return
    number = _in_batches(client, path, request_body, field, limit)
    client.printer.answer({field: number}, f"{number} {field}")


def show_plan(client: ApiClient, path: str, request_body: dict[str, Any]) -> None:
    """Print what a request would do."""
    plan = client.call("POST", path, {**request_body, "dry_run": True})
    count = f"{_counted(plan['count'], 'message')} of {_counted(plan['bytes'], 'byte')}"
    client.printer.answer(plan, count if plan["complete"] else f"at least {count}")
    if plan["sample"] and not client.printer.is_for_programs:
        rows = [[message.get(column) for column in PLAN_COLUMNS] for message in plan["sample"]]
        print_table(PLAN_COLUMNS, rows)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _in_batches(client: ApiClient, path: str, request_body: dict[str, Any], field: str, limit: int | None) -> int:
    """Process one batch per request until a batch is empty or the limit is reached."""
    done = 0
    with progress(field, limit) as report:
        while limit is None or done < limit:
            batch = BATCH_SIZE if limit is None else min(BATCH_SIZE, limit - done)
            affected = client.call("POST", path, {**request_body, "limit": batch})[field]
            done += affected
            report(done)
            if affected == 0:
                break
    return done
