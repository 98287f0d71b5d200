"""`peeklock queue list | show | delete | purge | consumers`."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from app.cli.client import CONNECTION, ApiClient, DryRun, QueueName, Yes, confirm, queue_path, without_none
from app.cli.option_groups import with_options
from app.cli.selections import FilterText, Limit, change_messages, show_plan

STATES = ("available", "scheduled", "locked", "deferred", "dead_lettered", "blocked")
COUNTS = (*STATES, "uncommitted")
CONSUMER_COLUMNS = ("consumer", "principal", "state", "state_since", "reported_at", "target", "reason")


@with_options(client=CONNECTION)
def list_queues(client: ApiClient) -> None:
    """List every queue with its counts."""
    queues = client.pages("/v1/queues", {})
    if client.printer.is_for_programs:
        client.printer.rows(queues, (), "queues")
        return
    client.printer.rows(map(queue_row, queues), ("queue", "status", *COUNTS), "queues")


@with_options(client=CONNECTION)
def show_queue(name: QueueName, client: ApiClient) -> None:
    """Show the settings, status and counts of a queue."""
    fields = client.call("GET", queue_path(name))
    if not client.printer.is_for_programs:
        fields |= fields.pop("counts")
    client.printer.fields(fields)


@with_options(client=CONNECTION)
def delete_queue(name: QueueName, client: ApiClient, yes: Yes = False, dry_run: DryRun = False) -> None:
    """Delete a queue. Its messages go to the archive as purged."""
    if dry_run:
        # An older server would ignore the parameter of a deletion and delete. It refuses an unknown field of a purge.
        show_plan(client, queue_path(name, "purge"), {"states": STATES})
        return
    confirm(f"Delete queue {name} and all its messages?", yes)
    client.call("DELETE", queue_path(name))
    if client.printer.is_for_programs:
        client.printer.document({"deleted": name})


@with_options(client=CONNECTION)
def purge_queue(
    name: QueueName,
    client: ApiClient,
    state: Annotated[list[str] | None, typer.Option(help="Only messages in this state; may be repeated.")] = None,
    filter_: FilterText = None,
    limit: Limit = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Move messages to the archive. Locked ones stay unless --state locked is given."""
    if not dry_run:
        selected = "the selected messages" if state or filter_ or limit else "all messages that are not locked"
        confirm(f"Remove {selected} from queue {name}?", yes)
    request_body = without_none(states=state or None, filter=filter_)
    change_messages(client, queue_path(name, "purge"), request_body, "removed", limit, dry_run)


@with_options(client=CONNECTION)
def list_consumers(name: QueueName, client: ApiClient) -> None:
    """List the consumers of a queue. Each reports itself, and why it is paused."""
    consumers = client.call("GET", queue_path(name, "consumers"))["items"]
    client.printer.rows(consumers, CONSUMER_COLUMNS, "consumers that report themselves")


def queue_row(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of a queue in a list."""
    return {"queue": fields["name"], "status": fields["status"], **fields["counts"]}
