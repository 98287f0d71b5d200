"""The page of the command line: every command with its arguments and options."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from peeklock_client.command.main import parser
from typer.main import get_command

from app.cli import app
from developing.reference import markdown

INTRODUCTION = """
Every command of `peeklock`, as `--help` prints it, and `peeklock-worker`. [The command line](../command-line.md) is the guide.
Each command also has `--help`.
"""


def page() -> str:
    """Return the page: a list of all commands, then a section for each."""
    commands = list(_commands(get_command(app), "peeklock"))
    overview = markdown.table(
        ("command", "purpose"),
        [(f"[`{path}`](#{_anchor(path)})", _first_sentence(command)) for path, command in commands],
    )
    sections = [*(_section(*entry) for entry in commands), _worker_section()]
    return markdown.page("Command line", INTRODUCTION, overview, *sections)


def _commands(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield each command that is no group, with the words that run it."""
    below = getattr(command, "commands", None)
    if below is None:
        yield path, command
        return
    for name in below:
        yield from _commands(below[name], f"{path} {name}")


def _section(path: str, command: Any) -> str:
    context = command.context_class(command, info_name=path)
    usage = " ".join(context.get_usage().removeprefix("Usage: ").split())
    parameters = [one for one in command.get_params(context) if "--help" not in one.opts]
    arguments = [one for one in parameters if one.param_type_name == "argument"]
    options = [one for one in parameters if one.param_type_name == "option" and not one.hidden]
    parts = [
        f"## {path}",
        (command.help or "").replace("\b\n", ""),
        markdown.block("text", usage),
        markdown.table(("argument", "meaning"), [_row(one, context) for one in arguments]),
        markdown.table(("option", "meaning"), [_row(one, context) for one in options]),
    ]
    if path == "peeklock serve":
        parts.append("Its settings come from the environment: see [Settings](settings.md).")
    return "\n\n".join(part.strip() for part in parts if part)


def _worker_section() -> str:
    """Return the section of the command of the Python client, which is a parser of the standard library."""
    worker = parser()
    actions = [one for one in worker._actions if one.dest != "help" and one.help != argparse.SUPPRESS]  # noqa: SLF001
    rows = [_worker_row(one) for one in actions]
    parts = [
        "## peeklock-worker",
        f"{worker.description} {worker.epilog} It is a command of the package peeklock-client. The guides are [Workers](../guides/workers.md) "
        "and [Push](../guides/push.md).",
        markdown.block(
            "text", "peeklock-worker [OPTIONS] MODULE:WORKER\npeeklock-worker --push URL --queue NAME [OPTIONS]"
        ),
        markdown.table(("argument or option", "meaning"), rows),
    ]
    return "\n\n".join(parts)


def _worker_row(action: argparse.Action) -> tuple[str, str]:
    """Return the form of an option and its meaning."""
    name = ", ".join(action.option_strings)
    values = action.metavar or ("|".join(map(str, action.choices)) if action.choices else action.dest.upper())
    shown = name if action.nargs == 0 else f"{name} {values}".strip()
    return f"`{shown}`", str(action.help) % vars(action)


def _row(parameter: Any, context: Any) -> tuple[str, str]:
    shown, meaning = parameter.get_help_record(context)
    return f"`{shown}`", meaning


def _first_sentence(command: Any) -> str:
    text = " ".join((command.help or "").split())
    return text.partition(". ")[0].removesuffix(".") + "."


def _anchor(path: str) -> str:
    return path.replace(" ", "-")
