"""`peeklock topic list | delete` and `peeklock subscription list | delete | test`."""

from typing import Annotated
from urllib.parse import quote

import typer

from app.cli.client import CONNECTION, ApiClient, Yes, confirm
from app.cli.option_groups import with_options
from app.cli.output import print_table

TopicName = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")]
SubscriptionName = Annotated[str, typer.Argument(metavar="SUBSCRIPTION", help="Name of the subscription.")]

SUBSCRIPTION_COLUMNS = ("name", "target_queue", "filter", "set_properties", "remove_properties")


@with_options(client=CONNECTION)
def list_topics(client: ApiClient) -> None:
    """List every topic."""
    client.printer.rows(client.pages("/v1/topics", {}), ("name", "description", "undeliverable"), "topics")


@with_options(client=CONNECTION)
def delete_topic(name: TopicName, client: ApiClient, yes: Yes = False) -> None:
    """Delete a topic and its subscriptions. Their queues stay."""
    confirm(f"Delete topic {name} and all its subscriptions?", yes)
    client.call("DELETE", topic_path(name))
    if client.printer.is_for_programs:
        client.printer.document({"deleted": name})


@with_options(client=CONNECTION)
def list_subscriptions(topic: TopicName, client: ApiClient) -> None:
    """List every subscription of a topic."""
    subscriptions = client.pages(topic_path(topic, "subscriptions"), {})
    client.printer.rows(subscriptions, SUBSCRIPTION_COLUMNS, f"subscriptions of topic {topic}")


@with_options(client=CONNECTION)
def delete_subscription(topic: TopicName, name: SubscriptionName, client: ApiClient) -> None:
    """Delete a subscription of a topic. Its queue stays."""
    client.call("DELETE", subscription_path(topic, name))
    if client.printer.is_for_programs:
        client.printer.document({"deleted": name})


@with_options(client=CONNECTION)
def check_subscription(
    topic: TopicName,
    name: SubscriptionName,
    client: ApiClient,
    queue: Annotated[
        str | None, typer.Option(help="Test messages of this queue instead of the subscription's own queue.")
    ] = None,
) -> None:
    """Show which messages of a queue a subscription would copy. The newest are tested."""
    answer = client.call("POST", subscription_path(topic, name) + "/test", {"queue": queue})
    if client.printer.is_for_programs:
        client.printer.document(answer)
        return
    tested = zip(answer["sequence_numbers"], answer["matches"], strict=True)
    print_table(("sequence_number", "matches"), [[number, matches] for number, matches in tested])


def topic_path(name: str, *rest: str) -> str:
    """Return the path of a topic, or of a resource in it."""
    return "/".join(("/v1/topics", quote(name, safe=""), *rest))


def subscription_path(topic: str, name: str) -> str:
    """Return the path of a subscription."""
    return topic_path(topic, "subscriptions", quote(name, safe=""))
