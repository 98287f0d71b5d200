"""`peeklock topic ...`, `peeklock subscription ...` and `peeklock publish`."""

import sys
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer

from app.cli.client import DEFAULT_URL, AsJson, Key, Url, connect, show, show_table
from app.cli.entity_settings import Setting, assigned, send_settings
from app.cli.messages import DEFAULT_CONTENT_TYPE

topic = typer.Typer(no_args_is_help=True, help="Create, change, list and delete topics.")
subscription = typer.Typer(no_args_is_help=True, help="Create, change, list and delete subscriptions of a topic.")

TopicName = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")]
SubscriptionName = Annotated[str, typer.Argument(metavar="SUBSCRIPTION", help="Name of the subscription.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]

SUBSCRIPTION_COLUMNS = ("name", "target_queue", "filter", "set_properties", "remove_properties")


@topic.command("list")
def list_topics(url: Url = DEFAULT_URL, key: Key = None, as_json: AsJson = False) -> None:
    """List every topic."""
    _list(url, key, as_json, "/v1/topics", ("name", "description"))


@topic.command("create")
def create_topic(
    name: TopicName, settings: Setting = None, url: Url = DEFAULT_URL, key: Key = None, as_json: AsJson = False
) -> None:
    """Create a topic, or replace its settings with these."""
    send_settings(connect(url, key, as_json), "PUT", topic_path(name), settings)


@topic.command("update")
def update_topic(
    name: TopicName, settings: Setting = None, url: Url = DEFAULT_URL, key: Key = None, as_json: AsJson = False
) -> None:
    """Change these settings of a topic and keep the others."""
    send_settings(connect(url, key, as_json), "PATCH", topic_path(name), settings)


@topic.command("delete")
def delete_topic(
    name: TopicName, yes: Yes = False, url: Url = DEFAULT_URL, key: Key = None, as_json: AsJson = False
) -> None:
    """Delete a topic and its subscriptions. Their queues stay."""
    client = connect(url, key, as_json)
    if not yes:
        typer.confirm(f"Delete topic {name} and all its subscriptions?", abort=True, err=True)
    client.call("DELETE", topic_path(name))
    if as_json:
        show({"deleted": name})


@subscription.command("list")
def list_subscriptions(topic: TopicName, url: Url = DEFAULT_URL, key: Key = None, as_json: AsJson = False) -> None:
    """List every subscription of a topic."""
    _list(url, key, as_json, topic_path(topic, "subscriptions"), SUBSCRIPTION_COLUMNS)


@subscription.command("create")
def create_subscription(
    topic: TopicName,
    name: SubscriptionName,
    settings: Setting = None,
    url: Url = DEFAULT_URL,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Create a subscription of a topic, or replace its settings with these."""
    send_settings(connect(url, key, as_json), "PUT", _subscription_path(topic, name), settings)


@subscription.command("update")
def update_subscription(
    topic: TopicName,
    name: SubscriptionName,
    settings: Setting = None,
    url: Url = DEFAULT_URL,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Change these settings of a subscription and keep the others."""
    send_settings(connect(url, key, as_json), "PATCH", _subscription_path(topic, name), settings)


@subscription.command("delete")
def delete_subscription(
    topic: TopicName, name: SubscriptionName, url: Url = DEFAULT_URL, key: Key = None, as_json: AsJson = False
) -> None:
    """Delete a subscription of a topic. Its queue stays."""
    connect(url, key, as_json).call("DELETE", _subscription_path(topic, name))
    if as_json:
        show({"deleted": name})


@subscription.command("test")
def check_subscription(
    topic: TopicName,
    name: SubscriptionName,
    queue: Annotated[
        str | None, typer.Option(help="Test messages of this queue instead of the subscription's own queue.")
    ] = None,
    url: Url = DEFAULT_URL,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Show which of the newest messages of a queue a subscription would copy."""
    answer = connect(url, key, as_json).call("POST", _subscription_path(topic, name) + "/test", {"queue": queue})
    if as_json:
        show(answer)
        return
    tested = zip(answer["sequence_numbers"], answer["matches"], strict=True)
    show_table(("sequence_number", "matches"), [[number, matches] for number, matches in tested])


def publish(
    topic: TopicName,
    body: Annotated[
        str | None,
        typer.Argument(help="Body of the message as text. Without it the body is read from --file or standard input."),
    ] = None,
    file: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="Read the body from this file.")
    ] = None,
    content_type: Annotated[str | None, typer.Option(help="Content type of the body. text/plain by default.")] = None,
    properties: Annotated[
        list[str] | None,
        typer.Option("--property", metavar="NAME=VALUE", help="A property of the message, as text; may be repeated."),
    ] = None,
    transaction: Annotated[str | None, typer.Option(help="Publish with the commit of this transaction.")] = None,
    url: Url = DEFAULT_URL,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Copy a message to the queues of all subscriptions of a topic that match it."""
    if body is not None and file is not None:
        raise typer.BadParameter("The body is given twice: as an argument and with --file.")
    content = body.encode() if body is not None else file.read_bytes() if file else sys.stdin.buffer.read()
    headers = {f"peeklock-property-{name}": value for name, value in assigned(properties).items()}
    headers["content-type"] = content_type or DEFAULT_CONTENT_TYPE
    if transaction is not None:
        headers["peeklock-transaction-id"] = transaction
    path = topic_path(topic, "messages", "raw")
    answer = connect(url, key, as_json).send("POST", path, content=content, headers=headers).json()
    queues = "1 queue" if answer["matched"] == 1 else f"{answer['matched']} queues"
    show(answer) if as_json else typer.echo(f"published {answer['message_id']} to {queues}")


def topic_path(name: str, *rest: str) -> str:
    """Return the path of a topic, or of a resource in it."""
    return "/".join(("/v1/topics", quote(name, safe=""), *rest))


def _subscription_path(topic: str, name: str) -> str:
    return topic_path(topic, "subscriptions", quote(name, safe=""))


def _list(url: str, key: str | None, as_json: bool, path: str, columns: tuple[str, ...]) -> None:
    entities = list(connect(url, key, as_json).pages(path, {}))
    if as_json:
        for fields in entities:
            show(fields)
        return
    show_table(columns, [[fields[column] for column in columns] for fields in entities])
