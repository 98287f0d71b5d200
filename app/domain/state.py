"""Versioned states: each processed message adds one version to the state of its key, even if the value stays the same.

A version names the message that added it. So a duplicate of that message finds the version before it, runs on the same
state again and gets the recorded result.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import TypeAlias

import msgspec

from app.domain.instant import DAY, Duration, Instant
from app.domain.message import Receipt
from app.domain.sending import NewMessage
from app.domain.state_refusals import ResultDiffers, VersionConflict

MAX_VALUE_BYTES = 1 << 20
"""Bytes of the value of a version. A document of this size is a database of its own."""

MAX_METADATA_BYTES = 16 << 10
"""Bytes of what a version captures. A page of the history has a hundred of them."""

DEFAULT_RETENTION: Duration = 7 * DAY
"""How long a version is kept after another one has replaced it."""

NO_VERSION = 0
"""The version number of a key that has no version."""


class NextState(msgspec.Struct, frozen=True):
    """The next version of a state as its processor gives it. `value` and `metadata` are JSON."""

    key: str
    if_version: int
    value: bytes
    metadata: bytes
    verifies: bool = False


class StateChange(msgspec.Struct, frozen=True):
    """A version to be added to a state.

    `if_version` is the number of the version that the value was computed from. `message_id` is that of the
    processed message, None for a change without one, which is never a duplicate. With `verifies`, a duplicate whose
    digest differs from the first one is refused. `value` and `metadata` are JSON.
    """

    key: str
    if_version: int
    value: bytes
    metadata: bytes
    message_id: str | None
    result_digest: bytes
    verifies: bool = False


class StateVersion(msgspec.Struct, frozen=True):
    """A version of a state. `message_id` is None once the version before it was removed."""

    number: int
    value: bytes
    metadata: bytes
    message_id: str | None
    created_at: Instant


class VersionSummary(msgspec.Struct, frozen=True):
    """A version of a state without its value."""

    number: int
    metadata: bytes
    message_id: str | None
    created_at: Instant
    value_bytes: int


class Processed(msgspec.Struct, frozen=True):
    """The version that the first processing of a message added, with the digest and the receipts of its result."""

    number: int
    result_digest: bytes
    receipts: tuple[Receipt, ...]


class AddedVersion(msgspec.Struct, frozen=True):
    """The version that belongs to a change. It is a duplicate if an earlier processing of the message added it."""

    number: int
    duplicate: bool = False


class StateSummary(msgspec.Struct, frozen=True):
    """A state in a list: its key, the number of its newest version, and when that was added."""

    key: str
    number: int
    updated_at: Instant

    @property
    def name(self) -> str:
        """The name by which states are listed."""
        return self.key


@dataclass(frozen=True, slots=True)
class LoadedState:
    """A state as a processor of a message gets it; `version` is None for version 0.

    For a duplicate, `captured` is what the first processing captured, in JSON.
    """

    version: StateVersion | None
    captured: bytes | None = None


def check_change(change: StateChange, newest: int, processed: Processed | None) -> None:
    """Check a change against the newest version and, for a duplicate, against the first processing.

    Refuses with `VersionConflict` a change that was computed from another version than the one before it, and with
    `ResultDiffers` a duplicate that verifies and has another result.
    """
    if processed is None:
        if change.if_version != newest:
            raise VersionConflict(
                f"State {change.key} is at version {newest}; this change was computed from version {change.if_version}.",
                newest,
            )
        return
    base = processed.number - 1
    if change.if_version != base:
        raise VersionConflict(
            f"This message was processed on version {base} of state {change.key}; this change was computed from version "
            f"{change.if_version}. Load the state with before_message.",
            newest,
        )
    if change.verifies and change.result_digest != processed.result_digest:
        raise ResultDiffers(
            f"This result differs from that of the first processing, version {processed.number} of state {change.key}."
        )


NamedSend: TypeAlias = tuple[str, NewMessage]
"""The name of a target, and the message that is sent to it."""


def state_change(state: NextState, message_id: str | None, sends: Iterable[NamedSend] = ()) -> StateChange:
    """Return the change of a state by the processing of a message, with what this processing sends."""
    digest = result_digest(state.value, sends)
    return StateChange(state.key, state.if_version, state.value, state.metadata, message_id, digest, state.verifies)


def result_digest(value: bytes, sends: Iterable[NamedSend]) -> bytes:
    """Return SHA-256 over the value and what is sent: what a deterministic handler produces again.

    Trace contexts do not count, because each processing has its own.
    """
    parts = [value, *(_encode(_comparable(target, message)) for target, message in sends)]
    digest = sha256()
    for part in parts:
        digest.update(b"%d:" % len(part))
        digest.update(part)
    return digest.digest()


_encode = msgspec.msgpack.Encoder().encode


_FIRST_HEADERS = ("content_type", "correlation_id", "subject", "reply_to", "to")


def _comparable(target: str, message: NewMessage) -> tuple[object, ...]:
    """Return what the digest covers of a message. Stored digests were computed over this form, so it must not change.

    It has the texts of the first version even if they are not set, and later ones only if they are.
    """
    envelope = message.envelope
    texts = msgspec.structs.asdict(envelope.headers)
    del texts["traceparent"]
    fields = {
        "message_id": envelope.message_id,
        **{name: texts.pop(name) for name in _FIRST_HEADERS},
        "group_id": envelope.group_id,
        "traceparent": None,
        "properties": envelope.properties,
        **{name: text for name, text in texts.items() if text is not None},
    }
    return target, msgspec.structs.replace(message, envelope=fields)


def output_id(queue: str, message_id: str, index: int, max_length: int) -> str:
    """Return the id of a message that the processing of a message of this queue sends; `index` counts its sends from 0 (S4.14).

    The queue is the one that the message was received from, because the copies of a published message have one id. A
    queue name has no slash, so different origins have different ids.
    """
    return derived_id(f"{queue}/{message_id}", index, max_length)


def derived_id(origin: str, index: int, max_length: int) -> str:
    """Return `origin/index`. If that is too long, the SHA-256 of the origin replaces the origin."""
    readable = f"{origin}/{index}"
    return readable if len(readable) <= max_length else f"{sha256(origin.encode()).hexdigest()}/{index}"
