"""Queues: create, find, list, change, purge and delete them, and their tags."""

from typing import Annotated, TypeAlias

import msgspec

from app.sqs.shapes.members import (
    MAX_NAMES,
    AnswerStruct,
    AttributeNames,
    Attributes,
    OfQueue,
    QueueUrl,
    RequestStruct,
    Tags,
    in_query,
)

MAX_PAGE = 1000

Name: TypeAlias = Annotated[str, msgspec.Meta(max_length=1024)]
PageToken: TypeAlias = Annotated[str, msgspec.Meta(max_length=256)]
PageSize: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=MAX_PAGE)]
QueueUrls: TypeAlias = Annotated[tuple[QueueUrl, ...], in_query("QueueUrl")]


class CreateQueue(RequestStruct, kw_only=True):
    """The request of CreateQueue. The member of the tags begins with a small letter in JSON."""

    queue_name: Name
    attributes: Attributes = msgspec.field(default_factory=dict[str, str])
    tags: Tags = msgspec.field(name="tags", default_factory=dict[str, str])


class FoundQueue(AnswerStruct, kw_only=True):
    """The answer of CreateQueue and GetQueueUrl."""

    queue_url: str


class GetQueueUrl(RequestStruct, kw_only=True):
    """The request of GetQueueUrl. There is one account, so the owner has no effect."""

    queue_name: Name
    queue_owner_aws_account_id: str | None = msgspec.field(name="QueueOwnerAWSAccountId", default=None)


class ListQueues(RequestStruct, kw_only=True):
    """The request of ListQueues."""

    queue_name_prefix: Name = ""
    max_results: PageSize | None = None
    next_token: PageToken | None = None


class QueueList(AnswerStruct, kw_only=True):
    """The answer of ListQueues."""

    queue_urls: QueueUrls = ()
    next_token: str | None = None


class GetQueueAttributes(OfQueue, kw_only=True):
    """The request of GetQueueAttributes."""

    attribute_names: AttributeNames = ()


class QueueAttributes(AnswerStruct, kw_only=True):
    """The answer of GetQueueAttributes."""

    attributes: Attributes = msgspec.field(default={})


class SetQueueAttributes(OfQueue, kw_only=True):
    """The request of SetQueueAttributes."""

    attributes: Attributes


class DeleteQueue(OfQueue, kw_only=True):
    """The request of DeleteQueue."""


class PurgeQueue(OfQueue, kw_only=True):
    """The request of PurgeQueue."""


class ListDeadLetterSourceQueues(OfQueue, kw_only=True):
    """The request of ListDeadLetterSourceQueues."""

    max_results: PageSize | None = None
    next_token: PageToken | None = None


class SourceQueueList(AnswerStruct, kw_only=True):
    """The answer of ListDeadLetterSourceQueues. In JSON this list alone begins with a small letter."""

    queue_urls: QueueUrls = msgspec.field(name="queueUrls", default=())
    next_token: str | None = None


class TagQueue(OfQueue, kw_only=True):
    """The request of TagQueue."""

    tags: Tags


class UntagQueue(OfQueue, kw_only=True):
    """The request of UntagQueue."""

    tag_keys: Annotated[tuple[str, ...], in_query("TagKey", max_length=MAX_NAMES)]


class ListQueueTags(OfQueue, kw_only=True):
    """The request of ListQueueTags."""


class QueueTags(AnswerStruct, kw_only=True):
    """The answer of ListQueueTags."""

    tags: Tags = msgspec.field(default={})


class AddPermission(OfQueue, kw_only=True):
    """The request of AddPermission, which is never carried out."""

    label: str = ""
    aws_account_ids: Annotated[tuple[str, ...], in_query("AWSAccountId", max_length=MAX_NAMES)] = msgspec.field(
        name="AWSAccountIds", default=()
    )
    actions: Annotated[tuple[str, ...], in_query("ActionName", max_length=MAX_NAMES)] = ()


class RemovePermission(OfQueue, kw_only=True):
    """The request of RemovePermission, which is never carried out."""

    label: str = ""
