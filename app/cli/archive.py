"""`peeklock archive ...`: the sealed batches of what has ended."""

from typing import Annotated

import typer

from app.cli.client import DEFAULT_URL, AsJson, Key, Url, connect, show, show_table

archive = typer.Typer(no_args_is_help=True, help="Look at the batches into which ended messages are sealed.")

COLUMNS = ("number", "row_count", "sealed_at", "remove_at", "removed_at", "removal")


# Without it, typer would take the only command for the whole program.
@archive.callback()
def archive_group() -> None: ...


@archive.command("list")
def list_batches(
    after: Annotated[int, typer.Option(min=0, help="Only batches of greater numbers.")] = 0,
    url: Url = DEFAULT_URL,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Every sealed batch, whether its messages are still there or not."""
    batches = connect(url, key, as_json).pages("/v1/archive/batches", {"after": after, "limit": 1000})
    if not as_json:
        show_table(COLUMNS, [[batch[column] for column in COLUMNS] for batch in batches])
        return
    for batch in batches:
        show(batch)
