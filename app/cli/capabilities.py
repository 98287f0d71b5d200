"""`peeklock capabilities`: what a server offers."""

from typing import Any, cast

from app.cli.client import DEFAULT_URL, AsJson, Key, Url, connect, show, show_table


def capabilities(url: Url = DEFAULT_URL, key: Key = None, as_json: AsJson = False) -> None:
    """Show the versions and limits of a server, and how safe its messages are."""
    offered = connect(url, key, as_json).call("GET", "/v1/capabilities")
    if as_json:
        show(offered)
        return
    show_table(("capability", "value"), [row for name, value in offered.items() for row in _rows(name, value)])


def _rows(name: str, value: Any) -> list[tuple[str, Any]]:
    """Return a row for each member of a part of the document, or one for the part itself."""
    if not isinstance(value, dict):
        return [(name, value)]
    members = cast("dict[str, Any]", value)
    return [(f"{name}.{member}", members[member]) for member in members]
