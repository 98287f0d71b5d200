"""`peeklock queue ...` and `peeklock dead-letter ...`: queues and their messages."""

from itertools import islice
from typing import Annotated, Any

import typer

from app.cli.client import (
    DEFAULT_URL,
    ApiClient,
    AsJson,
    Key,
    QueueName,
    Url,
    connect,
    progress,
    queue_path,
    show,
    show_table,
)
from app.cli.entity_settings import Setting, send_settings

queue = typer.Typer(no_args_is_help=True, help="Create, change, show, purge and delete queues.")
dead_letter = typer.Typer(no_args_is_help=True, help="List and redrive dead-lettered messages.")

FilterText = Annotated[
    str | None, typer.Option("--filter", help="Filter in CEL over `message`: only messages that match.")
]
Limit = Annotated[int | None, typer.Option(min=1, help="Maximum number of messages.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what the command would do, and change nothing.")]

STATES = ("available", "scheduled", "locked", "deferred", "dead_lettered", "blocked")
COUNTS = (*STATES, "uncommitted")
BATCH_SIZE = 1000
"""Messages per request of a purge or redrive, so that the progress bar moves and requests stay short."""


@queue.command("list")
def list_queues(url: Url = DEFAULT_URL, key: Key = None, as_json: AsJson = False) -> None:
    """List every queue with its counts."""
    client = connect(url, key, as_json)
    queues = list(client.pages("/v1/queues", {}))
    if as_json:
        for fields in queues:
            show(fields)
        return
    show_table(
        ("queue", "status", *COUNTS), [[fields["name"], fields["status"], *_counts(fields)] for fields in queues]
    )


@queue.command("show")
def show_queue(name: QueueName, url: Url = DEFAULT_URL, key: Key = None, as_json: AsJson = False) -> None:
    """Show the settings, status and counts of a queue."""
    fields = connect(url, key, as_json).call("GET", queue_path(name))
    if as_json:
        show(fields)
        return
    counts = fields.pop("counts")
    show_table(("setting", "value"), [*fields.items(), *counts.items()])


@queue.command("create")
def create_queue(
    name: QueueName, settings: Setting = None, url: Url = DEFAULT_URL, key: Key = None, as_json: AsJson = False
) -> None:
    """Create a queue, or replace its settings with these."""
    send_settings(connect(url, key, as_json), "PUT", queue_path(name), settings)


@queue.command("update")
def update_queue(
    name: QueueName, settings: Setting = None, url: Url = DEFAULT_URL, key: Key = None, as_json: AsJson = False
) -> None:
    """Change these settings of a queue and keep the others."""
    send_settings(connect(url, key, as_json), "PATCH", queue_path(name), settings)


@queue.command("delete")
def delete_queue(
    name: QueueName,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    dry_run: DryRun = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Delete a queue. Its messages go to the archive as purged."""
    client = connect(url, key, as_json)
    if dry_run:
        # An older server would ignore the parameter of a deletion and delete. It refuses an unknown field of a purge.
        _show_plan(client, queue_path(name, "purge"), {"states": STATES})
        return
    if not yes:
        typer.confirm(f"Delete queue {name} and all its messages?", abort=True, err=True)
    client.call("DELETE", queue_path(name))
    if as_json:
        show({"deleted": name})


@queue.command("purge")
def purge_queue(
    name: QueueName,
    state: Annotated[list[str] | None, typer.Option(help="Only messages in this state; may be repeated.")] = None,
    filter_: FilterText = None,
    limit: Limit = None,
    dry_run: DryRun = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Move messages to the archive. Locked ones stay unless --state locked is given."""
    request_body = _without_none(states=state, filter=filter_)
    _change_messages(connect(url, key, as_json), queue_path(name, "purge"), request_body, "removed", limit, dry_run)


def restore(
    name: QueueName,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only messages removed at this time (RFC 3339) or later.")
    ] = None,
    filter_: FilterText = None,
    limit: Limit = None,
    dry_run: DryRun = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Bring purged and cancelled messages of a queue back from the archive, each once."""
    request_body = _without_none(since=since, filter=filter_)
    _change_messages(connect(url, key, as_json), queue_path(name, "restore"), request_body, "restored", limit, dry_run)


@dead_letter.command("list")
def list_dead_letters(
    name: QueueName,
    filter_: FilterText = None,
    limit: Limit = 50,
    url: Url = DEFAULT_URL,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """List the dead-lettered messages of a queue with their reasons."""
    query = _without_none(state="dead_lettered", filter=filter_, limit=min(limit or BATCH_SIZE, BATCH_SIZE))
    messages = list(islice(connect(url, key, as_json).pages(queue_path(name, "messages"), query), limit))
    if as_json:
        for message in messages:
            show(message)
        return
    columns = ("sequence_number", "message_id", "failure_count", "dead_letter_reason", "dead_letter_description")
    show_table(columns, [[message.get(column) for column in columns] for message in messages])


@dead_letter.command("redrive")
def redrive_dead_letters(
    name: QueueName,
    to_queue: Annotated[str | None, typer.Option(help="Target queue, if it is another one.")] = None,
    filter_: FilterText = None,
    limit: Limit = None,
    rate: Annotated[float | None, typer.Option(help="Maximum messages per second.")] = None,
    dry_run: DryRun = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Make dead-lettered messages available again, with their counts reset."""
    request_body = _without_none(to_queue=to_queue, filter=filter_, rate_per_second=rate)
    path = queue_path(name, "dead-letter", "redrive")
    _change_messages(connect(url, key, as_json), path, request_body, "moved", limit, dry_run)


def _change_messages(
    client: ApiClient, path: str, request_body: dict[str, Any], field: str, limit: int | None, dry_run: bool
) -> None:
    if dry_run:
        _show_plan(client, path, request_body | _without_none(limit=limit))
    else:
        _print_count(client, field, _in_batches(client, path, request_body, field, limit))


def _show_plan(client: ApiClient, path: str, request_body: dict[str, Any]) -> None:
    """Print what a request would do."""
    plan = client.call("POST", path, {**request_body, "dry_run": True})
    if client.as_json:
        show(plan)
        return
    count = f"{plan['count']} messages" if plan["complete"] else f"at least {plan['count']} messages"
    typer.echo(f"{count} of {plan['bytes']} bytes")
    columns = ("sequence_number", "message_id", "state", "enqueued_at", "subject", "dead_letter_reason")
    show_table(columns, [[message.get(column) for column in columns] for message in plan["sample"]])


def _in_batches(client: ApiClient, path: str, request_body: dict[str, Any], field: str, limit: int | None) -> int:
    """Process one batch per request until a batch is empty or the limit is reached."""
    done = 0
    with progress() as bar:
        task = bar.add_task(field, total=limit)
        while limit is None or done < limit:
            batch = BATCH_SIZE if limit is None else min(BATCH_SIZE, limit - done)
            affected = client.call("POST", path, {**request_body, "limit": batch})[field]
            done += affected
            bar.update(task, completed=done)
            if affected == 0:
                break
    return done


def _without_none(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _counts(queue_fields: dict[str, Any]) -> list[int]:
    return [queue_fields["counts"][state] for state in COUNTS]


def _print_count(client: ApiClient, field: str, number: int) -> None:
    if client.as_json:
        show({field: number})
    else:
        typer.echo(f"{number} {field}")
