"""`peeklock context ...`: servers by name, each with its URL and its API key."""

import sys
from typing import Annotated, Any, TypeAlias

import typer

from app.cli.client import OutputGroup
from app.cli.context_file import BadContextFile, ContextFile, Contexts, NoSuchContext, StoredContext, named
from app.cli.option_groups import with_options
from app.cli.output import Printer, say

ContextName: TypeAlias = Annotated[str, typer.Argument(metavar="NAME", help="Name of the context.")]
COLUMNS = ("name", "current", "url", "api_key")


def add(
    name: ContextName,
    url: Annotated[str, typer.Option("--url", help="URL of the server.")],
    api_key: Annotated[
        str | None,
        typer.Option("--api-key", "--key", help="API key of the caller. `-` reads it from standard input."),
    ] = None,
) -> None:
    """Add a context, or replace the context of this name. The first context becomes the current one."""
    file = ContextFile.of_user()
    contexts = _read(file)
    key = sys.stdin.readline().strip() if api_key == "-" else api_key
    contexts.contexts[name] = StoredContext(url=url, api_key=key)
    contexts.current = contexts.current or name
    file.write(contexts)
    say(f"Saved context {name} in {file.path}, which only you can read.")


def use(name: ContextName) -> None:
    """Make a context the current one: later commands use it."""
    file = ContextFile.of_user()
    contexts = _read(file)
    _named(contexts, name)
    contexts.current = name
    file.write(contexts)


@with_options(printer=OutputGroup())
def list_contexts(printer: Printer) -> None:
    """List the contexts. Their keys are not printed."""
    contexts = _read(ContextFile.of_user())
    printer.rows((_view(contexts, name) for name in sorted(contexts.contexts)), COLUMNS, "contexts")


@with_options(printer=OutputGroup())
def show(
    printer: Printer,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Name of the context. The current one by default.")
    ] = None,
) -> None:
    """Show a context. Its key is not printed."""
    contexts = _read(ContextFile.of_user())
    shown = name or contexts.current
    if shown is None:
        say("There is no current context.")
        raise typer.Exit(1)
    _named(contexts, shown)
    printer.fields(_view(contexts, shown))


def remove(name: ContextName) -> None:
    """Remove a context and its key."""
    file = ContextFile.of_user()
    contexts = _read(file)
    _named(contexts, name)
    del contexts.contexts[name]
    contexts.current = None if contexts.current == name else contexts.current
    file.write(contexts)


def _read(file: ContextFile) -> Contexts:
    try:
        return file.read()
    except BadContextFile as error:
        say(str(error))
        raise typer.Exit(1) from None


def _named(contexts: Contexts, name: str) -> StoredContext:
    try:
        return named(contexts.contexts, name)
    except NoSuchContext as error:
        say(str(error))
        raise typer.Exit(1) from None


def _view(contexts: Contexts, name: str) -> dict[str, Any]:
    stored = contexts.contexts[name]
    return {"name": name, "current": name == contexts.current, "url": stored.url, "api_key": stored.api_key is not None}
