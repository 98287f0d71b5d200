"""`peeklock work`: run the worker of a Python module, with the command of peeklock-client."""

import os
import sys
from importlib.util import find_spec
from typing import Annotated

import typer
from typer.models import CommandInfo

from app.cli.client import SERVER
from app.cli.option_groups import with_options
from app.cli.output import say


@with_options(server=SERVER)
def work(
    server: tuple[str | None, str | None],
    target: Annotated[str, typer.Argument(metavar="MODULE:WORKER", help="The worker, such as shop.orders:worker.")],
    rest: Annotated[
        list[str] | None,
        typer.Argument(metavar="[OPTION]...", help="Options of the worker: see `peeklock-worker --help`."),
    ] = None,
) -> None:
    """Run the worker of a Python module until SIGTERM. This needs the package peeklock-client."""
    if find_spec("peeklock_client") is None:
        say("This command needs the package peeklock-client, which is not installed.")
        raise typer.Exit(1)
    url, key = server
    found = {"PEEKLOCK_URL": url, "PEEKLOCK_API_KEY": key}
    environment = os.environ | {name: value for name, value in found.items() if value is not None}
    command = [sys.executable, "-m", "peeklock_client", target, *(rest or ())]
    os.execve(sys.executable, command, environment)


WORK = CommandInfo(callback=work, context_settings={"ignore_unknown_options": True})
