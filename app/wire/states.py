"""Versioned states in requests and responses."""

from typing import Annotated, Literal, TypeAlias

import msgspec

from app.domain.message import MAX_BATCH_COUNT
from app.domain.refusals import invalid_at
from app.domain.state import (
    MAX_METADATA_BYTES,
    MAX_VALUE_BYTES,
    NO_VERSION,
    LoadedState,
    NextState,
    VersionSummary,
)
from app.domain.work_unit import WorkUnitResult
from app.wire.execution import SendEntry
from app.wire.field_types import MAX_INT64, AnyJson, Id, QueueName, Timestamp
from app.wire.sending import SentMessage, sent_message
from app.wire.times import to_wire

NULL = msgspec.Raw(b"null")
DEFAULT_PAGE_SIZE = 20
MAX_PAGE_SIZE = 100
"""Versions on a page of the history, each with up to `MAX_METADATA_BYTES`."""

StateKey: TypeAlias = QueueName
"""The key of a state has the form of a queue's name, so patterns of rights match both."""

VersionNumber: TypeAlias = Annotated[
    int, msgspec.Meta(ge=0, le=MAX_INT64, description="Versions count from 1; 0 is the state without any version.")
]
Captured: TypeAlias = Annotated[
    msgspec.Raw,
    msgspec.Meta(
        description="Any JSON value: what the processing read besides message and state, such as the time, random "
        "numbers and the version of its logic."
    ),
]


class StateBody(msgspec.Struct, forbid_unknown_fields=True):
    """The next version of a state, computed from version `if_version`."""

    key: StateKey
    if_version: VersionNumber
    value: AnyJson
    metadata: Captured | msgspec.UnsetType = msgspec.UNSET

    def next_state(self, pointer: str, *, verifies: bool = False) -> NextState:
        """Return the next state. Refuses values above the limits, with pointers below `pointer`."""
        value = bytes(self.value)
        metadata = b"null" if self.metadata is msgspec.UNSET else bytes(self.metadata)
        if len(value) > MAX_VALUE_BYTES:
            raise invalid_at(f"{pointer}/value", f"A state has at most {MAX_VALUE_BYTES} bytes of JSON.")
        if len(metadata) > MAX_METADATA_BYTES:
            raise invalid_at(f"{pointer}/metadata", f"Metadata has at most {MAX_METADATA_BYTES} bytes of JSON.")
        return NextState(self.key, self.if_version, value, metadata, verifies)


class CommitState(StateBody, kw_only=True, forbid_unknown_fields=True):
    """The next version of a state. With `verify`, a duplicate whose value or sends differ from the first is refused."""

    verify: bool = False


class CommitLock(msgspec.Struct, forbid_unknown_fields=True):
    """The results of processing a message: what is sent, and the next version of a state."""

    sends: Annotated[list[SendEntry], msgspec.Meta(max_length=MAX_BATCH_COUNT)] = []
    state: CommitState | None = None


class Committed(msgspec.Struct):
    """The message is completed. `version` is the one that its processing added, null without a state.

    `duplicate` means that the message was processed before: nothing was sent, and `sends` are those of that time.
    """

    outcome: Literal["completed"]
    version: int | None
    sends: list[SentMessage]
    replayed: bool
    duplicate: bool


class ReadState(msgspec.Struct, forbid_unknown_fields=True):
    """Which version to read; the newest one by default."""

    version: Annotated[VersionNumber, msgspec.Meta(description="Read this version.")] | None = None
    before_message: (
        Annotated[Id, msgspec.Meta(description="Read the version on which this message was, or is to be, processed.")]
        | None
    ) = None


class StateView(msgspec.Struct):
    """A version of a state. Version 0 has no value.

    `message_id` is null once the version before it was removed. `duplicate` means that `before_message` was processed
    before, and `captured` has the metadata of that processing.
    """

    key: str
    version: int
    value: AnyJson
    metadata: Captured
    message_id: str | None
    updated_at: Timestamp | None
    duplicate: bool
    captured: Captured


class BrowseHistory(msgspec.Struct, forbid_unknown_fields=True):
    """Which versions to list."""

    after: Annotated[VersionNumber, msgspec.Meta(description="Only versions with greater numbers.")] = NO_VERSION
    limit: Annotated[int, msgspec.Meta(ge=1, le=MAX_PAGE_SIZE, description="The largest number of versions.")] = (
        DEFAULT_PAGE_SIZE
    )
    cursor: Annotated[str, msgspec.Meta(max_length=256, description="`next_cursor` of the previous page.")] | None = (
        None
    )


class VersionView(msgspec.Struct):
    """A version of a state without its value."""

    version: int
    metadata: Captured
    message_id: str | None
    updated_at: Timestamp
    value_bytes: int


class VersionPage(msgspec.Struct):
    """Versions by number; `next_cursor` is null on the last page."""

    items: list[VersionView]
    next_cursor: str | None


def committed(result: WorkUnitResult, *, replayed: bool) -> Committed:
    """Build the JSON of a commit."""
    version = result.versions[0].number if result.versions else None
    sends = [sent_message(receipt) for receipt in result.receipts]
    return Committed("completed", version, sends, replayed, result.is_duplicate)


def state_view(key: str, loaded: LoadedState) -> StateView:
    """Build the JSON of a version."""
    version, is_duplicate = loaded.version, loaded.captured is not None
    captured = msgspec.Raw(loaded.captured or b"null")
    if version is None:
        return StateView(key, NO_VERSION, NULL, NULL, None, None, is_duplicate, captured)
    return StateView(
        key,
        version.number,
        msgspec.Raw(version.value),
        msgspec.Raw(version.metadata),
        version.message_id,
        to_wire(version.created_at),
        is_duplicate,
        captured,
    )


def version_view(summary: VersionSummary) -> VersionView:
    """Build the JSON of a version without its value."""
    return VersionView(
        summary.number,
        msgspec.Raw(summary.metadata),
        summary.message_id,
        to_wire(summary.created_at),
        summary.value_bytes,
    )
