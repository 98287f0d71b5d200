"""The commands by name. The module of a command is imported when the command is used, so every command starts quickly."""

from collections.abc import Iterator, Mapping, MutableMapping
from importlib import import_module
from typing import Any, NamedTuple, TypeAlias

from typer.core import TyperGroup
from typer.main import get_command_from_info
from typer.models import CommandInfo

from app.cli.lazy_conversion import convert_lazily, with_lazy_conversion


class Group(NamedTuple):
    """A command that has commands of its own."""

    help: str
    commands: "Commands"


Commands: TypeAlias = Mapping[str, str | Group]

COMMANDS: Commands = {
    "serve": "server_commands:SERVE",
    "migrate": "server_commands:migrate",
    "restored": "restoring:restored",
    "openapi": "server_commands:openapi",
    "bench": "server_commands:BENCH",
    "work": "working:WORK",
    "context": Group(
        "Store the URLs and API keys of servers under names. PEEKLOCK_URL and PEEKLOCK_API_KEY take precedence.",
        {
            "add": "contexts:add",
            "use": "contexts:use",
            "list": "contexts:list_contexts",
            "show": "contexts:show",
            "remove": "contexts:remove",
        },
    ),
    "capabilities": "capabilities:capabilities",
    "queue": Group(
        "Create, change and delete queues; purge and move messages.",
        {
            "list": "queues:list_queues",
            "show": "queues:show_queue",
            "create": "queue_settings:create_queue",
            "update": "queue_settings:update_queue",
            "delete": "queues:delete_queue",
            "purge": "queues:purge_queue",
            "move": "moving:move",
            "moves": "moving:list_moves",
            "cancel-move": "moving:cancel_move",
            "consumers": "queues:list_consumers",
        },
    ),
    "topic": Group(
        "Create, change, list and delete topics.",
        {
            "list": "topics:list_topics",
            "create": "topic_settings:create_topic",
            "update": "topic_settings:update_topic",
            "delete": "topics:delete_topic",
        },
    ),
    "subscription": Group(
        "Create, change, list and delete subscriptions of a topic.",
        {
            "list": "topics:list_subscriptions",
            "create": "topic_settings:create_subscription",
            "update": "topic_settings:update_subscription",
            "delete": "topics:delete_subscription",
            "test": "topics:check_subscription",
        },
    ),
    "send": "sending:send",
    "publish": "sending:publish",
    "receive": "receiving:receive",
    "complete": "settling:complete",
    "abandon": "settling:abandon",
    "defer": "settling:defer",
    "release": "settling:release",
    "renew": "settling:renew",
    "commit": "transactions:commit_with_state",
    "recover": "receiving:recover",
    "execute": "transactions:execute",
    "transaction": Group(
        "Open, show, commit and roll back transactions.",
        {
            "open": "transactions:open_",
            "get": "transactions:get",
            "commit": "transactions:commit",
            "rollback": "transactions:rollback",
        },
    ),
    "browse": "browsing:browse",
    "watch": "live:watch",
    "top": "live:top",
    "explain": "browsing:explain",
    "history": "browsing:history",
    "restore": "selections:restore",
    "dead-letter": Group(
        "List, redrive and add dead-lettered messages.",
        {
            "add": "settling:dead_letter",
            "list": "selections:list_dead_letters",
            "redrive": "selections:redrive_dead_letters",
        },
    ),
    "archive": Group("List the sealed batches of ended messages.", {"list": "browsing:list_batches"}),
    "state": Group(
        "Read and delete versioned states.",
        {"get": "states:get", "history": "states:history", "delete": "states:delete"},
    ),
    "key": Group(
        "Create, list, show and revoke API keys.",
        {
            "create": "keys:create_key",
            "list": "keys:list_keys",
            "show": "keys:show_key",
            "sqs": "keys:show_sqs_credentials",
            "revoke": "keys:revoke_key",
        },
    ),
}
"""Each command with its module and the object there: a function, or typer's description of a command."""


class LazyCommands(MutableMapping[str, Any]):
    """The commands of a table by name, each made when it is first read."""

    def __init__(self, table: Commands) -> None:
        self._table = table
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            self._made[name] = _make(name, self._table[name])
        return self._made[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._made[name] = command

    def __delitem__(self, name: str) -> None:
        del self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)


class LazyGroup(TyperGroup):
    """A group of the table, or the whole table: the program itself, which typer makes without commands."""

    def __init__(self, *, commands: Commands, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = LazyCommands(commands or COMMANDS)

    def get_params(self, ctx: Any) -> list[Any]:
        """See `click.Command`."""
        return [*with_lazy_conversion(super().get_params(ctx))]


def _make(name: str, entry: str | Group) -> Any:
    if isinstance(entry, Group):
        return LazyGroup(
            name=name, commands=entry.commands, help=entry.help, no_args_is_help=True, rich_markup_mode=None
        )
    module, _, attribute = entry.partition(":")
    found = getattr(import_module(f"app.cli.{module}"), attribute)
    info = found if isinstance(found, CommandInfo) else CommandInfo(callback=found)
    info.name = name
    command = get_command_from_info(info, pretty_exceptions_short=False, rich_markup_mode=None)
    convert_lazily(command)
    return command
