"""`peeklock capabilities`: what a server offers."""

from typing import Any, cast

from app.cli.client import CONNECTION, ApiClient
from app.cli.option_groups import with_options
from app.cli.output import print_lines


@with_options(client=CONNECTION)
def capabilities(client: ApiClient) -> None:
    """Show the versions and limits of a server. Also say whether messages survive a crash of the database."""
    offered = client.call("GET", "/v1/capabilities")
    if client.printer.is_for_programs:
        client.printer.document(offered)
        return
    print_lines(("capability", "value"), [row for name, value in offered.items() for row in _rows(name, value)])


def _rows(name: str, value: Any) -> list[tuple[str, Any]]:
    """Return a row for each member of a part of the document, or one for the part itself."""
    if not isinstance(value, dict):
        return [(name, value)]
    members = cast("dict[str, Any]", value)
    return [(f"{name}.{member}", members[member]) for member in members]
