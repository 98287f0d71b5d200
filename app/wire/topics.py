"""Topics, subscriptions and publishes in requests and responses."""

from collections.abc import Sequence
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from app.domain.message import MAX_BATCH_COUNT, MAX_PROPERTIES
from app.domain.queue import is_valid_name
from app.domain.refusals import invalid_at
from app.domain.topic import (
    Published,
    Subscription,
    SubscriptionSettings,
    Topic,
    TopicSettings,
    check_removed_properties,
    check_set_properties,
    default_target,
)
from app.wire.field_types import Filter, PropertyKey, PropertyValue, QueueName, Timestamp, TransactionId
from app.wire.labels import LabelChanges, Labels, check_labels, merged_labels
from app.wire.message_fields import MessageToSend
from app.wire.properties import PropertyChanges, RawProperties, StoredProperties, decode_properties, encode_properties
from app.wire.queues import QueueDescription
from app.wire.sending import RawMessage
from app.wire.times import to_wire

MAX_TESTED = 100
"""Messages in one test of a filter. Each may cost as much as 3 ms."""

EMPTY_OBJECT = b"{}"

RemovedProperties: TypeAlias = Annotated[
    list[PropertyKey],
    msgspec.Meta(max_length=MAX_PROPERTIES, description="Names of properties that the copies do not have."),
]


class TopicSettingsBody(msgspec.Struct, forbid_unknown_fields=True):
    """The settings of a topic; omitted settings have their defaults."""

    description: QueueDescription = ""
    labels: Labels = msgspec.field(default_factory=dict[str, str])

    def settings(self) -> TopicSettings:
        """Convert to the settings of the broker. Refuses with `InvalidRequest` labels with too many bytes."""
        check_labels(self.labels)
        return TopicSettings(self.description, self.labels)


class TopicPatch(msgspec.Struct, forbid_unknown_fields=True):
    """Changes to a topic: omitted fields stay unchanged, null restores the default. Labels are merged."""

    description: QueueDescription | UnsetType | None = UNSET
    labels: LabelChanges | UnsetType | None = UNSET

    def merged(self, topic: Topic) -> TopicSettings:
        """Return the settings with these changes. Refuses with `InvalidRequest`."""
        before = topic.settings
        return TopicSettings(
            before.description if self.description is UNSET else self.description or "",
            merged_labels(before.labels, self.labels),
        )


class TopicView(msgspec.Struct, kw_only=True):
    """A topic."""

    name: str
    description: str
    labels: Labels
    created_at: Timestamp
    updated_at: Timestamp
    undeliverable: Literal["discarded"]


class TopicPage(msgspec.Struct):
    """Topics by name; `next_cursor` is null on the last page."""

    items: list[TopicView]
    next_cursor: str | None


class SubscriptionSettingsBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The settings of a subscription: which messages it copies to which queue, and with which properties.

    Without `filter` it copies every message. Without `target_queue` its queue is `{topic}.{subscription}`, which is
    created if it does not exist. Properties are removed before others are set.
    """

    target_queue: QueueName | None = None
    filter: Filter | None = None
    set_properties: RawProperties | UnsetType = UNSET
    remove_properties: RemovedProperties = []
    labels: Labels = msgspec.field(default_factory=dict[str, str])

    def settings(self, topic: str, name: str) -> SubscriptionSettings:
        """Convert to the settings of the broker. Refuses with `InvalidRequest`."""
        check_labels(self.labels)
        return SubscriptionSettings(
            self.target_queue or _default_target(topic, name),
            self.filter,
            _encoded(decode_properties(self.set_properties, _locate) or {}),
            _removed(self.remove_properties),
            self.labels,
        )


class SubscriptionPatch(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Changes to a subscription: omitted fields stay unchanged, null restores the default.

    Members of `set_properties` and `labels` are merged; null removes a member.
    """

    target_queue: QueueName | UnsetType | None = UNSET
    filter: Filter | UnsetType | None = UNSET
    set_properties: PropertyChanges | UnsetType = UNSET
    remove_properties: RemovedProperties | UnsetType | None = UNSET
    labels: LabelChanges | UnsetType | None = UNSET

    def merged(self, topic: str, subscription: Subscription) -> SubscriptionSettings:
        """Return the settings with these changes. Refuses with `InvalidRequest`."""
        before = subscription.settings
        removed = (
            before.remove_properties if self.remove_properties is UNSET else _removed(self.remove_properties or ())
        )
        target = before.target_queue
        if self.target_queue is not UNSET:
            target = self.target_queue or _default_target(topic, subscription.name)
        return SubscriptionSettings(
            target,
            before.filter if self.filter is UNSET else self.filter,
            self._merged_properties(before.set_properties),
            removed,
            merged_labels(before.labels, self.labels),
        )

    def _merged_properties(self, before: bytes) -> bytes:
        if self.set_properties is UNSET:
            return before
        changes = decode_properties(self.set_properties, _locate)
        if changes is None:
            return b""
        members: dict[str, PropertyValue] = msgspec.json.decode(before or EMPTY_OBJECT)
        return _encoded({name: value for name, value in (members | changes).items() if value is not None})


