"""The commands by name. The module of a command is imported when the command is used, so every command starts quickly."""

from collections.abc import Iterator, MutableMapping
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from app.cli.command_groups import command_group
from app.cli.lazy_conversion import convert_lazily, with_lazy_conversion

COMMANDS = {
    "serve": "server_commands:serve_program",
    "migrate": "server_commands:migrate",
    "openapi": "server_commands:openapi",
    "bench": "server_commands:bench_program",
    "work": "working:work_program",
    "context": "contexts:context",
    "capabilities": "capabilities:capabilities",
    "queue": "queues:queue",
    "topic": "topics:topic",
    "subscription": "topics:subscription",
    "send": "sending:send",
    "publish": "publishing:publish",
    "receive": "receiving:receive",
    "complete": "settling:complete",
    "abandon": "settling:abandon",
    "defer": "settling:defer",
    "renew": "settling:renew",
    "commit": "commit:commit",
    "recover": "receiving:recover",
    "execute": "execute:execute",
    "transaction": "transactions:transaction",
    "browse": "browsing:browse",
    "watch": "live:watch",
    "top": "live:top",
    "explain": "explain:explain",
    "history": "history:history",
    "restore": "selections:restore",
    "dead-letter": "dead_letters:dead_letter",
    "archive": "archive:archive",
    "state": "states:state",
    "key": "keys:key",
}
"""Each command with its module and the object there: a function, or a group of commands."""


class LazyCommands(MutableMapping[str, Any]):
    """The commands by name, each made when it is first read."""

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            self._made[name] = _make(name)
        return self._made[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._made[name] = command

    def __delitem__(self, name: str) -> None:
        del self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class LazyGroup(TyperGroup):
    """A group of the commands above."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = LazyCommands()

    def get_params(self, ctx: Any) -> list[Any]:
        """See `click.Command`."""
        return [*with_lazy_conversion(super().get_params(ctx))]


def _make(name: str) -> Any:
    module, _, attribute = COMMANDS[name].partition(":")
    found = getattr(import_module(f"app.cli.{module}"), attribute)
    if isinstance(found, typer.Typer):
        found.info.name = name
        command = get_command(found)
    else:
        alone = command_group()
        alone.command(name)(found)
        command = get_command(alone)
    command.name = name
    convert_lazily(command)
    return command
