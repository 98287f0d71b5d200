"""`peeklock archive ...`: the sealed batches of ended messages."""

from typing import Annotated

import typer

from app.cli.client import DEFAULT_URL, AsJson, Key, Url, connect, show, show_table

archive = typer.Typer(no_args_is_help=True, help="List the sealed batches of ended messages.")

COLUMNS = ("number", "row_count", "sealed_at", "remove_at", "removed_at", "removal")


# Without a callback, typer would replace the group by its only command.
@archive.callback()
def archive_group() -> None: ...


@archive.command("list")
def list_batches(
    after: Annotated[int, typer.Option(min=0, help="Only batches with a greater number.")] = 0,
    url: Url = DEFAULT_URL,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """List every sealed batch, also those whose messages were removed."""
    batches = connect(url, key, as_json).pages("/v1/archive/batches", {"after": after, "limit": 1000})
    if not as_json:
        show_table(COLUMNS, [[batch[column] for column in COLUMNS] for batch in batches])
        return
    for batch in batches:
        show(batch)
