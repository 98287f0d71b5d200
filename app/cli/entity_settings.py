"""Settings of queues, topics and subscriptions as options of commands."""

import json
from typing import Annotated, Any

import typer

from app.cli.client import ApiClient, show, show_table

Setting = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A setting; may be repeated. VALUE is JSON or plain text."),
]


def send_settings(client: ApiClient, method: str, path: str, settings: list[str] | None) -> None:
    """Send settings to a queue, a topic or a subscription, and print the answer."""
    answer = client.call(method, path, _parsed(settings))
    if client.as_json:
        show(answer)
    else:
        show_table(("setting", "value"), list(answer.items()))


def _parsed(assignments: list[str] | None) -> dict[str, Any]:
    return {name: _json_or_text(value) for name, value in assigned(assignments).items()}


def assigned(assignments: list[str] | None) -> dict[str, str]:
    """Return the values of NAME=VALUE by name. Raises `typer.BadParameter`."""
    values: dict[str, str] = {}
    for assignment in assignments or ():
        name, equals, value = assignment.partition("=")
        if not equals:
            raise typer.BadParameter(f"{assignment} is not NAME=VALUE")
        values[name] = value
    return values


def _json_or_text(value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        return value
