"""Names of topics and subscriptions as SNS writes them: in ARNs."""

from string import ascii_letters, digits
from typing import Final, NamedTuple

from app.domain.queue import is_valid_name
from app.domain.refusals import InvalidRequest
from app.sqs.queue_names import ACCOUNT, FIFO_SUFFIX

_MAX_NEW_NAME_LENGTH: Final = 128
"""Characters of a name, as Peeklock allows. SNS allows 256."""
_NEW_NAME_CHARACTERS = frozenset(ascii_letters + digits + "-_")
_ARN_OF_TOPIC = f"arn:aws:sns:REGION:{ACCOUNT}:TOPIC"
_FIELDS_OF_TOPIC = 6
_FIELDS_OF_SUBSCRIPTION = 7


class SubscriptionName(NamedTuple):
    """The name of a subscription, and that of its topic."""

    topic: str
    name: str


def topic_arn(name: str, region: str) -> str:
    """Return the ARN of a topic. The region is that of the signature."""
    return f"arn:aws:sns:{region}:{ACCOUNT}:{name}"


def subscription_arn(topic: str, name: str, region: str) -> str:
    """Return the ARN of a subscription."""
    return f"{topic_arn(topic, region)}:{name}"


def topic_of_arn(arn: str) -> str:
    """Return the name of the topic with this ARN. Its partition, region and account have no effect.

    Refuses with `InvalidRequest` what is no ARN of a topic.
    """
    fields = _fields(arn)
    if len(fields) != _FIELDS_OF_TOPIC:
        raise InvalidRequest(f"The ARN of a topic has the form {_ARN_OF_TOPIC}.")
    return fields[-1]


def subscription_of_arn(arn: str) -> SubscriptionName:
    """Return the names in the ARN of a subscription. Refuses with `InvalidRequest` what is no such ARN."""
    fields = _fields(arn)
    if len(fields) != _FIELDS_OF_SUBSCRIPTION:
        raise InvalidRequest(f"The ARN of a subscription has the form {_ARN_OF_TOPIC}:NAME.")
    return SubscriptionName(*fields[-2:])


def check_new_topic_name(name: str) -> None:
    """Refuse with `InvalidRequest` a name that CreateTopic cannot give to a topic."""
    stem = name.removesuffix(FIFO_SUFFIX)
    if len(name) > _MAX_NEW_NAME_LENGTH or not _NEW_NAME_CHARACTERS.issuperset(stem):
        raise InvalidRequest(
            f"The Name of a topic has 1 to {_MAX_NEW_NAME_LENGTH} letters, digits, dashes and underscores. That of a FIFO "
            f"topic ends with {FIFO_SUFFIX}."
        )
    if not is_valid_name(name):
        raise InvalidRequest("On this server, the Name of a topic begins and ends with a letter or a digit.")


def _fields(arn: str) -> list[str]:
    """Return the fields of an ARN of SNS; none of another text."""
    fields = arn.split(":")
    is_arn = fields[0] == "arn" and fields[2:3] == ["sns"] and all(map(is_valid_name, fields[5:]))
    return fields if is_arn else []
