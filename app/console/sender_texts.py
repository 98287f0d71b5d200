"""The texts that a sender gives a message, as forms ask for them and pages show them."""

from collections.abc import Iterator

from msgspec.structs import replace

from app.domain.message import HEADER_TEXTS, SENDER_TEXTS, Envelope

SHOWN_FIRST = ("subject", "content_type", "message_id", "correlation_id", "group_id")
OTHER_LABELS = {"group_id": "Group", "traceparent": "Trace"}
NOT_IN_FORMS = ("reply_to", "to", "traceparent")

LABELS = {
    name: OTHER_LABELS.get(name, name.replace("_", " ").capitalize())
    for name in (*SHOWN_FIRST, *(name for name in SENDER_TEXTS if name not in SHOWN_FIRST))
}
"""The texts in the order of the pages, each with its label."""

SENT_FIELDS = (
    *((name, label, "text") for name, label in LABELS.items() if name not in NOT_IN_FORMS),
    ("priority", "Priority, 0 to 9", "number"),
    ("delay", "Delay", "duration"),
    ("ttl", "Time to live", "duration"),
)
"""The fields of the form that sends, without the body and the properties."""

RESUBMITTED_FIELDS = tuple(field for field in SENT_FIELDS if field[0] != "message_id")
"""The fields of the form that resubmits. The message gets a new id: a queue that detects duplicates would drop one with
the old id."""


def shown_texts(envelope: Envelope) -> Iterator[tuple[str, str]]:
    """Yield each text that a message has, after its label. The id of the message is shown before them."""
    for name, label in LABELS.items():
        value = envelope.text(name)
        if value is not None and name != "message_id":
            yield label, value


def resubmitted_texts(envelope: Envelope) -> dict[str, str]:
    """Return the texts of a message as fields of the form that resubmits."""
    return {name: envelope.text(name) or "" for name, _, _ in RESUBMITTED_FIELDS if name in SENDER_TEXTS}


def with_hidden_texts(new: Envelope, old: Envelope) -> Envelope:
    """Return an envelope with the texts of the old one that no form shows."""
    hidden = {name: old.text(name) for name in HEADER_TEXTS if name in NOT_IN_FORMS}
    return replace(new, headers=replace(new.headers, **hidden))
