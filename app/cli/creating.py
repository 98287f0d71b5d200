"""Creates what does not exist yet. The settings of what exists are never replaced."""

from typing import Annotated, Any, TypeAlias

import typer

from app.cli.client import ApiClient, encode, problem_of
from app.cli.output import read_json, say

IfNotExists: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--if-not-exists", help="If it exists, print it and exit with status 0. Its settings stay as they are."
    ),
]

PRECONDITION_FAILED = 412


def create(client: ApiClient, path: str, settings: dict[str, Any], if_not_exists: bool) -> None:
    """Create a queue, a topic or a subscription, and print it. One that exists is refused, or printed as it is."""
    headers = {"content-type": "application/json", "if-none-match": "*"}
    response = client.try_send("PUT", path, content=encode(settings), headers=headers)
    if response.status_code == PRECONDITION_FAILED:
        if not if_not_exists:
            name = path.rpartition("/")[2]
            detail = f"{name} already exists. Use update to change its settings, or --if-not-exists to keep them."
            client.printer.problem({**problem_of(response), "detail": detail})
            raise typer.Exit(1)
        say("It already exists. Its settings are unchanged.")
        client.printer.fields(client.call("GET", path))
        return
    if response.is_error:
        client.printer.problem(problem_of(response))
        raise typer.Exit(1)
    client.printer.fields(read_json(response.content))
