"""Topics: create, find, list, change and delete them and their subscriptions, publish, and tags."""

from typing import Annotated, TypeAlias

import msgspec

from app.domain.message import MAX_TEXT_LENGTH
from app.sqs.shapes.members import (
    MAX_NAMES,
    AnswerStruct,
    Arn,
    FailedEntry,
    RequestStruct,
    list_of_members,
    map_of_entries,
)
from app.sqs.shapes.messages import AttributeValue, EntryId, GivenId

MAX_PAGE = 100
"""Topics or subscriptions of a page, as in SNS."""
_MAX_TAGS = 50
MAX_PUBLISHED_ATTRIBUTES = 50
"""Attributes of a published message. SNS has no limit where it puts them into the body."""

PageToken: TypeAlias = Annotated[str, msgspec.Meta(max_length=512)]
TopicAttributes: TypeAlias = Annotated[dict[str, str], map_of_entries(max_length=MAX_NAMES)]


class Tag(RequestStruct, kw_only=True):
    """A tag of a topic."""

    key: str
    value: str


class AnsweredTag(AnswerStruct, kw_only=True):
    """A tag in an answer."""

    key: str
    value: str


Tags: TypeAlias = Annotated[tuple[Tag, ...], list_of_members(max_length=_MAX_TAGS)]


class CreateTopic(RequestStruct, kw_only=True):
    """The request of CreateTopic."""

    name: Annotated[str, msgspec.Meta(max_length=MAX_TEXT_LENGTH)]
    attributes: TopicAttributes = msgspec.field(default_factory=dict[str, str])
    tags: Tags = ()
    data_protection_policy: str | None = None


class CreatedTopic(AnswerStruct, kw_only=True):
    """The answer of CreateTopic."""

    topic_arn: str


class OfTopic(RequestStruct, kw_only=True):
    """A request about one topic."""

    topic_arn: Arn


class DeleteTopic(OfTopic, kw_only=True):
    """The request of DeleteTopic."""


class ListTopics(RequestStruct, kw_only=True):
    """The request of ListTopics."""

    next_token: PageToken = ""


class ListedTopic(AnswerStruct, kw_only=True):
    """A topic of a list."""

    topic_arn: str


class TopicList(AnswerStruct, kw_only=True):
    """The answer of ListTopics."""

    topics: Annotated[tuple[ListedTopic, ...], list_of_members()] = ()
    next_token: str | None = None


class GetTopicAttributes(OfTopic, kw_only=True):
    """The request of GetTopicAttributes."""


class AnsweredAttributes(AnswerStruct, kw_only=True):
    """The answer of GetTopicAttributes and GetSubscriptionAttributes."""

    attributes: TopicAttributes


class SetTopicAttributes(OfTopic, kw_only=True):
    """The request of SetTopicAttributes. Without a value the attribute has its default."""

    attribute_name: str
    attribute_value: str = ""


class Subscribe(OfTopic, kw_only=True):
    """The request of Subscribe. The ARN is always returned, because a queue needs no confirmation."""

    protocol: str
    endpoint: str = ""
    attributes: TopicAttributes = msgspec.field(default_factory=dict[str, str])
    return_subscription_arn: bool = False


class Subscribed(AnswerStruct, kw_only=True):
    """The answer of Subscribe."""

    subscription_arn: str


class OfSubscription(RequestStruct, kw_only=True):
    """A request about one subscription."""

    subscription_arn: Arn


class Unsubscribe(OfSubscription, kw_only=True):
    """The request of Unsubscribe."""


class ListSubscriptions(RequestStruct, kw_only=True):
    """The request of ListSubscriptions."""

    next_token: PageToken = ""


class ListSubscriptionsByTopic(OfTopic, kw_only=True):
    """The request of ListSubscriptionsByTopic."""

    next_token: PageToken = ""


class ListedSubscription(AnswerStruct, kw_only=True):
    """A subscription of a list."""

    subscription_arn: str
    owner: str
    protocol: str
    endpoint: str
    topic_arn: str


class SubscriptionList(AnswerStruct, kw_only=True):
    """The answer of ListSubscriptions and ListSubscriptionsByTopic."""

    subscriptions: Annotated[tuple[ListedSubscription, ...], list_of_members()] = ()
    next_token: str | None = None


class GetSubscriptionAttributes(OfSubscription, kw_only=True):
    """The request of GetSubscriptionAttributes."""


class SetSubscriptionAttributes(OfSubscription, kw_only=True):
    """The request of SetSubscriptionAttributes. Without a value the attribute has its default."""

    attribute_name: str
    attribute_value: str = ""


PublishedAttributes: TypeAlias = Annotated[
    dict[str, AttributeValue], map_of_entries("Name", "Value", max_length=MAX_PUBLISHED_ATTRIBUTES)
]


class PublishedMembers(RequestStruct, kw_only=True):
    """What a publisher says about one message."""

    message: str
    subject: str | None = None
    message_structure: str | None = None
    message_attributes: PublishedAttributes = msgspec.field(default_factory=dict[str, AttributeValue])
    message_deduplication_id: GivenId | None = None
    message_group_id: GivenId | None = None


class Publish(PublishedMembers, kw_only=True):
    """The request of Publish. This server has neither phones nor applications, so `TopicArn` is the only target."""

    topic_arn: Arn | None = None
    target_arn: str | None = None
    phone_number: str | None = None


class PublishedMessage(AnswerStruct, kw_only=True):
    """The answer of Publish. It has no SequenceNumber: that is of the queue, and each subscription has its own."""

    message_id: str


class PublishEntry(PublishedMembers, kw_only=True):
    """One message of a batch."""

    id: EntryId


class PublishBatch(OfTopic, kw_only=True):
    """The request of PublishBatch. Each entry is decoded alone, so that a wrong one is refused alone."""

    publish_batch_request_entries: Annotated[tuple[msgspec.Raw, ...], list_of_members(entry=PublishEntry)] = ()


class PublishedEntry(PublishedMessage, kw_only=True):
    """The result of one message of a batch."""

    id: str


class PublishedBatch(AnswerStruct, omit_defaults=False, kw_only=True):
    """The answer of PublishBatch."""

    successful: Annotated[tuple[PublishedEntry, ...], list_of_members()]
    failed: Annotated[tuple[FailedEntry, ...], list_of_members()]


class OfResource(RequestStruct, kw_only=True):
    """A request about the tags of a topic."""

    resource_arn: Arn


class TagResource(OfResource, kw_only=True):
    """The request of TagResource."""

    tags: Tags


class UntagResource(OfResource, kw_only=True):
    """The request of UntagResource."""

    tag_keys: Annotated[tuple[str, ...], list_of_members(max_length=MAX_NAMES)]


class ListTagsForResource(OfResource, kw_only=True):
    """The request of ListTagsForResource."""


class TagList(AnswerStruct, kw_only=True):
    """The answer of ListTagsForResource."""

    tags: Annotated[tuple[AnsweredTag, ...], list_of_members()] = ()


class Changed(AnswerStruct, kw_only=True):
    """The answer of TagResource and UntagResource: a result without members, which `Nothing` would leave out."""
