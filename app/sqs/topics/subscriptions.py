"""Subscriptions: a queue subscribes to a topic, and its attributes say which messages it gets and in which form."""

from contextlib import suppress
from typing import Any

from app.broker.precondition import Precondition
from app.broker.topics import topics as verbs
from app.domain.access import Right
from app.domain.refusals import (
    InvalidRequest,
    PreconditionFailed,
    QueueNotFound,
    SubscriptionNotFound,
    TargetQueueTaken,
    TopicNotFound,
)
from app.domain.topic import Subscription, SubscriptionSettings, Topic
from app.http.request import ANY_TAG
from app.sqs.call import Call
from app.sqs.queue_names import is_fifo, name_of_arn
from app.sqs.shapes import topics as shapes
from app.sqs.shapes.members import Nothing
from app.sqs.subscription_attributes import (
    new_subscription_settings,
    same_subscription_attributes,
    subscription_attributes,
    with_subscription_attributes,
)
from app.sqs.topic_names import subscription_arn, subscription_of_arn

ONLY_QUEUES = (
    "This server delivers to queues: the Protocol is sqs. To call an HTTP endpoint, subscribe a queue and run "
    "`peeklock-worker --push` on it."
)
_ABSENT = Precondition(if_none_match=ANY_TAG)


async def subscribe(call: Call[shapes.Subscribe]) -> shapes.Subscribed:
    """Subscribe a queue to a topic, which needs the right to send to the queue. A repeat returns the same ARN.

    Refuses with `TopicNotFound`, with `InvalidRequest` another protocol, a queue of another kind or that does not exist, and
    one that is subscribed with other attributes, and as `new_subscription_settings` does.
    """
    body, topic_name = call.body, call.topic_name
    if body.protocol != "sqs":
        raise InvalidRequest(ONLY_QUEUES)
    queue = name_of_arn(body.endpoint)
    call.authorize(Right.SEND, queue)
    if is_fifo(queue) is not is_fifo(topic_name):
        raise InvalidRequest("A FIFO topic delivers to FIFO queues, and a standard topic to standard queues.")
    settings = new_subscription_settings(topic_name, queue, body.attributes)
    topic = await _topic(call)
    name = await _subscribe(call, topic, settings)
    return shapes.Subscribed(subscription_arn=subscription_arn(topic.name, name, call.region))


async def unsubscribe(call: Call[shapes.Unsubscribe]) -> Nothing:
    """End a subscription. Its queue stays. One that does not exist is no error, as in SNS."""
    with suppress(TopicNotFound, SubscriptionNotFound):
        topic = await _topic(call)
        await verbs.delete(verbs.subscriptions_of(call.broker.topics, topic), _name(call))
    return Nothing()


async def get_subscription_attributes(call: Call[shapes.GetSubscriptionAttributes]) -> shapes.AnsweredAttributes:
    """Return all attributes of a subscription. Refuses with `TopicNotFound` and `SubscriptionNotFound`."""
    topic = await _topic(call)
    subscription = await verbs.read(verbs.subscriptions_of(call.broker.topics, topic), _name(call))
    return shapes.AnsweredAttributes(attributes=subscription_attributes(topic.name, subscription, call.region))


async def set_subscription_attributes(call: Call[shapes.SetSubscriptionAttributes]) -> Nothing:
    """Change one attribute of a subscription, for messages that are published from now on.

    Refuses with `TopicNotFound` and `SubscriptionNotFound`, and as `with_subscription_attributes` does.
    """
    attributes = {call.body.attribute_name: call.body.attribute_value}
    topic = await _topic(call)

    def changed(subscription: Subscription) -> SubscriptionSettings:
        return with_subscription_attributes(subscription.settings, topic.name, attributes)

    await verbs.change(verbs.subscriptions_of(call.broker.topics, topic), _name(call), changed)
    return Nothing()


async def _subscribe(call: Call[shapes.Subscribe], topic: Topic, settings: SubscriptionSettings) -> str:
    """Create the subscription of a queue, unless it exists, and return its name: that of the queue."""
    subscriptions, queue = verbs.subscriptions_of(call.broker.topics, topic), settings.target_queue
    try:
        await verbs.put(subscriptions, queue, settings, _ABSENT)
    except PreconditionFailed:
        existing = (await verbs.read(subscriptions, queue)).settings
        if not same_subscription_attributes(existing, settings, topic.name):
            raise InvalidRequest(f"A subscription of queue {queue} already exists with different attributes.") from None
    except TargetQueueTaken:
        raise InvalidRequest(
            f"A subscription of queue {queue} already exists with another name. ListSubscriptionsByTopic has it."
        ) from None
    except QueueNotFound:
        raise InvalidRequest(f"The Endpoint is queue {queue}, which does not exist.") from None
    return queue


async def _topic(call: Call[Any]) -> Topic:
    return await verbs.read(verbs.all_topics(call.broker.topics), call.topic_name)


def _name(call: Call[Any]) -> str:
    return subscription_of_arn(call.body.subscription_arn).name
