"""`peeklock serve`: checks the settings and backends, opens the port, and serves until it is stopped."""

import asyncio
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import partial

import structlog
import typer
from pydantic import SecretStr, ValidationError

from app.cli.output import say
from app.logs import configure
from app.server.listening import bind, run
from app.server.preflight import RefusedToStart, prepare
from app.settings import Settings

PREFIX = "PEEKLOCK_"

CLIENT_VARIABLES = ("PEEKLOCK_URL", "PEEKLOCK_API_KEY")
"""The variables of the other commands."""

log = structlog.get_logger("peeklock")

FIRST_STEPS = """\
Peeklock listens on {url} and keeps its messages in {where}. Stop it with Ctrl-C.
{steps}
Docs: {url}/docs{guide}{console}
"""
CREATE_COMMAND = "Create a queue:  curl -s{key} -X PUT {url}/v1/queues/hello -d '{{}}'"
MESSAGE_COMMANDS = (
    """Send:      curl -s{key} {url}/v1/queues/hello/messages -d '{{"body": "my first message"}}'""",
    """Receive:   curl -s{key} {url}/v1/queues/hello/messages/receive -d '{{"wait_seconds": 5}}'""",
    "Complete:  curl -s{key} -X POST {url}/v1/queues/hello/locks/LOCK_TOKEN/complete  (LOCK_TOKEN is the received lock_token)",
)
KEY_ARGUMENT = ' -H "Authorization: Bearer $PEEKLOCK_API_KEY"'


def settings_help() -> str:
    """Return every setting with its default and description, for `serve --help`."""
    lines = ["Run the server until it is stopped. Settings come from the environment:", ""]
    for name, field in Settings.model_fields.items():
        default = "" if field.default is None else f" [{field.default}]"
        lines += [f"{PREFIX}{name.upper()}{default}  {field.description}", ""]
    return "\n".join(lines)


def serve(given: Mapping[str, object]) -> None:
    """Serve with the settings of the environment, overridden by `given`. Exits the command."""
    # Server processes read the environment, so the given options go there.
    os.environ.update({PREFIX + name.upper(): str(value) for name, value in given.items()})
    settings = read_settings()
    configure(settings.log_format, settings.log_level)
    for misspelt, nearest in misspelt_settings(os.environ):
        log.warning("unknown setting ignored", given=misspelt, nearest=nearest)
    try:
        needs_key = asyncio.run(prepare(settings))
        listener = bind(settings.host, settings.port)
    except RefusedToStart as refusal:
        say(str(refusal))
        raise typer.Exit(2) from None
    raise typer.Exit(run(settings, listener, partial(_announce, settings, needs_key)))


def read_settings() -> Settings:
    """Return the settings of the environment. Each invalid one is printed on one line, and the command exits with 2."""
    try:
        return Settings()
    except ValidationError as error:
        for fault in error.errors():
            field = str(fault["loc"][0])
            # A secret with a typing error is still nearly the secret.
            given = "" if Settings.model_fields[field].annotation == SecretStr | None else f" (given: {fault['input']})"
            say(f"{PREFIX}{field.upper()}: {fault['msg']}{given}")
        raise typer.Exit(2) from None


def misspelt_settings(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield names that resemble a setting but are none, each with the nearest setting.

    Other names are ignored: Kubernetes, for example, sets PEEKLOCK_SERVICE_HOST for a Service of that name.
    """
    known = [PREFIX + name.upper() for name in Settings.model_fields]
    for name in names:
        if name.upper().startswith(PREFIX) and name.upper() not in (*known, *CLIENT_VARIABLES):
            # Compared without the common prefix, or all names would resemble each other.
            candidates = [candidate.removeprefix(PREFIX) for candidate in known]
            for nearest in get_close_matches(name.upper().removeprefix(PREFIX), candidates, n=1):
                yield name, PREFIX + nearest


def _announce(settings: Settings, needs_key: bool, url: str) -> None:
    """Print first commands for a person at this machine. Otherwise log the URL: a program reads it, or it is public."""
    if not (settings.is_loopback and sys.stdout.isatty()):
        log.info("listening", url=url, processes=settings.workers)
        return
    where = str(settings.data_dir / "peeklock.db") if settings.is_embedded else "the database of PEEKLOCK_DATABASE_URL"
    commands = MESSAGE_COMMANDS if settings.creates_queues else (CREATE_COMMAND, *MESSAGE_COMMANDS)
    key = KEY_ARGUMENT if needs_key else ""
    steps = "\n".join(command.format(url=url, key=key) for command in commands)
    guide = f"  Guide: {url}/docs/guide/" if settings.guide_dir else ""
    console = f"  Console: {url}/console" if settings.console else ""
    typer.echo(FIRST_STEPS.format(url=url, where=where, steps=steps, guide=guide, console=console), nl=False)
