"""Labels of queues as this interface uses them: tags, and attributes of FIFO queues under names that begin with `sqs:`."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from app.domain.queue import QueueSettings
from app.sqs.errors import InvalidAttributeName, InvalidAttributeValue
from app.sqs.labels import RESERVED, check_labels_size, labels_with_tags, labels_without_tags, tags_in
from app.sqs.queue_names import is_fifo
from app.sqs.setting_texts import one_of

CONTENT_BASED: Final = "ContentBasedDeduplication"
SCOPE: Final = "DeduplicationScope"
THROUGHPUT: Final = "FifoThroughputLimit"

_VALUES: Mapping[str, tuple[str, str]] = {
    CONTENT_BASED: ("false", "true"),
    SCOPE: ("queue", "messageGroup"),
    THROUGHPUT: ("perQueue", "perMessageGroupId"),
}
"""The values of each attribute that is a label. The first is the default, for which no label is stored."""

FIFO_LABELS = tuple(_VALUES)
"""The attributes that are labels."""


def is_content_based(settings: QueueSettings) -> bool:
    """Return whether the body of a message without a deduplication id gives it one."""
    return fifo_label(settings, CONTENT_BASED) == "true"


def deduplication_scope(settings: QueueSettings) -> str:
    """Return within what deduplication ids are compared: `queue` or `messageGroup`."""
    return fifo_label(settings, SCOPE)


def fifo_label(settings: QueueSettings, attribute: str) -> str:
    """Return the value of an attribute that is a label. One that this interface does not know counts as the default."""
    default, other = _VALUES[attribute]
    return other if settings.labels.get(RESERVED + attribute) == other else default


def with_fifo_label(settings: QueueSettings, name: str, attribute: str, value: str) -> QueueSettings:
    """Return the settings of this queue with another value of an attribute that is a label.

    Refuses with `InvalidAttributeValue` a value that it cannot have, and with `InvalidAttributeName` one on a standard queue.
    That a standard queue has no deduplication by content is true, and accepted.
    """
    default, _ = _VALUES[attribute]
    one_of(attribute, value, _VALUES[attribute])
    if not is_fifo(name) and (attribute, value) != (CONTENT_BASED, default):
        raise InvalidAttributeName(f"Only FIFO queues have the attribute {attribute}. Their names end with .fifo.")
    others = {label: text for label, text in settings.labels.items() if label != RESERVED + attribute}
    return replace(settings, labels=others if value == default else {**others, RESERVED + attribute: value})


def check_labels(settings: QueueSettings) -> None:
    """Refuse labels that do not fit together, or are too many.

    Refuses with `InvalidAttributeValue` a throughput limit for each group without deduplication in each group, as SQS does,
    and with `InvalidRequest` more labels or bytes than a queue can have.
    """
    if fifo_label(settings, THROUGHPUT) == "perMessageGroupId" and deduplication_scope(settings) != "messageGroup":
        raise InvalidAttributeValue(f"{THROUGHPUT} can be perMessageGroupId only if {SCOPE} is messageGroup.")
    check_labels_size(settings.labels)


def tags_of(settings: QueueSettings) -> dict[str, str]:
    """Return the tags of a queue: the labels that are not reserved."""
    return tags_in(settings.labels)


def with_tags(settings: QueueSettings, tags: Mapping[str, str]) -> QueueSettings:
    """Return the settings with these tags too. Refuses as `labels_with_tags` does."""
    return replace(settings, labels=labels_with_tags(settings.labels, tags))


def without_tags(settings: QueueSettings, keys: Iterable[str]) -> QueueSettings:
    """Return the settings without the tags of these keys. Refuses as `labels_without_tags` does."""
    return replace(settings, labels=labels_without_tags(settings.labels, keys))
