"""Queue attributes of SQS, and the settings of queues that they stand for."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from app.domain.instant import DAY, MINUTE, SECOND, Duration
from app.domain.queue import (
    DEFAULT_MAX_MESSAGE_BYTES,
    MAX_DELIVERY_LIMIT,
    MIN_LOCK_DURATION,
    Queue,
    QueueCounts,
    QueueSettings,
)
from app.domain.refusals import InvalidRequest
from app.domain.suggestions import did_you_mean
from app.sqs.errors import InvalidAttributeName, InvalidAttributeValue
from app.sqs.queue_labels import FIFO_LABELS, check_labels, fifo_label, with_fifo_label, with_tags
from app.sqs.queue_names import arn_of, check_new_name, is_fifo
from app.sqs.redrive_policy import REDRIVE_POLICY, redrive_policy, with_redrive_policy
from app.sqs.setting_texts import boolean, whole_number
from app.sqs.shapes.members import MAX_VISIBILITY_SECONDS, MAX_WAIT_SECONDS
from app.sqs.unsupported_attributes import UNSUPPORTED_ATTRIBUTES, check_unsupported

ALL: Final = "All"
_FIFO_QUEUE: Final = "FifoQueue"
_MESSAGE_SIZE: Final = "MaximumMessageSize"
_FIFO_WINDOW: Duration = 5 * MINUTE
_MAX_RETENTION: Duration = 14 * DAY
_MAX_ATTRIBUTE_DELAY: Duration = 15 * MINUTE
_MIN_MESSAGE_SIZE = 1024
_MAX_SHOWN_NAME = 40

_NEW_QUEUE = QueueSettings(max_delivery_count=MAX_DELIVERY_LIMIT, default_ttl=4 * DAY)
"""The settings of a queue that CreateQueue makes without attributes. The others are defaults of both interfaces."""

_READ_ONLY = (
    "QueueArn",
    "CreatedTimestamp",
    "LastModifiedTimestamp",
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesNotVisible",
    "ApproximateNumberOfMessagesDelayed",
)

_Change = Callable[[QueueSettings, str, str], QueueSettings]
"""Returns the settings of the queue of this name with this value of an attribute, or refuses the value."""


class _Period(NamedTuple):
    """An attribute that is a number of seconds: its setting and bounds, and the value of a queue without the setting."""

    setting: str
    least: Duration
    most: Duration
    unset: Duration = 0


_PERIODS: Mapping[str, _Period] = {
    "VisibilityTimeout": _Period("lock_duration", 0, MAX_VISIBILITY_SECONDS * SECOND),
    "DelaySeconds": _Period("default_delay", 0, _MAX_ATTRIBUTE_DELAY),
    "ReceiveMessageWaitTimeSeconds": _Period("default_wait", 0, MAX_WAIT_SECONDS * SECOND),
    "MessageRetentionPeriod": _Period("default_ttl", MINUTE, _MAX_RETENTION, unset=_MAX_RETENTION),
}


def new_settings(name: str, attributes: Mapping[str, str], tags: Mapping[str, str]) -> QueueSettings:
    """Return the settings of a queue that CreateQueue makes.

    Refuses a malformed name and a FIFO queue whose name and attribute differ with `InvalidRequest`, malformed attributes as
    `changed_settings` does, and malformed tags as `with_tags` does.
    """
    check_new_name(name)
    if boolean(_FIFO_QUEUE, attributes.get(_FIFO_QUEUE, "false")) is not is_fifo(name):
        raise InvalidRequest(
            "The name of a FIFO queue ends with .fifo, and a queue with such a name is created with FifoQueue=true."
        )
    settings = _NEW_QUEUE
    if is_fifo(name):
        settings = replace(settings, group_in_flight=1, duplicate_detection_window=_FIFO_WINDOW)
    return with_tags(changed_settings(settings, name, attributes), tags)


def changed_settings(settings: QueueSettings, name: str, attributes: Mapping[str, str]) -> QueueSettings:
    """Return the settings after SetQueueAttributes. What no attribute names stays.

    Refuses with `InvalidAttributeName` an attribute that cannot be set, with `InvalidAttributeValue` a value that an attribute
    cannot have, and with `InvalidRequest` a dead-letter queue of another kind, and labels for which no room is left.
    """
    changed = _with_attributes(settings, name, attributes)
    check_labels(changed)
    return changed


def same_attributes(existing: QueueSettings, name: str, given: Mapping[str, str]) -> bool:
    """Return whether a queue with these settings has the given attributes. Others are not compared.

    Attributes are equal if GetQueueAttributes reports the same text for both. Refuses malformed attributes as
    `changed_settings` does.
    """
    others = dict(given)
    fifo = others.pop(_FIFO_QUEUE, None)
    wanted = _with_attributes(existing, name, others)
    if fifo is not None and boolean(_FIFO_QUEUE, fifo) is not _keeps_order(existing, name):
        return False
    return _setting_texts(existing, name, "") == _setting_texts(wanted, name, "")


def attributes_of(queue: Queue, counts: QueueCounts, region: str, names: Collection[str]) -> dict[str, str]:
    """Return what GetQueueAttributes answers for these names, of which `All` stands for every attribute with a value.

    An attribute without a value is left out, such as that of FIFO queues alone. Periods are rounded down to seconds, so that
    no lock and no message lives shorter than reported. Refuses an unknown name with `InvalidAttributeName`.
    """
    for name in names:
        if name != ALL and name not in _READ_ONLY and name not in _CHANGES:
            raise _unknown(name, (*_READ_ONLY, *_CHANGES))
    texts = {
        "QueueArn": arn_of(queue.name, region),
        "CreatedTimestamp": str(queue.created_at // SECOND),
        "LastModifiedTimestamp": str(queue.updated_at // SECOND),
        "ApproximateNumberOfMessages": str(counts.available + counts.blocked),
        "ApproximateNumberOfMessagesNotVisible": str(counts.locked),
        "ApproximateNumberOfMessagesDelayed": str(counts.scheduled),
        "SqsManagedSseEnabled": "false",
        **_setting_texts(queue.settings, queue.name, region),
    }
    return {name: text for name, text in texts.items() if ALL in names or name in names}


def _keeps_order(settings: QueueSettings, name: str) -> bool:
    """Return whether a queue keeps what a FIFO queue promises. One that was not made here may only have such a name."""
    window = settings.duplicate_detection_window or 0
    return is_fifo(name) and settings.group_in_flight == 1 and window >= _FIFO_WINDOW


def _setting_texts(settings: QueueSettings, name: str, region: str) -> dict[str, str]:
    texts = {_MESSAGE_SIZE: str(settings.max_message_bytes)}
    for attribute, period in _PERIODS.items():
        value: Duration | None = getattr(settings, period.setting)
        texts[attribute] = str((period.unset if value is None else value) // SECOND)
    if _keeps_order(settings, name):
        texts[_FIFO_QUEUE] = "true"
        texts.update({attribute: fifo_label(settings, attribute) for attribute in FIFO_LABELS})
    policy = redrive_policy(settings, region)
    return texts if policy is None else {**texts, REDRIVE_POLICY: policy}


def _with_attributes(settings: QueueSettings, name: str, attributes: Mapping[str, str]) -> QueueSettings:
    for attribute, text in attributes.items():
        if attribute in _READ_ONLY:
            raise InvalidAttributeName(f"The server computes the attribute {attribute}. It cannot be set.")
        if attribute not in _CHANGES:
            raise _unknown(attribute, _CHANGES)
        settings = _CHANGES[attribute](settings, name, text)
    return settings


def _unknown(name: str, known: Collection[str]) -> InvalidAttributeName:
    shown = f" {name}" if name.isalnum() and len(name) <= _MAX_SHOWN_NAME else ""
    return InvalidAttributeName(f"Unknown attribute{shown}.{did_you_mean(name, known)}")


def _change_of_period(attribute: str) -> _Change:
    period = _PERIODS[attribute]
    shortest = MIN_LOCK_DURATION if period.setting == "lock_duration" else 0

    def change(settings: QueueSettings, _: str, text: str) -> QueueSettings:
        seconds = whole_number(attribute, text, period.least // SECOND, period.most // SECOND)
        value = max(seconds * SECOND, shortest)
        return _with(settings, period.setting, value or None)

    return change


def _with(settings: QueueSettings, setting: str, value: Duration | None) -> QueueSettings:
    changes: dict[str, Any] = {setting: value}
    return replace(settings, **changes)


def _change_message_size(settings: QueueSettings, _: str, text: str) -> QueueSettings:
    size = whole_number(_MESSAGE_SIZE, text, _MIN_MESSAGE_SIZE, DEFAULT_MAX_MESSAGE_BYTES)
    return replace(settings, max_message_bytes=size)


def _keep_kind(settings: QueueSettings, name: str, text: str) -> QueueSettings:
    if boolean(_FIFO_QUEUE, text) is not _keeps_order(settings, name):
        raise InvalidAttributeValue(f"{_FIFO_QUEUE} of a queue cannot be changed.")
    return settings


def _change_of_label(attribute: str) -> _Change:
    return lambda settings, name, text: with_fifo_label(settings, name, attribute, text)


def _check_of(attribute: str) -> _Change:
    def check(settings: QueueSettings, _: str, text: str) -> QueueSettings:
        check_unsupported(attribute, text)
        return settings

    return check


_CHANGES: Mapping[str, _Change] = {
    **{attribute: _change_of_period(attribute) for attribute in _PERIODS},
    _MESSAGE_SIZE: _change_message_size,
    REDRIVE_POLICY: with_redrive_policy,
    _FIFO_QUEUE: _keep_kind,
    **{attribute: _change_of_label(attribute) for attribute in FIFO_LABELS},
    **{attribute: _check_of(attribute) for attribute in UNSUPPORTED_ATTRIBUTES},
}
"""The attributes that can be set, and what each does to settings."""
