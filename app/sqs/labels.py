"""Labels of queues, topics and subscriptions as this interface uses them: tags, and attributes under reserved names."""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from app.domain.queue import MAX_LABEL_NAME_LENGTH, MAX_LABEL_VALUE_LENGTH, MAX_LABELS, MAX_LABELS_BYTES
from app.domain.refusals import InvalidRequest
from app.sqs.xml_text import xml_bytes

RESERVED: Final = "sqs:"
"""How the labels begin that are no tags."""


def tags_in(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the tags among labels: those that are not reserved."""
    return {key: value for key, value in labels.items() if not key.startswith(RESERVED)}


def labels_with_tags(labels: Mapping[str, str], tags: Mapping[str, str]) -> dict[str, str]:
    """Return labels with these tags too. A tag of the same key is replaced.

    Refuses with `InvalidRequest` a malformed or reserved tag, and more tags or bytes than labels can have.
    """
    for key, value in tags.items():
        _check_tag(key, value)
    changed = {**labels, **tags}
    check_labels_size(changed)
    return changed


def labels_without_tags(labels: Mapping[str, str], keys: Iterable[str]) -> dict[str, str]:
    """Return labels without the tags of these keys; there need be none. Refuses a reserved key with `InvalidRequest`."""
    removed = frozenset(keys)
    for key in removed:
        _check_reserved(key)
    return {key: value for key, value in labels.items() if key not in removed}


def check_labels_size(labels: Mapping[str, str]) -> None:
    """Refuse with `InvalidRequest` more labels or bytes than a queue, a topic or a subscription can have."""
    if len(labels) > MAX_LABELS:
        raise InvalidRequest(
            f"There are at most {MAX_LABELS} tags. An attribute that is not at its default may count as one."
        )
    if len(msgspec.json.encode(labels)) > MAX_LABELS_BYTES:
        raise InvalidRequest(f"Tags have at most {MAX_LABELS_BYTES} bytes of JSON together.")


def is_printable(text: str) -> bool:
    """Return whether a text has no control characters, and none that an answer in XML could not carry."""
    return xml_bytes(text) is not None and not any(character < " " or character == "\x7f" for character in text)


def _check_tag(key: str, value: str) -> None:
    _check_reserved(key)
    if not 1 <= len(key) <= MAX_LABEL_NAME_LENGTH or not is_printable(key):
        raise InvalidRequest(f"The key of a tag has 1 to {MAX_LABEL_NAME_LENGTH} characters, none a control character.")
    if len(value) > MAX_LABEL_VALUE_LENGTH or not is_printable(value):
        raise InvalidRequest(
            f"The value of a tag has at most {MAX_LABEL_VALUE_LENGTH} characters, none a control character."
        )


def _check_reserved(key: str) -> None:
    if key.startswith(RESERVED):
        raise InvalidRequest(f"The key of a tag cannot begin with {RESERVED}, because the server uses such labels.")
