"""Columns that keep one JSON document: headers, properties, queue settings, rights, answers of attempts."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any, TypeAlias

import msgspec

from app.domain.access import Grant, Right
from app.domain.instant import Instant
from app.domain.message import NO_HEADERS, Message, MessageHeaders, MessageState, Receipt
from app.domain.move_task import MoveRequest
from app.domain.queue import QueueSettings, QueueStatus, Redelivery
from app.domain.retry import ExponentialDelay, FixedDelay, LinearDelay, ListedDelays, NoDelay, RetryPolicy
from app.domain.settlement import LockToken, Outcome, Settled
from app.domain.state import AddedVersion
from app.domain.work_unit import WorkUnitResult

_encode = msgspec.json.Encoder().encode

# ---- messages --------------------------------------------------------------------------------------------------------


_decode_headers = msgspec.json.Decoder(MessageHeaders).decode


def read_headers(stored: str | None) -> MessageHeaders:
    """Read what `write_headers` wrote."""
    return NO_HEADERS if stored is None else _decode_headers(stored)


def write_headers(headers: MessageHeaders) -> str | None:
    """Return the value of column `headers`: a JSON object of the fields that are set, null if none is."""
    return None if headers == NO_HEADERS else _encode(headers).decode()


def read_properties(stored: str | None) -> bytes:
    """Return properties in the domain's form: the sender's JSON as bytes, empty for none."""
    return b"" if stored is None else stored.encode()


def write_properties(properties: bytes | None) -> str | None:
    """Return properties in the column's form: null for none."""
    return properties.decode() if properties else None


def write_properties_change(properties: bytes | None) -> str | None:
    """Return properties as a change to the column: null leaves the column as it is, an empty text clears it."""
    return None if properties is None else properties.decode()


# ---- answers of attempts ---------------------------------------------------------------------------------------------

StoredReceipt: TypeAlias = tuple[int, str, Instant, int, bool]
_decode_receipts = msgspec.json.Decoder(list[StoredReceipt]).decode
_decode_ids = msgspec.json.Decoder(list[str]).decode
_decode_tokens = msgspec.json.Decoder(list[tuple[int, str]]).decode


def write_receipts(receipts: Iterable[Receipt]) -> str:
    """Return the value of column `answer` for an attempt to send.

    The state of a duplicate counts for older servers alone: `stored_receipts` reads it again.
    """
    return _encode(_stored_receipts(receipts)).decode()


def read_receipts(answer: str) -> list[Receipt]:
    """Read what `write_receipts` wrote."""
    return _receipts(_decode_receipts(answer))


def _stored_receipts(receipts: Iterable[Receipt]) -> list[StoredReceipt]:
    return [
        (
            receipt.sequence_number,
            receipt.message_id,
            receipt.enqueued_at,
            # Older servers refuse every value but their own states, and have none for a message that has ended.
            receipt.state or MessageState.AVAILABLE,
            receipt.duplicate,
        )
        for receipt in receipts
    ]


def _receipts(stored: Iterable[StoredReceipt]) -> list[Receipt]:
    return [
        Receipt(number, message_id, enqueued_at, MessageState(state), duplicate)
        for number, message_id, enqueued_at, state, duplicate in stored
    ]


def write_ids(message_ids: Sequence[str]) -> str:
    """Return the value of column `answer` for an attempt to let sends join a transaction: their message ids, in order."""
    return _encode(message_ids).decode()


def read_ids(answer: str) -> list[str]:
    """Read what `write_ids` wrote."""
    return _decode_ids(answer)


def write_tokens(messages: Iterable[Message]) -> str:
    """Return the value of column `answer` for an attempt to receive: the lock tokens that it granted, in order."""
    stored = [(message.sequence_number, (message.lock_token or b"").hex()) for message in messages]
    return _encode(stored).decode()


def read_tokens(answer: str) -> list[LockToken]:
    """Read what `write_tokens` wrote."""
    return [LockToken(number, bytes.fromhex(secret)) for number, secret in _decode_tokens(answer)]


class StoredUnit(msgspec.Struct):
    """The result of a work unit as column `answer` stores it: number, outcome and state of each settlement, and number and
    duplicate of each version."""

    settled: list[tuple[int, Outcome, int | None]]
    receipts: list[StoredReceipt]
    versions: list[tuple[int, bool]] = []


_decode_unit = msgspec.json.Decoder(StoredUnit).decode


