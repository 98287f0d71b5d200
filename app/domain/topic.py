"""Topics: a topic holds no messages; each of its subscriptions copies the messages that it matches to a queue."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from app.domain.filter_body import read_bytes
from app.domain.instant import Instant
from app.domain.message import SENDER_TEXTS, check_properties
from app.domain.queue import Queue
from app.domain.refusals import InvalidRequest, MessageTooLarge, invalid_at
from app.domain.sending import NewMessage

MAX_TOPICS = 10_000
MAX_SUBSCRIPTIONS = 1_000
"""Subscriptions of a topic. A publish evaluates all their filters, at about 15 µs each."""

MAX_SET_PROPERTIES_BYTES = 4 << 10
"""Bytes of JSON of the properties that a subscription sets. Every process holds those of a topic in use."""

MAX_REMOVED_BYTES = 4 << 10
"""Bytes of the names of properties that a subscription removes, for the same reason."""

MAX_PUBLISHED_BYTES = 16 << 20
"""The largest weight of all copies of one publish, which one statement stores. A publish of more bytes may still store
one copy of each message."""

MAX_EVALUATIONS = 200_000
"""Filters that one publish evaluates, counted for each of its messages. Each takes about 20 µs."""

MAX_EVALUATED_BYTES = 64 << 20
"""Bytes of properties and bodies that these filters may read. 32 KiB of properties take up to 3 ms."""

SENT_FIELDS = frozenset((*SENDER_TEXTS, "priority", "body_bytes", "properties", "body"))
"""The fields of a message that its sender decides. The filter of a subscription reads only these, because it is
evaluated before the message is stored."""


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """The settings of a topic."""

    description: str = ""
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    """Texts by name, for operators and other interfaces. They have no effect on messages."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A stored topic. `version` grows by one at every change of its settings."""

    id: int
    name: str
    settings: TopicSettings
    version: int
    created_at: Instant
    updated_at: Instant

    @property
    def etag(self) -> str:
        """The ETag of this version of the topic; no other topic of this name ever has the same."""
        return f"{self.id}-{self.version}"


@dataclass(frozen=True, slots=True)
class SubscriptionSettings:
    """Which messages a subscription copies (`filter` None: all), to which queue, and with which properties.

    `set_properties` is a JSON object as bytes, or empty. Properties are removed before others are set.
    """

    target_queue: str
    filter: str | None = None
    set_properties: bytes = b""
    remove_properties: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    """Texts by name, as a topic has them."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """A stored subscription of a topic."""

    id: int
    topic_id: int
    name: str
    settings: SubscriptionSettings
    version: int
    created_at: Instant
    updated_at: Instant

    @property
    def etag(self) -> str:
        """The ETag of this version of the subscription; no other subscription ever has the same."""
        return f"{self.id}-{self.version}"


@dataclass(frozen=True, slots=True)
class Route:
    """A subscription and its target queue, None if an older server has deleted that queue."""

    subscription: Subscription
    queue: Queue | None


class Published(msgspec.Struct, frozen=True):
    """How many subscriptions a message matched, and how many of its copies were duplicates of earlier ones.

    The copies are stored, unless they wait for the commit of a transaction.
    """

    message_id: str
    matched: int
    duplicates: int
    is_committed: bool = True

    @property
    def is_stored(self) -> bool:
        """Whether any queue has the message."""
        return self.is_committed and self.matched > 0


def default_target(topic_name: str, subscription_name: str) -> str:
    """Return the name of the target queue of a subscription that names none."""
    return f"{topic_name}.{subscription_name}"


def check_set_properties(encoded: bytes) -> None:
    """Refuse with `InvalidRequest` properties that are too large for a subscription."""
    if len(encoded) > MAX_SET_PROPERTIES_BYTES:
        raise invalid_at(
            "/set_properties", f"A subscription sets at most {MAX_SET_PROPERTIES_BYTES} bytes of JSON of properties."
        )


def check_removed_properties(names: Sequence[str]) -> None:
    """Refuse with `InvalidRequest` names that are too large for a subscription."""
    if sum([len(name.encode()) for name in names]) > MAX_REMOVED_BYTES:
        raise invalid_at(
            "/remove_properties",
            f"The names of the properties that a subscription removes have at most {MAX_REMOVED_BYTES} bytes.",
        )


class FilterCounts(NamedTuple):
    """The number of filters that are evaluated for a message, and of those that read its body."""

    total: int
    of_body: int = 0


def check_evaluations(filter_counts: Sequence[FilterCounts], new_messages: Sequence[NewMessage]) -> None:
    """Refuse with `MessageTooLarge` messages whose filters would take too long; each has its numbers of filters."""
    evaluations = sum([counts.total for counts in filter_counts])
    read = sum(_read_bytes(counts, message) for counts, message in zip(filter_counts, new_messages, strict=True))
    if evaluations > MAX_EVALUATIONS or read > MAX_EVALUATED_BYTES:
        raise MessageTooLarge(
            f"The filters of the subscriptions would be evaluated more than {MAX_EVALUATIONS} times, or read more than "
            f"{MAX_EVALUATED_BYTES} bytes of properties and bodies. Publish fewer messages in one request."
        )


def _read_bytes(counts: FilterCounts, new_message: NewMessage) -> int:
    properties = counts.total * len(new_message.envelope.properties)
    return properties + counts.of_body * read_bytes(new_message.body) if counts.of_body else properties


def copy_for(subscription: Subscription, new_message: NewMessage) -> NewMessage:
    """Return the copy of a message that a subscription stores, with the changes of its properties.

    Refuses with `InvalidRequest` if the copy has more properties than a message may have.
    """
    settings = subscription.settings
    if not settings.set_properties and not settings.remove_properties:
        return new_message
    envelope = new_message.envelope
    properties = _changed_properties(envelope.properties, settings)
    if properties == envelope.properties:
        return new_message
    try:
        check_properties(len(_decode(properties)) if properties else 0, len(properties), "/properties")
    except InvalidRequest as refusal:
        detail = f"With the properties that subscription {subscription.name} sets: {refusal.detail}"
        raise invalid_at("/properties", detail) from None
    return msgspec.structs.replace(new_message, envelope=msgspec.structs.replace(envelope, properties=properties))


_decode = msgspec.json.Decoder(dict[str, Any]).decode


def _changed_properties(properties: bytes, settings: SubscriptionSettings) -> bytes:
    before: Mapping[str, Any] = _decode(properties) if properties else {}
    after = {name: value for name, value in before.items() if name not in settings.remove_properties}
    if settings.set_properties:
        after |= _decode(settings.set_properties)
    return msgspec.json.encode(after) if after else b""
