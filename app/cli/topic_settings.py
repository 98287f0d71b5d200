"""`peeklock topic create | update` and `peeklock subscription create | update`."""

from typing import Any

from app.cli.client import CONNECTION, ApiClient
from app.cli.creating import IfNotExists, create
from app.cli.field_options import SettingsGroup
from app.cli.option_groups import with_options
from app.cli.request_options import SUBSCRIPTION_SETTINGS_BODY, TOPIC_SETTINGS_BODY
from app.cli.topics import SubscriptionName, TopicName, subscription_path, topic_path


@with_options(settings=SettingsGroup(TOPIC_SETTINGS_BODY), client=CONNECTION)
def create_topic(
    name: TopicName, client: ApiClient, settings: dict[str, Any], if_not_exists: IfNotExists = False
) -> None:
    """Create a topic that does not exist yet. `topic update` changes an existing one."""
    create(client, topic_path(name), settings, if_not_exists)


@with_options(settings=SettingsGroup(TOPIC_SETTINGS_BODY, resets=True), client=CONNECTION)
def update_topic(name: TopicName, client: ApiClient, settings: dict[str, Any]) -> None:
    """Change these settings of a topic and keep the others."""
    client.printer.fields(client.call("PATCH", topic_path(name), settings))


@with_options(settings=SettingsGroup(SUBSCRIPTION_SETTINGS_BODY), client=CONNECTION)
def create_subscription(
    topic: TopicName,
    name: SubscriptionName,
    client: ApiClient,
    settings: dict[str, Any],
    if_not_exists: IfNotExists = False,
) -> None:
    """Create a subscription that does not exist yet. `subscription update` changes an existing one."""
    create(client, subscription_path(topic, name), settings, if_not_exists)


@with_options(settings=SettingsGroup(SUBSCRIPTION_SETTINGS_BODY, resets=True), client=CONNECTION)
def update_subscription(
    topic: TopicName,
    name: SubscriptionName,
    client: ApiClient,
    settings: dict[str, Any],
) -> None:
    """Change these settings of a subscription and keep the others."""
    client.printer.fields(client.call("PATCH", subscription_path(topic, name), settings))
