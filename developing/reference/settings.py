"""The page of settings."""

from __future__ import annotations

from typing import Any, Literal, get_args, get_origin

from pydantic import HttpUrl, SecretStr

from app.settings import Settings
from developing.reference import markdown
from developing.reference.contract import settings

INTRODUCTION = """
A server reads its settings from the environment when it starts. `peeklock serve --help` prints them too. An empty
variable counts as not set. A value that is not allowed stops the start with a sentence. [Deploying](../deploy.md)
explains how settings work together, and [Limits](limits.md) what happens beyond a limit.
"""
CLIENT_VARIABLES = """
## Variables of the command line

The other commands of `peeklock` read `PEEKLOCK_URL` and `PEEKLOCK_API_KEY`: the server, and the key to present to it.
[The command line](command-line.md) names the options that override them.
"""


def page() -> str:
    """Return the page: one row for each setting."""
    ranges = {name: range_ for name, (_, range_) in settings().items()}
    rows = []
    for field, about in Settings.model_fields.items():
        name = f"PEEKLOCK_{field.upper()}"
        kind, allowed = _kind(about.annotation)
        shown = ranges.get(name) or allowed
        rows.append((markdown.code(name), kind, _default(about.default), shown, about.description or ""))
    header = ("setting", "type", "default", "allowed", "meaning")
    return markdown.page("Settings", INTRODUCTION, markdown.table(header, rows), CLIENT_VARIABLES)


def _kind(annotation: Any) -> tuple[str, str]:
    """Return the type of a setting in words, and the values that it may have."""
    chosen = [part for part in get_args(annotation) or (annotation,) if part is not type(None)]
    if get_origin(chosen[0]) is Literal:
        chosen = [*get_args(chosen[0])]
    if isinstance(chosen[0], str):
        return "word", ", ".join(f"`{value}`" for value in chosen)
    names = {bool: "boolean", int: "integer", float: "number", SecretStr: "secret", str: "text", HttpUrl: "URL"}
    kind = names.get(chosen[0], "path")
    return kind, "`true`, `false`" if kind == "boolean" else ""


def _default(value: object) -> str:
    if value is None or value == "":
        return ""
    if isinstance(value, bool):
        return markdown.code(str(value).lower())
    return markdown.code(f"{value:.10g}" if isinstance(value, int | float) else str(value))