class SubscriptionView(msgspec.Struct, kw_only=True):
    """A subscription of a topic."""

    topic: str
    name: str
    target_queue: str
    filter: str | None
    set_properties: StoredProperties
    remove_properties: list[str]
    labels: Labels
    created_at: Timestamp
    updated_at: Timestamp


class SubscriptionPage(msgspec.Struct):
    """Subscriptions by name; `next_cursor` is null on the last page."""

    items: list[SubscriptionView]
    next_cursor: str | None


class PublishMessage(MessageToSend, kw_only=True):
    """A message to publish alone, at once or with a transaction."""

    transaction_id: TransactionId | None = None


class PublishBatch(msgspec.Struct, forbid_unknown_fields=True):
    """Messages published in one request: all or none."""

    messages: Annotated[list[RawMessage], msgspec.Meta(min_length=1, max_length=MAX_BATCH_COUNT)]
    transaction_id: TransactionId | None = None


class PublishedMessage(msgspec.Struct):
    """What became of a published message."""

    message_id: str
    matched: int
    duplicates: int
    stored: bool


class PublishResults(msgspec.Struct):
    """What became of each message, in order."""

    results: list[PublishedMessage]


class SubscriptionTest(msgspec.Struct, forbid_unknown_fields=True):
    """Messages on which to try the filter of a subscription: these, or the newest 100 of `queue`.

    Without both, the newest messages of the subscription's target queue are tested.
    """

    messages: Annotated[list[RawMessage], msgspec.Meta(min_length=1, max_length=MAX_TESTED)] | None = None
    queue: QueueName | None = None


class SubscriptionTestResults(msgspec.Struct, omit_defaults=True):
    """Whether the subscription would copy each message, in order."""

    matches: list[bool]
    sequence_numbers: list[int] | None = None


def topic_view(topic: Topic) -> TopicView:
    """Build the JSON of a topic."""
    return TopicView(
        name=topic.name,
        description=topic.settings.description,
        labels=dict(topic.settings.labels),
        created_at=to_wire(topic.created_at),
        updated_at=to_wire(topic.updated_at),
        undeliverable="discarded",
    )


def subscription_view(topic: Topic, subscription: Subscription) -> SubscriptionView:
    """Build the JSON of a subscription."""
    settings = subscription.settings
    return SubscriptionView(
        topic=topic.name,
        name=subscription.name,
        target_queue=settings.target_queue,
        filter=settings.filter,
        set_properties=msgspec.Raw(settings.set_properties or EMPTY_OBJECT),
        remove_properties=list(settings.remove_properties),
        labels=dict(settings.labels),
        created_at=to_wire(subscription.created_at),
        updated_at=to_wire(subscription.updated_at),
    )


def published_message(published: Published) -> PublishedMessage:
    """Build the JSON of a published message."""
    return PublishedMessage(published.message_id, published.matched, published.duplicates, published.is_stored)


def _default_target(topic: str, name: str) -> str:
    """Return the name of the queue of a subscription. Refuses with `InvalidRequest` if no queue can have that name."""
    target = default_target(topic, name)
    if not is_valid_name(target):
        raise invalid_at("/target_queue", f"{target} is too long for the name of a queue; give a target_queue.")
    return target


def _encoded(properties: dict[str, PropertyValue]) -> bytes:
    encoded = encode_properties(properties, "/set_properties")
    check_set_properties(encoded)
    return encoded


def _removed(names: Sequence[str]) -> tuple[str, ...]:
    """Return each name once. Refuses with `InvalidRequest`."""
    removed = tuple(dict.fromkeys(names))
    check_removed_properties(removed)
    return removed


def _locate(pointer: str) -> str:
    """Convert a pointer into the properties of a message to one into those that a subscription sets."""
    return "/set_" + pointer.removeprefix("/")
