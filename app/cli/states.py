"""`peeklock state ...`: the versioned states of processed messages."""

from typing import Annotated, Any, TypeAlias
from urllib.parse import quote

import typer

from app.cli.client import DEFAULT_URL, AsJson, Key, Url, connect, show, show_table

state = typer.Typer(no_args_is_help=True, help="Read and delete versioned states.")

StateKey: TypeAlias = Annotated[str, typer.Argument(metavar="KEY", help="Key of the state.")]
PAGE_SIZE = 100


@state.command("get")
def get(
    state_key: StateKey,
    version: Annotated[int | None, typer.Option(min=0, help="This version instead of the newest one.")] = None,
    before_message: Annotated[
        str | None, typer.Option(help="The version to process the message of this id on.")
    ] = None,
    url: Url = DEFAULT_URL,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Print a version of a state as JSON."""
    query = {"version": version, "before_message": before_message}
    given = {name: value for name, value in query.items() if value is not None}
    show(connect(url, key, as_json).call("GET", _path(state_key), query=given))


@state.command("history")
def history(
    state_key: StateKey,
    after: Annotated[int, typer.Option(min=0, help="Only versions with a greater number.")] = 0,
    url: Url = DEFAULT_URL,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """List the versions of a state that are kept."""
    query: dict[str, Any] = {"after": after, "limit": PAGE_SIZE}
    versions = connect(url, key, as_json).pages(f"{_path(state_key)}/history", query)
    if not as_json:
        columns = ("version", "message_id", "updated_at", "value_bytes")
        show_table(columns, [[version[column] for column in columns] for version in versions])
        return
    for version in versions:
        show(version)


@state.command("delete")
def delete(state_key: StateKey, url: Url = DEFAULT_URL, key: Key = None) -> None:
    """Delete a state with all its versions. Messages that were processed before then count as new."""
    connect(url, key).call("DELETE", _path(state_key))


def _path(state_key: str) -> str:
    return f"/v1/states/{quote(state_key, safe='')}"