def write_unit_result(result: WorkUnitResult) -> str:
    """Return the value of column `answer` for an attempt to carry out a work unit."""
    settled = [
        (one.sequence_number, one.outcome, None if one.state is None else one.state.value) for one in result.settled
    ]
    versions = [(version.number, version.duplicate) for version in result.versions]
    return _encode(StoredUnit(settled, _stored_receipts(result.receipts), versions)).decode()


def read_unit_result(answer: str) -> WorkUnitResult:
    """Read what `write_unit_result` wrote."""
    stored = _decode_unit(answer)
    return WorkUnitResult(
        [
            Settled(number, outcome, None if state is None else MessageState(state))
            for number, outcome, state in stored.settled
        ],
        _receipts(stored.receipts),
        [AddedVersion(number, duplicate) for number, duplicate in stored.versions],
    )


# ---- queues ----------------------------------------------------------------------------------------------------------

RETRY_KINDS: Mapping[str, type[RetryPolicy]] = {
    "none": NoDelay,
    "fixed": FixedDelay,
    "linear": LinearDelay,
    "exponential": ExponentialDelay,
    "list": ListedDelays,
}
RETRY_NAMES = {kind: name for name, kind in RETRY_KINDS.items()}
STATUSES: Mapping[str | None, QueueStatus] = {status.value: status for status in QueueStatus}
REDELIVERIES = {redelivery.value: redelivery for redelivery in Redelivery}
SETTINGS_FIELDS = frozenset(field.name for field in fields(QueueSettings))


def write_settings(settings: QueueSettings) -> str:
    """Return the value of column `settings`: every field by name, the retry policy with its kind."""
    stored = asdict(settings)
    stored["retry"] = {"kind": RETRY_NAMES[type(settings.retry)], **stored["retry"]}
    return _encode(stored).decode()


def read_settings(text: str) -> QueueSettings:
    """Read what `write_settings` wrote, in this version of the service or another one.

    A field that an older version did not know has its default. A field or value that only a newer version knows is left
    out: such a queue is shown but not served (`check_known`). So both versions can run side by side during an update.
    """
    stored: dict[str, Any] = {
        name: value for name, value in msgspec.json.decode(text).items() if name in SETTINGS_FIELDS
    }
    if (retry := stored.pop("retry", None)) and (kind := RETRY_KINDS.get(retry["kind"])):
        stored["retry"] = msgspec.convert(retry, kind)
    if status := STATUSES.get(stored.pop("status", None)):
        stored["status"] = status
    if redelivery := REDELIVERIES.get(stored.pop("redelivery", None)):
        stored["redelivery"] = redelivery
    return QueueSettings(**stored)


# ---- topics ----------------------------------------------------------------------------------------------------------

_decode_names = msgspec.json.Decoder(tuple[str, ...]).decode


def read_names(stored: str) -> tuple[str, ...]:
    """Read what `write_names` wrote."""
    return _decode_names(stored)


def write_names(names: Iterable[str]) -> str:
    """Return names of properties as a JSON list."""
    return _encode(list(names)).decode()


_decode_labels = msgspec.json.Decoder(dict[str, str]).decode


def read_labels(stored: str | None) -> dict[str, str]:
    """Read what `write_labels` wrote. Null also stands in rows of servers that do not know labels."""
    return {} if stored is None else _decode_labels(stored)


def write_labels(labels: Mapping[str, str]) -> str | None:
    """Return labels as a JSON object, null for none."""
    return _encode(labels).decode() if labels else None


# ---- API keys --------------------------------------------------------------------------------------------------------


class Rights(msgspec.Struct):
    """A grant as column `rights` stores it."""

    rights: list[Right]
    patterns: list[str]


_decode_rights = msgspec.json.Decoder(Rights).decode


def read_rights(stored: str) -> Grant:
    """Read what `write_rights` wrote."""
    granted = _decode_rights(stored)
    return Grant(frozenset(granted.rights), tuple(granted.patterns))


def write_rights(grant: Grant) -> str:
    """Return the value of column `rights`: names and patterns, in a stable order."""
    return _encode(Rights(sorted(grant.rights), list(grant.patterns))).decode()


# ---- move tasks ------------------------------------------------------------------------------------------------------

_decode_move_request = msgspec.json.Decoder(MoveRequest).decode


def write_move_request(request: MoveRequest) -> str:
    """Return the value of column `request`."""
    return _encode(request).decode()


def read_move_request(stored: str) -> MoveRequest:
    """Read what `write_move_request` wrote."""
    return _decode_move_request(stored)
