"""`peeklock queue move | moves | cancel-move`: tasks of the servers that move the messages of a queue."""

import time
from typing import Annotated, Any
from urllib.parse import quote

import typer

from app.cli.client import CONNECTION, ApiClient, DryRun, QueueName, queue_path, without_none
from app.cli.option_groups import with_options
from app.cli.progress import progress
from app.cli.selections import show_plan

MOVE_COLUMNS = ("id", "state", "to_queue", "rate_per_second", "found", "moved", "started_at", "ended_at", "reason")
POLL_SECONDS = 0.5
"""How often a command that waits asks for the progress of a task."""


@with_options(client=CONNECTION)
def move(
    name: QueueName,
    client: ApiClient,
    to_queue: Annotated[
        str | None,
        typer.Option(help="Target queue. Default: each message goes back to the queue that dead-lettered it."),
    ] = None,
    rate: Annotated[
        float | None, typer.Option("--rate-per-second", "--rate", help="Maximum messages per second.")
    ] = None,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Start the task, and do not wait until it ends.")] = False,
    dry_run: DryRun = False,
) -> None:
    """Move the messages of a queue to another one. Their counts are reset. The task continues if this command stops."""
    path, request_body = queue_path(name, "moves"), without_none(to_queue=to_queue, rate_per_second=rate)
    if dry_run:
        show_plan(client, path, request_body)
        return
    task = client.call("POST", path, request_body)["move"]
    if not no_wait:
        task = _ended(client, f"{path}/{task['id']}", task)
    client.printer.answer(task, _summary(task))
    if task["state"] not in ("running", "completed"):
        raise typer.Exit(1)


@with_options(client=CONNECTION)
def list_moves(name: QueueName, client: ApiClient) -> None:
    """List the last ten moves of a queue and their progress."""
    client.printer.rows(client.pages(queue_path(name, "moves"), {}), MOVE_COLUMNS, "move tasks")


@with_options(client=CONNECTION)
def cancel_move(
    name: QueueName,
    move_id: Annotated[str, typer.Argument(metavar="ID", help="Id of the task.")],
    client: ApiClient,
) -> None:
    """Cancel a task that moves messages of a queue. What it has moved stays where it is."""
    task = client.call("POST", queue_path(name, "moves", quote(move_id, safe=""), "cancel"), {})
    client.printer.answer(task, _summary(task))


def _ended(client: ApiClient, path: str, task: dict[str, Any]) -> dict[str, Any]:
    """Return the task once it has ended."""
    with progress("moved", task["found"]) as report:
        while task["state"] == "running":
            time.sleep(POLL_SECONDS)
            task = client.call("GET", path)
            report(task["moved"])
    return task


def _summary(task: dict[str, Any]) -> str:
    if task["state"] == "running":
        return task["id"]
    reason = f": {task['reason']}" if task["reason"] else ""
    return f"{task['moved']} moved, {task['state']}{reason}"
