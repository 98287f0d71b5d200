"""Labels of queues, topics and subscriptions in requests and responses."""

from collections.abc import Mapping
from typing import Annotated, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from app.domain.queue import MAX_LABEL_NAME_LENGTH, MAX_LABEL_VALUE_LENGTH, MAX_LABELS, MAX_LABELS_BYTES
from app.domain.refusals import invalid_at
from app.wire.field_types import PRINTABLE, text_of

LabelName: TypeAlias = Annotated[str, text_of(PRINTABLE, min_length=1, max_length=MAX_LABEL_NAME_LENGTH)]
LabelValue: TypeAlias = Annotated[str, text_of(PRINTABLE, max_length=MAX_LABEL_VALUE_LENGTH)]
Labels: TypeAlias = Annotated[
    dict[LabelName, LabelValue],
    msgspec.Meta(
        max_length=MAX_LABELS,
        description=f"Texts by name, for operators and programs. They have no effect on messages. Together they have at most "
        f"{MAX_LABELS_BYTES} bytes of JSON.",
    ),
]
LabelChanges: TypeAlias = Annotated[
    dict[LabelName, LabelValue | None],
    msgspec.Meta(
        max_length=2 * MAX_LABELS, description="Changes to the labels: they are merged, and null removes one."
    ),
]


def check_labels(labels: Mapping[str, str]) -> None:
    """Refuse with `InvalidRequest` labels with too many bytes together."""
    if len(msgspec.json.encode(labels)) > MAX_LABELS_BYTES:
        raise invalid_at("/labels", f"Labels have at most {MAX_LABELS_BYTES} bytes of JSON together.")


def merged_labels(labels: Mapping[str, str], changes: Mapping[str, str | None] | UnsetType | None) -> Mapping[str, str]:
    """Return the labels with these changes; None removes all. Refuses with `InvalidRequest` too many labels or bytes."""
    if changes is UNSET:
        return labels
    changed: Mapping[str, str | None] = {} if changes is None else {**labels, **changes}
    merged = {name: text for name, text in changed.items() if text is not None}
    if len(merged) > MAX_LABELS:
        raise invalid_at("/labels", f"There are at most {MAX_LABELS} labels.")
    check_labels(merged)
    return merged
