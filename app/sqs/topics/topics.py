"""Topics: create, find, list, change and delete them, and their tags."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from app.broker.administration.range_pages import page_of_ranges
from app.broker.precondition import Precondition
from app.broker.topics import topics as verbs
from app.domain.access import Right
from app.domain.queue import is_valid_name
from app.domain.refusals import InvalidRequest, PreconditionFailed, TopicNotFound
from app.domain.topic import Topic, TopicSettings
from app.http.request import ANY_TAG
from app.sqs.call import Call
from app.sqs.labels import labels_with_tags, labels_without_tags, tags_in
from app.sqs.shapes import topics as shapes
from app.sqs.shapes.members import Nothing
from app.sqs.topic_attributes import (
    new_topic_settings,
    same_topic_attributes,
    topic_attributes,
    with_topic_attribute,
)
from app.sqs.topic_names import topic_arn
from app.sqs.xml_text import quoted

_ABSENT = Precondition(if_none_match=ANY_TAG)
_MAX_TOPIC_BYTES = 32 << 10
"""Bytes of a topic that is read for a page, with its labels."""


async def create_topic(call: Call[shapes.CreateTopic]) -> shapes.CreatedTopic:
    """Create a topic. One of this name that has the given attributes and tags is left as it is.

    Refuses with `InvalidRequest` if it has others, and as `new_topic_settings` and `labels_with_tags` do.
    """
    body, name = call.body, call.topic_name
    if body.data_protection_policy:
        raise InvalidRequest("This server has no data protection policies.")
    wanted = new_topic_settings(name, body.attributes)
    tags = _tags(body.tags)
    settings = replace(wanted, labels=labels_with_tags(wanted.labels, tags))
    topics = verbs.all_topics(call.broker.topics)
    with suppress(PreconditionFailed):
        await verbs.put(topics, name, settings, _ABSENT)
        return shapes.CreatedTopic(topic_arn=topic_arn(name, call.region))
    existing = (await verbs.read(topics, name)).settings
    if not same_topic_attributes(existing, wanted, body.attributes):
        raise InvalidRequest(f"A topic named {name} already exists with different attributes.")
    if tags and tags != tags_in(existing.labels):
        raise InvalidRequest(f"A topic named {name} already exists with different tags.")
    return shapes.CreatedTopic(topic_arn=topic_arn(name, call.region))


async def delete_topic(call: Call[shapes.DeleteTopic]) -> Nothing:
    """Delete a topic and its subscriptions. Their queues stay. A topic that does not exist is no error, as in SNS."""
    with suppress(TopicNotFound):
        await verbs.delete(verbs.all_topics(call.broker.topics), call.topic_name)
    return Nothing()


async def list_topics(call: Call[shapes.ListTopics]) -> shapes.TopicList:
    """List the topics that the client may browse, by name."""
    ranges = call.request.principal.grant.ranges(Right.BROWSE)
    after = call.body.next_token
    if after and not (is_valid_name(after) or after in [found.end for found in ranges]):
        raise InvalidRequest("This NextToken did not come from this list.")
    async with call.request.reserve_page(shapes.MAX_PAGE, _MAX_TOPIC_BYTES):
        listed, more = await page_of_ranges(call.broker.topics.store.page, ranges, after, shapes.MAX_PAGE)
    topics = tuple(shapes.ListedTopic(topic_arn=topic_arn(topic.name, call.region)) for topic in listed)
    return shapes.TopicList(topics=topics, next_token=more)


async def get_topic_attributes(call: Call[shapes.GetTopicAttributes]) -> shapes.AnsweredAttributes:
    """Return all attributes of a topic. Refuses with `TopicNotFound`."""
    topic = await _topic(call)
    count = await call.broker.topics.store.count_subscriptions(topic)
    return shapes.AnsweredAttributes(attributes=topic_attributes(topic.name, topic.settings, count, call.region))


async def set_topic_attributes(call: Call[shapes.SetTopicAttributes]) -> Nothing:
    """Change one attribute of a topic. Refuses with `TopicNotFound`, and as `with_topic_attribute` does."""
    body = call.body

    def changed(topic: Topic) -> TopicSettings:
        return with_topic_attribute(topic.settings, topic.name, body.attribute_name, body.attribute_value)

    await verbs.change(verbs.all_topics(call.broker.topics), call.topic_name, changed)
    return Nothing()


async def tag_resource(call: Call[shapes.TagResource]) -> shapes.Changed:
    """Set tags of a topic. Other tags stay. Refuses with `TopicNotFound`, and as `labels_with_tags` does."""
    tags = _tags(call.body.tags)

    def changed(topic: Topic) -> TopicSettings:
        return replace(topic.settings, labels=labels_with_tags(topic.settings.labels, tags))

    await verbs.change(verbs.all_topics(call.broker.topics), call.topic_name, changed)
    return shapes.Changed()


async def untag_resource(call: Call[shapes.UntagResource]) -> shapes.Changed:
    """Remove tags of a topic. Refuses with `TopicNotFound`, and as `labels_without_tags` does."""
    keys = call.body.tag_keys

    def changed(topic: Topic) -> TopicSettings:
        return replace(topic.settings, labels=labels_without_tags(topic.settings.labels, keys))

    await verbs.change(verbs.all_topics(call.broker.topics), call.topic_name, changed)
    return shapes.Changed()


async def list_tags_for_resource(call: Call[shapes.ListTagsForResource]) -> shapes.TagList:
    """Return the tags of a topic. Refuses with `TopicNotFound`."""
    tags = tags_in((await _topic(call)).settings.labels)
    return shapes.TagList(tags=tuple(shapes.AnsweredTag(key=key, value=value) for key, value in tags.items()))


async def _topic(call: Call[Any]) -> Topic:
    return await verbs.read(verbs.all_topics(call.broker.topics), call.topic_name)


def _tags(tags: Iterable[shapes.Tag]) -> dict[str, str]:
    """Return tags by their keys. Refuses with `InvalidRequest` a key that is given twice."""
    found: dict[str, str] = {}
    for tag in tags:
        if tag.key in found:
            raise InvalidRequest(f"The tag {quoted(tag.key)} is given more than once.")
        found[tag.key] = tag.value
    return found
