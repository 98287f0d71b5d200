"""Rows to domain values and back: the one place where both are named side by side.

A row is read by position, in the order of the `*_COLUMNS` beside it, which statements name as `@message` and so on.
The hot ones among these functions run for every message, so they look values up instead of constructing them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any, TypeAlias

import msgspec

from app.domain.access import ApiKey, Grant, Right
from app.domain.instant import Instant
from app.domain.message import BodyKind, Draft, Envelope, Message, MessageState, Receipt
from app.domain.queue import Queue, QueueSettings, QueueStatus
from app.domain.retry import ExponentialDelay, FixedDelay, LinearDelay, ListedDelays, NoDelay, RetryPolicy
from app.domain.settlement import Held, LockToken, Outcome, Tombstone

Row: TypeAlias = Sequence[Any]
"""What a driver gives for one row, by position."""

STATES: Mapping[int, MessageState] = {state.value: state for state in MessageState}
BODY_KINDS: Mapping[int, BodyKind] = {kind.value: kind for kind in BodyKind}
OUTCOMES: Mapping[str, Outcome] = {outcome.value: outcome for outcome in Outcome}


class Headers(msgspec.Struct, omit_defaults=True, gc=False):
    """The text fields of an envelope that have no column of their own, as the column `headers` keeps them."""

    content_type: str | None = None
    correlation_id: str | None = None
    subject: str | None = None
    reply_to: str | None = None
    to: str | None = None
    traceparent: str | None = None


NO_HEADERS = Headers()
_encode = msgspec.json.Encoder().encode
_decode_headers = msgspec.json.Decoder(Headers).decode

# ---- messages --------------------------------------------------------------------------------------------------------

MESSAGE_COLUMNS = (
    "sequence_number",
    "queue_id",
    "state",
    "home_state",
    "priority",
    "enqueued_at",
    "available_at",
    "expires_at",
    "delivery_count",
    "failure_count",
    "lock_token",
    "locked_until",
    "lock_generation",
    "receiver_id",
    "last_delivered_at",
    "last_failure",
    "message_id",
    "group_id",
    "headers",
    "properties",
    "body_kind",
    "body",
    "dead_letter_reason",
    "dead_letter_description",
    "dead_lettered_at",
    "read_at",
)


def message(row: Row) -> Message:
    """The message of a row of `MESSAGE_COLUMNS`."""
    (
        sequence_number,
        queue_id,
        state,
        home_state,
        priority,
        enqueued_at,
        available_at,
        expires_at,
        delivery_count,
        failure_count,
        lock_token,
        locked_until,
        lock_generation,
        receiver_id,
        last_delivered_at,
        last_failure,
        message_id,
        group_id,
        headers,
        properties,
        body_kind,
        body,
        dead_letter_reason,
        dead_letter_description,
        dead_lettered_at,
        read_at,
    ) = row
    return Message(
        sequence_number,
        queue_id,
        _envelope(message_id, group_id, headers, properties),
        body,
        BODY_KINDS[body_kind],
        STATES[state],
        STATES[home_state],
        priority,
        enqueued_at,
        available_at,
        expires_at,
        delivery_count,
        failure_count,
        lock_token,
        locked_until,
        lock_generation,
        receiver_id,
        last_delivered_at,
        last_failure,
        dead_letter_reason,
        dead_letter_description,
        dead_lettered_at,
        read_at,
    )


def _envelope(message_id: str, group_id: str | None, headers: str | None, properties: str | None) -> Envelope:
    head = NO_HEADERS if headers is None else _decode_headers(headers)
    return Envelope(
        message_id,
        head.content_type,
        head.correlation_id,
        head.subject,
        head.reply_to,
        head.to,
        group_id,
        head.traceparent,
        read_properties(properties),
    )


def read_properties(stored: str | None) -> bytes:
    """Properties as the domain has them: the sender's JSON as bytes, empty for none."""
    return b"" if stored is None else stored.encode()


def write_properties(properties: bytes | None) -> str | None:
    """Properties as the column has them: null for none."""
    return properties.decode() if properties else None


DRAFT_COLUMNS = (
    "queue_id",
    "priority",
    "available_at",
    "delay",
    "ttl",
    "message_id",
    "group_id",
    "headers",
    "properties",
    "body_kind",
    "body",
)


def draft_row(draft: Draft) -> tuple[Any, ...]:
    """What a statement needs to store a draft, in the order of `DRAFT_COLUMNS`.

    `available_at`, `delay` and `ttl` are as the sender gave them; the statement adds the store's clock.
    """
    envelope = draft.envelope
    return (
        draft.queue_id,
        draft.priority,
        draft.available_at,
        draft.delay,
        draft.ttl,
        envelope.message_id,
        envelope.group_id,
        write_headers(envelope),
        write_properties(envelope.properties),
        draft.body_kind.value,
        draft.body,
    )


def write_headers(envelope: Envelope) -> str | None:
    """The column `headers`: a JSON object of what is set, null when nothing is."""
    head = Headers(
        envelope.content_type,
        envelope.correlation_id,
        envelope.subject,
        envelope.reply_to,
        envelope.to,
        envelope.traceparent,
    )
    return None if head == NO_HEADERS else _encode(head).decode()


# ---- deliveries ------------------------------------------------------------------------------------------------------

