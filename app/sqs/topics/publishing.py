"""Publish: one message, or a batch whose entries have results of their own."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from app.broker.topics.publish import publish
from app.domain.refusals import Refusal
from app.domain.sending import NewMessage
from app.domain.topic import Published
from app.sqs.actions.batches import check_size, failed_entry, message_of, read_entries
from app.sqs.call import Call
from app.sqs.errors import topic_error
from app.sqs.new_message import FifoRules
from app.sqs.notification import notification_id
from app.sqs.published_message import published_message
from app.sqs.shapes import topics as shapes
from app.sqs.topic_attributes import topic_fifo_rules


async def publish_message(call: Call[shapes.Publish]) -> shapes.PublishedMessage:
    """Store a copy for each subscription that matches, in all of their queues or in none.

    Refuses as `published_message` and `publish` do.
    """
    message = published_message(call.body, await _rules(call))
    (published,) = (await publish(call.broker.topics, call.topic_name, [message])).result
    return shapes.PublishedMessage(message_id=notification_id(published.message_id))


async def publish_batch(call: Call[shapes.PublishBatch]) -> shapes.PublishedBatch:
    """Publish each message that is accepted. Refuses as `read_entries` does, and with `BatchRequestTooLong`."""
    rules = await _rules(call)
    entries = read_entries(call.body.publish_batch_request_entries, shapes.PublishEntry)
    messages = {
        entry_id: message_of(entry, partial(published_message, fifo=rules)) for entry_id, entry in entries.items()
    }
    check_size(messages.values())
    outcomes = await _publish_each(call, messages)
    return shapes.PublishedBatch(
        successful=tuple(
            shapes.PublishedEntry(id=entry_id, message_id=notification_id(outcome.message_id))
            for entry_id, outcome in outcomes.items()
            if isinstance(outcome, Published)
        ),
        failed=tuple(
            failed_entry(entry_id, outcome, topic_error(outcome))
            for entry_id, outcome in outcomes.items()
            if isinstance(outcome, Refusal)
        ),
    )


async def _rules(call: Call[Any]) -> FifoRules | None:
    topic = (await call.broker.topics.topic_cache.by_name(call.topic_name)).topic
    return topic_fifo_rules(topic.name, topic.settings)


async def _publish_each(
    call: Call[Any], messages: Mapping[str, NewMessage | Refusal]
) -> dict[str, Published | Refusal]:
    """Publish messages together; if that is refused, one after another, so that only wrong ones fail."""
    accepted = {entry_id: message for entry_id, message in messages.items() if isinstance(message, NewMessage)}
    outcomes: dict[str, Published | Refusal] = {}
    try:
        stored = await publish(call.broker.topics, call.topic_name, [*accepted.values()]) if accepted else None
        outcomes.update(zip(accepted, stored.result if stored else (), strict=True))
    except Refusal:
        for entry_id, message in accepted.items():
            outcomes[entry_id] = await _publish_alone(call, message)
    refused = {entry_id: message for entry_id, message in messages.items() if isinstance(message, Refusal)}
    return outcomes | refused


async def _publish_alone(call: Call[Any], message: NewMessage) -> Published | Refusal:
    try:
        (published,) = (await publish(call.broker.topics, call.topic_name, [message])).result
    except Refusal as refusal:
        return refusal.as_result()
    return published
