"""`peeklock state ...`: the versioned states of processed messages."""

from typing import Annotated, Any, TypeAlias
from urllib.parse import quote

import typer

from app.cli.client import CONNECTION, ApiClient, without_none
from app.cli.option_groups import with_options

StateKey: TypeAlias = Annotated[str, typer.Argument(metavar="KEY", help="Key of the state.")]
COLUMNS = ("version", "message_id", "updated_at", "value_bytes")
PAGE_SIZE = 100


@with_options(client=CONNECTION)
def get(
    state_key: StateKey,
    client: ApiClient,
    version: Annotated[int | None, typer.Option(min=0, help="This version instead of the newest one.")] = None,
    before_message: Annotated[
        str | None, typer.Option(help="The version to process the message of this id on.")
    ] = None,
) -> None:
    """Print a version of a state as JSON."""
    query = without_none(version=version, before_message=before_message)
    client.printer.document(client.call("GET", _path(state_key), query=query))


@with_options(client=CONNECTION)
def history(
    state_key: StateKey,
    client: ApiClient,
    after: Annotated[int, typer.Option(min=0, help="Only versions with a greater number.")] = 0,
) -> None:
    """List the versions of a state that are kept."""
    query: dict[str, Any] = {"after": after, "limit": PAGE_SIZE}
    versions = client.pages(f"{_path(state_key)}/history", query)
    client.printer.rows(versions, COLUMNS, "versions of this state")


@with_options(client=CONNECTION)
def delete(state_key: StateKey, client: ApiClient) -> None:
    """Delete a state with all its versions. Messages that were processed before then count as new."""
    client.call("DELETE", _path(state_key))
    if client.printer.is_for_programs:
        client.printer.document({"deleted": state_key})


def _path(state_key: str) -> str:
    return f"/v1/states/{quote(state_key, safe='')}"
