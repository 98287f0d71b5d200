"""Labels of queues as this interface uses them: tags, and attributes of FIFO queues under names that begin with `sqs:`."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

import msgspec

from app.domain.queue import (
    MAX_LABEL_NAME_LENGTH,
    MAX_LABEL_VALUE_LENGTH,
    MAX_LABELS,
    MAX_LABELS_BYTES,
    QueueSettings,
)
from app.domain.refusals import InvalidRequest
from app.sqs.errors import InvalidAttributeName, InvalidAttributeValue
from app.sqs.queue_names import is_fifo
from app.sqs.setting_texts import one_of
from app.sqs.xml_text import xml_bytes

RESERVED: Final = "sqs:"
"""How the labels begin that are no tags."""

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
    _check_size(settings.labels)


def tags_of(settings: QueueSettings) -> dict[str, str]:
    """Return the tags of a queue: the labels that are not reserved."""
    return {key: value for key, value in settings.labels.items() if not key.startswith(RESERVED)}


def with_tags(settings: QueueSettings, tags: Mapping[str, str]) -> QueueSettings:
    """Return the settings with these tags too. A tag of the same key is replaced.

    Refuses with `InvalidRequest` a malformed or reserved tag, and more tags or bytes than a queue can have.
    """
    for key, value in tags.items():
        _check_tag(key, value)
    labels = {**settings.labels, **tags}
    _check_size(labels)
    return replace(settings, labels=labels)


def without_tags(settings: QueueSettings, keys: Iterable[str]) -> QueueSettings:
    """Return the settings without the tags of these keys; there need be none. Refuses a reserved key with `InvalidRequest`."""
    removed = frozenset(keys)
    for key in removed:
        _check_reserved(key)
    return replace(settings, labels={key: value for key, value in settings.labels.items() if key not in removed})


def _check_tag(key: str, value: str) -> None:
    _check_reserved(key)
    if not 1 <= len(key) <= MAX_LABEL_NAME_LENGTH or not _is_printable(key):
        raise InvalidRequest(f"The key of a tag has 1 to {MAX_LABEL_NAME_LENGTH} characters, none a control character.")
    if len(value) > MAX_LABEL_VALUE_LENGTH or not _is_printable(value):
        raise InvalidRequest(
            f"The value of a tag has at most {MAX_LABEL_VALUE_LENGTH} characters, none a control character."
        )


def _check_reserved(key: str) -> None:
    if key.startswith(RESERVED):
        raise InvalidRequest(f"The key of a tag cannot begin with {RESERVED}, because the server uses such labels.")


def _is_printable(text: str) -> bool:
    """Return whether a text has no control characters, and none that an answer in XML could not carry."""
    return xml_bytes(text) is not None and not any(character < " " or character == "\x7f" for character in text)


def _check_size(labels: Mapping[str, str]) -> None:
    if len(labels) > MAX_LABELS:
        raise InvalidRequest(
            f"A queue has at most {MAX_LABELS} tags. Each of {', '.join(FIFO_LABELS)} that is not at its default counts as one."
        )
    if len(msgspec.json.encode(labels)) > MAX_LABELS_BYTES:
        raise InvalidRequest(f"The tags of a queue have at most {MAX_LABELS_BYTES} bytes of JSON together.")
