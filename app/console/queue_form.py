"""The settings of a queue as the fields of a form, for a new queue and for one that exists."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from app.console import retry_form
from app.console.access import Visitor
from app.console.forms import FormFaults, decoded
from app.console.setting_fields import (
    SettingField,
    meanings,
    names_in_form,
    read_settings,
    renamed,
    setting_field,
    setting_texts,
)
from app.domain.access import Right
from app.domain.queue import QueueSettings
from app.domain.refusals import InvalidRequest
from app.wire.queues import QueueSettingsBody, settings_body

STATUSES = (
    ("active", "It accepts both."),
    ("send_disabled", "It refuses sends."),
    ("receive_disabled", "It refuses receives."),
    ("disabled", "It refuses both."),
)
REDELIVERIES = (
    ("automatic", "When its lock ends, to any receiver."),
    ("on_request", "On request of its own receiver."),
)


@dataclass(frozen=True, slots=True)
class FieldGroup:
    """Fields below one heading. With `has_retry`, the fields of the retry policy follow."""

    heading: str
    fields: Sequence[SettingField]
    has_retry: bool = False


def _field(name: str, label: str, kind: Any = "text", choices: Sequence[tuple[str, str]] = ()) -> SettingField:
    return setting_field(QueueSettingsBody, name, label, kind, choices)


DESCRIPTION = _field("description", "What is this queue for?")
DELIVERY = FieldGroup(
    "Delivery",
    (
        _field("lock_duration", "How long does a receiver hold a message?", "duration"),
        _field("default_delay", "How long does a message wait before it can be received?", "duration"),
        _field("default_wait", "How long does a receive wait for a message?", "duration"),
        _field("redelivery", "When is a message that was not settled delivered again?", "choice", REDELIVERIES),
        _field("group_in_flight", "How many messages of a group are in flight at the same time?", "number"),
        _field("status", "Does the queue accept sends and receives?", "choice", STATUSES),
    ),
)
FAILURES = FieldGroup(
    "Failures",
    (_field("max_delivery_count", "After how many failures is a message dead-lettered?", "number"),),
    has_retry=True,
)
LIMITS = FieldGroup(
    "Limits",
    (
        _field("default_ttl", "How long does a message live?", "duration"),
        _field("dead_letter_on_expiry", "Dead-letter messages that expire.", "switch"),
        _field("max_messages", "How many messages may the queue hold?", "number"),
        _field("max_message_bytes", "How large may a message be?", "size"),
        _field("duplicate_detection_window", "How long are repeated sends recognised?", "duration"),
    ),
)
KEEPING = FieldGroup(
    "Archive and forwarding",
    (
        _field("archive_retention", "How long does the archive keep ended messages?", "duration"),
        _field("history", "Record what happens to each message.", "switch"),
        _field("forward_to", "Which queue stores what is sent here?"),
        _field("forward_dead_letters_to", "Which queue gets the dead letters?"),
    ),
)
LABELS = FieldGroup("Labels", (_field("labels", "What do operators and programs note about this queue?", "json"),))
FIELDS: Sequence[SettingField] = (
    DESCRIPTION,
    *DELIVERY.fields,
    *FAILURES.fields,
    *LIMITS.fields,
    *KEEPING.fields,
    *LABELS.fields,
)
LAST_DRAWN = "As last drawn"
FORWARDING = ("forward_to", "forward_dead_letters_to")

FIELD_NAMES = frozenset(
    (*(field.name for field in FIELDS), retry_form.KIND, *(field.name for field in retry_form.FIELDS))
)
"""The fields of a form with all settings."""

NAMES_BY_POINTER = names_in_form(FIELDS) | retry_form.NAMES_BY_POINTER

PARTS: Mapping[str, Any] = {
    "description_field": DESCRIPTION,
    "field_groups": (DELIVERY, FAILURES, LIMITS, KEEPING, LABELS),
    "retry": {
        "label": retry_form.LABEL,
        "meaning": meanings(QueueSettingsBody)["retry"],
        "kinds": retry_form.KINDS,
        "fields": retry_form.FIELDS,
    },
}
"""What the template of the form needs."""


def settings_texts(settings: QueueSettings) -> dict[str, str]:
    """Return what the fields of the form contain for these settings."""
    body: dict[str, Any] = msgspec.to_builtins(settings_body(settings))
    return setting_texts(FIELDS, body) | retry_form.policy_texts(settings.retry)


def settings_in(visitor: Visitor, fields: Mapping[str, str]) -> QueueSettings:
    """Return the settings in a form.

    Refuses with `InvalidRequest` that names every wrong field of the form, and with `Forbidden` a queue to forward to that the
    visitor may not send to.
    """
    faults = FormFaults()
    given = read_settings(QueueSettingsBody, FIELDS, fields, faults)
    with faults.collected():
        given["retry"] = retry_form.read_policy(fields)
    with faults.collected():
        settings = _decoded(given)
    faults.check()
    for name in FORWARDING:
        if target := fields.get(name, "").strip():
            visitor.require(Right.SEND, target)
    return settings


def drawing_of(
    visitor: Visitor, fields: Mapping[str, str], known: QueueSettings, known_as: str
) -> Mapping[str, retry_form.Drawing | str | None]:
    """Return what the template needs to draw the delays in a form: no drawing if the form is refused, and its origin.

    `known` are the settings that the form had at first, and `known_as` says where they come from.
    """
    try:
        settings = settings_in(visitor, {**fields, **dict.fromkeys(FORWARDING, "")})
    except InvalidRequest:
        return {"drawing": None, "drawing_origin": ""}
    policy = settings.retry, settings.max_delivery_count
    is_known = policy == (known.retry, known.max_delivery_count)
    return {"drawing": retry_form.drawing(*policy), "drawing_origin": known_as if is_known else LAST_DRAWN}


def _decoded(given: Mapping[str, object]) -> QueueSettings:
    try:
        return decoded(QueueSettingsBody, given).settings()
    except InvalidRequest as refusal:
        raise renamed(refusal, NAMES_BY_POINTER) from None
