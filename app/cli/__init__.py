"""The command line: `peeklock`."""

import gc

import typer

from app import __version__
from app.cli.lazy_commands import LazyGroup

app = typer.Typer(
    name="peeklock",
    cls=LazyGroup,
    help="Peeklock: a message broker over plain HTTP.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"peeklock {__version__}")
        raise typer.Exit


@app.callback()
def peeklock(
    version: bool = typer.Option(
        False, "--version", is_eager=True, callback=_print_version, help="Print the version and exit."
    ),
) -> None:
    """Peeklock: a message broker over plain HTTP."""


COLLECTION_THRESHOLD = 50_000
"""By default, the garbage collector would run forty times while a command is imported, and find nothing."""


def main() -> None:
    """Run the command that was typed."""
    gc.set_threshold(COLLECTION_THRESHOLD)
    app()
