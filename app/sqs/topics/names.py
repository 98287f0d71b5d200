"""Which topic a request is about."""

from typing import Any

from app.domain.refusals import InvalidRequest
from app.sqs.topic_names import check_new_topic_name, subscription_of_arn, topic_of_arn


def of_topic_name(body: Any, _path: str) -> str:
    """Return the topic of `Name`. Refuses as `check_new_topic_name` does."""
    name: str = body.name
    check_new_topic_name(name)
    return name


def of_topic_arn(body: Any, _path: str) -> str:
    """Return the topic of `TopicArn`. Refuses as `topic_of_arn` does."""
    return topic_of_arn(body.topic_arn)


def of_published(body: Any, _path: str) -> str:
    """Return the topic of `TopicArn`. Refuses with `InvalidRequest` a phone number or another target."""
    if body.topic_arn is None or body.target_arn is not None or body.phone_number is not None:
        raise InvalidRequest("This server publishes to topics: give TopicArn, and neither TargetArn nor PhoneNumber.")
    return topic_of_arn(body.topic_arn)


def of_resource_arn(body: Any, _path: str) -> str:
    """Return the topic of `ResourceArn`. Refuses as `topic_of_arn` does."""
    return topic_of_arn(body.resource_arn)


def of_subscription_arn(body: Any, _path: str) -> str:
    """Return the topic of `SubscriptionArn`. Refuses as `subscription_of_arn` does."""
    return subscription_of_arn(body.subscription_arn).topic