HELD_COLUMNS = (
    "sequence_number",
    "lock_token",
    "queue_id",
    "lock_generation",
    "locked_until",
    "home_state",
    "delivery_count",
    "failure_count",
    "properties",
    "read_at",
)


def held(row: Row) -> Held:
    """The facts of a locked row of `HELD_COLUMNS`."""
    number, secret, queue_id, generation, until, home_state, deliveries, failures, properties, read_at = row
    return Held(
        LockToken(number, secret),
        queue_id,
        generation,
        until,
        STATES[home_state],
        deliveries,
        failures,
        read_properties(properties),
        read_at,
    )


TOMBSTONE_COLUMNS = ("sequence_number", "lock_token", "queue_id", "outcome", "state", "settled_at")


def tombstone(row: Row) -> Tombstone:
    """The tombstone of a row of `TOMBSTONE_COLUMNS`; the archive has null for `state`."""
    number, secret, queue_id, outcome, state, settled_at = row
    return Tombstone(
        LockToken(number, secret), queue_id, OUTCOMES[outcome], None if state is None else STATES[state], settled_at
    )


# ---- answers of attempts ---------------------------------------------------------------------------------------------

StoredReceipt: TypeAlias = tuple[int, str, Instant, int, bool]
_decode_receipts = msgspec.json.Decoder(list[StoredReceipt]).decode
_decode_tokens = msgspec.json.Decoder(list[tuple[int, str]]).decode


def write_receipts(receipts: Iterable[Receipt]) -> str:
    """The column `answer` of an attempt to send."""
    stored: list[StoredReceipt] = [
        (receipt.sequence_number, receipt.message_id, receipt.enqueued_at, receipt.state.value, receipt.duplicate)
        for receipt in receipts
    ]
    return _encode(stored).decode()


def read_receipts(answer: str) -> list[Receipt]:
    """What `write_receipts` wrote."""
    return [
        Receipt(number, message_id, enqueued_at, STATES[state], duplicate)
        for number, message_id, enqueued_at, state, duplicate in _decode_receipts(answer)
    ]


def write_tokens(messages: Iterable[Message]) -> str:
    """The column `answer` of an attempt to receive: which deliveries it gave, in order."""
    stored = [(message.sequence_number, (message.lock_token or b"").hex()) for message in messages]
    return _encode(stored).decode()


def read_tokens(answer: str) -> list[LockToken]:
    """What `write_tokens` wrote."""
    return [LockToken(number, bytes.fromhex(secret)) for number, secret in _decode_tokens(answer)]


# ---- queues ----------------------------------------------------------------------------------------------------------

QUEUE_COLUMNS = ("id", "name", "settings", "version", "created_at", "updated_at")

RETRY_KINDS: Mapping[str, type[RetryPolicy]] = {
    "none": NoDelay,
    "fixed": FixedDelay,
    "linear": LinearDelay,
    "exponential": ExponentialDelay,
    "list": ListedDelays,
}
RETRY_NAMES = {kind: name for name, kind in RETRY_KINDS.items()}
SETTINGS_FIELDS = frozenset(field.name for field in fields(QueueSettings))


def queue(row: Row) -> Queue:
    """The queue of a row of `QUEUE_COLUMNS`."""
    queue_id, name, settings, version, created_at, updated_at = row
    return Queue(queue_id, name, read_settings(settings), version, created_at, updated_at)


def write_settings(settings: QueueSettings) -> str:
    """The column `settings`: every field by name, the retry policy with its kind."""
    stored = asdict(settings)
    stored["retry"] = {"kind": RETRY_NAMES[type(settings.retry)], **stored["retry"]}
    return _encode(stored).decode()


def read_settings(text: str) -> QueueSettings:
    """What `write_settings` wrote, by this version of the service or another one.

    A field that an older version did not know has its default; one that only a newer version knows is left out, so
    that both can run side by side during an update.
    """
    stored: dict[str, Any] = {
        name: value for name, value in msgspec.json.decode(text).items() if name in SETTINGS_FIELDS
    }
    if "retry" in stored:
        retry = stored["retry"]
        stored["retry"] = msgspec.convert(retry, RETRY_KINDS[retry["kind"]])
    if "status" in stored:
        stored["status"] = QueueStatus(stored["status"])
    return QueueSettings(**stored)


# ---- API keys --------------------------------------------------------------------------------------------------------

API_KEY_COLUMNS = (
    "id",
    "principal",
    "secret_hash",
    "rights",
    "created_at",
    "expires_at",
    "last_used_at",
    "revoked_at",
)


class Rights(msgspec.Struct):
    """A grant as the column `rights` keeps it."""

    rights: list[Right]
    patterns: list[str]


def api_key(row: Row) -> ApiKey:
    """The API key of a row of `API_KEY_COLUMNS`."""
    key_id, principal, secret_hash, rights, created_at, expires_at, last_used_at, revoked_at = row
    granted = msgspec.json.decode(rights, type=Rights)
    grant = Grant(frozenset(granted.rights), tuple(granted.patterns))
    return ApiKey(key_id, principal, secret_hash, grant, created_at, expires_at, last_used_at, revoked_at)


def write_rights(grant: Grant) -> str:
    """The column `rights`: names and patterns, in a steady order."""
    return _encode(Rights(sorted(grant.rights), list(grant.patterns))).decode()
