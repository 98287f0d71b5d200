"""`peeklock topic ...`, `peeklock subscription ...` and `peeklock publish`."""

from typing import Annotated, Any
from urllib.parse import quote

import typer

from app.cli.client import CONNECTION, ApiClient, Yes, confirm
from app.cli.command_groups import command_group
from app.cli.creating import IfNotExists, create
from app.cli.field_options import SettingsGroup
from app.cli.option_groups import with_options
from app.cli.output import print_table
from app.wire.topics import SubscriptionSettingsBody, TopicSettingsBody

topic = command_group("Create, change, list and delete topics.")
subscription = command_group("Create, change, list and delete subscriptions of a topic.")

TopicName = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")]
SubscriptionName = Annotated[str, typer.Argument(metavar="SUBSCRIPTION", help="Name of the subscription.")]

SUBSCRIPTION_COLUMNS = ("name", "target_queue", "filter", "set_properties", "remove_properties")


@topic.command("list")
@with_options(client=CONNECTION)
def list_topics(client: ApiClient) -> None:
    """List every topic."""
    client.printer.rows(client.pages("/v1/topics", {}), ("name", "description"), "topics")


@topic.command("create")
@with_options(settings=SettingsGroup(TopicSettingsBody), client=CONNECTION)
def create_topic(
    name: TopicName, client: ApiClient, settings: dict[str, Any], if_not_exists: IfNotExists = False
) -> None:
    """Create a topic that does not exist yet. `topic update` changes an existing one."""
    create(client, topic_path(name), settings, if_not_exists)


@topic.command("update")
@with_options(settings=SettingsGroup(TopicSettingsBody, resets=True), client=CONNECTION)
def update_topic(name: TopicName, client: ApiClient, settings: dict[str, Any]) -> None:
    """Change these settings of a topic and keep the others."""
    client.printer.fields(client.call("PATCH", topic_path(name), settings))


@topic.command("delete")
@with_options(client=CONNECTION)
def delete_topic(name: TopicName, client: ApiClient, yes: Yes = False) -> None:
    """Delete a topic and its subscriptions. Their queues stay."""
    confirm(f"Delete topic {name} and all its subscriptions?", yes)
    client.call("DELETE", topic_path(name))
    if client.printer.is_for_programs:
        client.printer.document({"deleted": name})


@subscription.command("list")
@with_options(client=CONNECTION)
def list_subscriptions(topic: TopicName, client: ApiClient) -> None:
    """List every subscription of a topic."""
    subscriptions = client.pages(topic_path(topic, "subscriptions"), {})
    client.printer.rows(subscriptions, SUBSCRIPTION_COLUMNS, f"subscriptions of topic {topic}")


@subscription.command("create")
@with_options(settings=SettingsGroup(SubscriptionSettingsBody), client=CONNECTION)
def create_subscription(
    topic: TopicName,
    name: SubscriptionName,
    client: ApiClient,
    settings: dict[str, Any],
    if_not_exists: IfNotExists = False,
) -> None:
    """Create a subscription that does not exist yet. `subscription update` changes an existing one."""
    create(client, _subscription_path(topic, name), settings, if_not_exists)


@subscription.command("update")
@with_options(settings=SettingsGroup(SubscriptionSettingsBody, resets=True), client=CONNECTION)
def update_subscription(
    topic: TopicName,
    name: SubscriptionName,
    client: ApiClient,
    settings: dict[str, Any],
) -> None:
    """Change these settings of a subscription and keep the others."""
    client.printer.fields(client.call("PATCH", _subscription_path(topic, name), settings))


@subscription.command("delete")
@with_options(client=CONNECTION)
def delete_subscription(topic: TopicName, name: SubscriptionName, client: ApiClient) -> None:
    """Delete a subscription of a topic. Its queue stays."""
    client.call("DELETE", _subscription_path(topic, name))
    if client.printer.is_for_programs:
        client.printer.document({"deleted": name})


@subscription.command("test")
@with_options(client=CONNECTION)
def check_subscription(
    topic: TopicName,
    name: SubscriptionName,
    client: ApiClient,
    queue: Annotated[
        str | None, typer.Option(help="Test messages of this queue instead of the subscription's own queue.")
    ] = None,
) -> None:
    """Show which of the newest messages of a queue a subscription would copy."""
    answer = client.call("POST", _subscription_path(topic, name) + "/test", {"queue": queue})
    if client.printer.is_for_programs:
        client.printer.document(answer)
        return
    tested = zip(answer["sequence_numbers"], answer["matches"], strict=True)
    print_table(("sequence_number", "matches"), [[number, matches] for number, matches in tested])


def topic_path(name: str, *rest: str) -> str:
    """Return the path of a topic, or of a resource in it."""
    return "/".join(("/v1/topics", quote(name, safe=""), *rest))


def _subscription_path(topic: str, name: str) -> str:
    return topic_path(topic, "subscriptions", quote(name, safe=""))
