"""`peeklock archive ...`: the sealed batches of ended messages."""

from typing import Annotated

import typer

from app.cli.client import CONNECTION, ApiClient
from app.cli.option_groups import with_options

COLUMNS = ("number", "row_count", "sealed_at", "remove_at", "removed_at", "removal")


@with_options(client=CONNECTION)
def list_batches(
    client: ApiClient,
    after: Annotated[int, typer.Option(min=0, help="Only batches with a greater number.")] = 0,
) -> None:
    """List every sealed batch, also those whose messages were removed."""
    batches = client.pages("/v1/archive/batches", {"after": after, "limit": 1000})
    client.printer.rows(batches, COLUMNS, "sealed batches")
