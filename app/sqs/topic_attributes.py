"""Attributes of topics, which are labels: the mapping both ways, and which values are refused."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from app.domain.queue import MAX_LABEL_VALUE_LENGTH
from app.domain.refusals import InvalidRequest
from app.domain.suggestions import did_you_mean
from app.domain.topic import TopicSettings
from app.sqs.labels import RESERVED, check_labels_size, is_printable
from app.sqs.new_message import WHOLE_QUEUE, FifoRules
from app.sqs.queue_names import ACCOUNT, is_fifo
from app.sqs.setting_texts import boolean_of_any_case, one_of
from app.sqs.topic_names import topic_arn
from app.sqs.xml_text import quoted

FIFO_TOPIC = "FifoTopic"
DISPLAY_NAME = "DisplayName"
CONTENT_BASED = "ContentBasedDeduplication"
SCOPE = "FifoThroughputScope"
_OF_GROUP = "messageGroup"
_MAX_DISPLAY_NAME = 100

_VALUES: Mapping[str, tuple[str, str]] = {CONTENT_BASED: ("false", "true"), SCOPE: ("Topic", "MessageGroup")}
"""The values of attributes of FIFO topics. The first is the default, for which no label is stored."""

_NO_KMS = "This server does not encrypt messages with keys of KMS."
_NO_RETRIES = "A copy is in its queue once Publish has answered, so no delivery is tried again."
_REASONS: Mapping[str, str] = {
    "Policy": "This server has no policies of topics: the rights of API keys say who can use a topic.",
    "KmsMasterKeyId": _NO_KMS,
    "DeliveryPolicy": _NO_RETRIES,
    "TracingConfig": "This server does not send traces to X-Ray. It passes traceparent on.",
    "SignatureVersion": "This server does not sign envelopes.",
    "ArchivePolicy": "This server does not replay messages of topics.",
    "DataProtectionPolicy": "This server does not look for sensitive data.",
}
"""Attributes that promise what this server does not do, and the sentence that says so. Only an empty value is accepted."""
_HARMLESS = {("TracingConfig", "PassThrough")}
_COMPUTED = ("TopicArn", "Owner", "SubscriptionsConfirmed", "SubscriptionsPending", "SubscriptionsDeleted")


def new_topic_settings(name: str, attributes: Mapping[str, str]) -> TopicSettings:
    """Return the settings of a topic that CreateTopic makes.

    Refuses with `InvalidRequest` a FIFO topic whose name and attribute differ, and as `with_topic_attribute` does.
    """
    others = dict(attributes)
    if boolean_of_any_case(FIFO_TOPIC, others.pop(FIFO_TOPIC, "false")) is not is_fifo(name):
        raise InvalidRequest(
            "The name of a FIFO topic ends with .fifo, and a topic with such a name is created with FifoTopic=true."
        )
    settings = TopicSettings()
    for attribute, value in others.items():
        settings = with_topic_attribute(settings, name, attribute, value)
    return settings


def with_topic_attribute(settings: TopicSettings, name: str, attribute: str, value: str) -> TopicSettings:
    """Return the settings of this topic with another value of an attribute.

    Refuses with `InvalidRequest` an attribute that cannot be set, and a value that this server does not accept.
    """
    if attribute in _REASONS:
        if value and (attribute, value) not in _HARMLESS:
            raise InvalidRequest(f"{attribute} cannot have this value. {_REASONS[attribute]}")
        return settings
    change = _CHANGES.get(attribute)
    if change is None:
        if attribute in (FIFO_TOPIC, *_COMPUTED):
            raise InvalidRequest(f"The attribute {attribute} of a topic cannot be changed.")
        raise InvalidRequest(f"A topic has no attribute {quoted(attribute)}.{did_you_mean(attribute, _CHANGES)}")
    text, default = change(name, value)
    others = {label: stored for label, stored in settings.labels.items() if label != RESERVED + attribute}
    labels = others if text == default else {**others, RESERVED + attribute: text}
    check_labels_size(labels)
    return replace(settings, labels=labels)


def same_topic_attributes(existing: TopicSettings, wanted: TopicSettings, given: Mapping[str, str]) -> bool:
    """Return whether a topic has the given attributes, which `wanted` has too. Others are not compared."""
    return all(
        existing.labels.get(RESERVED + attribute) == wanted.labels.get(RESERVED + attribute) for attribute in given
    )


def topic_attributes(name: str, settings: TopicSettings, subscriptions: int, region: str) -> dict[str, str]:
    """Return what GetTopicAttributes answers. Attributes that promise what this server does not do are left out."""
    texts = {
        "TopicArn": topic_arn(name, region),
        "Owner": ACCOUNT,
        DISPLAY_NAME: settings.labels.get(RESERVED + DISPLAY_NAME, ""),
        "SubscriptionsConfirmed": str(subscriptions),
        "SubscriptionsPending": "0",
        "SubscriptionsDeleted": "0",
    }
    if is_fifo(name):
        texts[FIFO_TOPIC] = "true"
        texts.update({attribute: _fifo_value(settings, attribute) for attribute in _VALUES})
    return texts


def topic_fifo_rules(name: str, settings: TopicSettings) -> FifoRules | None:
    """Return how a FIFO topic gives ids to messages, by which its queues recognise duplicates; None for a standard topic."""
    if not is_fifo(name):
        return None
    _, of_group = _VALUES[SCOPE]
    scope = _OF_GROUP if _fifo_value(settings, SCOPE) == of_group else WHOLE_QUEUE
    return FifoRules(_fifo_value(settings, CONTENT_BASED) == "true", scope)


def _fifo_value(settings: TopicSettings, attribute: str) -> str:
    default, other = _VALUES[attribute]
    return other if settings.labels.get(RESERVED + attribute) == other else default


def _display_name(_name: str, value: str) -> tuple[str, str]:
    if len(value) > min(_MAX_DISPLAY_NAME, MAX_LABEL_VALUE_LENGTH) or not is_printable(value):
        raise InvalidRequest(f"A {DISPLAY_NAME} has at most {_MAX_DISPLAY_NAME} characters, none a control character.")
    return value, ""


def _of_fifo(attribute: str) -> Callable[[str, str], tuple[str, str]]:
    default, other = _VALUES[attribute]

    def checked(name: str, value: str) -> tuple[str, str]:
        text = value or default
        if attribute == CONTENT_BASED:
            text = "true" if boolean_of_any_case(attribute, text) else "false"
        one_of(attribute, text, (default, other))
        if not is_fifo(name) and (attribute, text) != (CONTENT_BASED, default):
            raise InvalidRequest(f"Only FIFO topics have the attribute {attribute}. Their names end with .fifo.")
        return text, default

    return checked


_CHANGES: Mapping[str, Callable[[str, str], tuple[str, str]]] = {
    DISPLAY_NAME: _display_name,
    CONTENT_BASED: _of_fifo(CONTENT_BASED),
    SCOPE: _of_fifo(SCOPE),
}
"""The attributes that can be set. Each returns the text to store from the name of the topic and the value, and the default."""
