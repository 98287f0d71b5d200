"""What `peeklock serve` does: checks that all is well, opens the port, and serves until told to stop."""

import asyncio
import os
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import partial

import structlog
import typer
from pydantic import ValidationError

from app.cli.client import err, out
from app.logs import configure
from app.server.listening import bind, run
from app.server.preflight import RefusedToStart, prepare
from app.settings import Settings

PREFIX = "PEEKLOCK_"

CLIENT_VARIABLES = ("PEEKLOCK_URL", "PEEKLOCK_API_KEY")
"""What the other commands read."""

log = structlog.get_logger("peeklock")

FIRST_STEPS = """
Peeklock listens on {url} and keeps its messages in {where}. In another terminal, try:

{steps}

The last but one answers with a lock_token. Put it into the last one, and the message is done.

Stop with Ctrl-C. Everything it can do: {url}/openapi.json
"""
CREATE_COMMAND = "  curl -s{key} -X PUT {url}/v1/queues/hello -d '{{}}'"
MESSAGE_COMMANDS = (
    """  curl -s{key} {url}/v1/queues/hello/messages -d '{{"body": {{"text": "my first message"}}}}'""",
    """  curl -s{key} {url}/v1/queues/hello/messages/receive -d '{{"wait_seconds": 5}}'""",
    "  curl -s{key} -X POST {url}/v1/queues/hello/locks/LOCK_TOKEN/complete",
)
KEY_ARGUMENT = ' -H "Authorization: Bearer $PEEKLOCK_API_KEY"'


def settings_help() -> str:
    """Every setting with its default and what it does, for `serve --help`."""
    lines = ["Serve until told to stop. Settings come from the environment:", ""]
    for name, field in Settings.model_fields.items():
        default = "" if field.default is None else f" [{field.default}]"
        lines += [f"{PREFIX}{name.upper()}{default}  {field.description}", ""]
    return "\n".join(lines)


def serve(given: Mapping[str, object]) -> None:
    """Serve with the settings of the environment and those that are given here, by their names. Ends the command."""
    # Server processes read the environment, so what was typed goes there.
    os.environ.update({PREFIX + name.upper(): str(value) for name, value in given.items()})
    settings = read_settings()
    configure(settings.log_format, settings.log_level)
    for misspelt, nearest in misspelt_settings(os.environ):
        log.warning("there is no such setting, and it is ignored", given=misspelt, nearest=nearest)
    try:
        needs_key = asyncio.run(prepare(settings))
        listener = bind(settings.host, settings.port)
    except RefusedToStart as refusal:
        err.print(str(refusal), markup=False)
        raise typer.Exit(2) from None
    raise typer.Exit(run(settings, listener, partial(_print_first_steps, settings, needs_key)))


def read_settings() -> Settings:
    """The settings of the environment; what is wrong with them is said in one line each."""
    try:
        return Settings()
    except ValidationError as error:
        for fault in error.errors():
            name = PREFIX + str(fault["loc"][0]).upper()
            err.print(f"{name}: {fault['msg']} (given: {fault['input']})", markup=False)
        raise typer.Exit(2) from None


def misspelt_settings(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Names that look like settings and are none, each with the setting that may be meant.

    What resembles none is left alone: Kubernetes, for one, sets PEEKLOCK_SERVICE_HOST for a Service of that name.
    """
    known = [PREFIX + name.upper() for name in Settings.model_fields]
    for name in names:
        if name.upper().startswith(PREFIX) and name.upper() not in (*known, *CLIENT_VARIABLES):
            # Compared without what all begin with, or all would resemble each other.
            rests = [one.removeprefix(PREFIX) for one in known]
            for nearest in get_close_matches(name.upper().removeprefix(PREFIX), rests, n=1):
                yield name, PREFIX + nearest


def _print_first_steps(settings: Settings, needs_key: bool, url: str) -> None:
    """Show a person at this machine what to type next; the log tells the others."""
    if not settings.is_loopback:
        return
    where = str(settings.data_dir / "peeklock.db") if settings.is_embedded else "the database of PEEKLOCK_DATABASE_URL"
    lines = MESSAGE_COMMANDS if settings.creates_queues else (CREATE_COMMAND, *MESSAGE_COMMANDS)
    key = KEY_ARGUMENT if needs_key else ""
    steps = "\n".join(line.format(url=url, key=key) for line in lines)
    out.print(FIRST_STEPS.format(url=url, where=where, steps=steps), markup=False)
