"""Versioned states in requests and responses."""

from typing import Annotated, Literal

import msgspec

from app.domain.message import MAX_BATCH_COUNT
from app.domain.state import NO_VERSION, LoadedState, VersionSummary
from app.domain.work_unit import WorkUnitResult
from app.wire.execution import MAX_PUBLISHES, PublishEntry, SendEntry
from app.wire.field_types import AnyJson, Id, Timestamp
from app.wire.sending import SentMessage
from app.wire.state_values import Captured, StateBody, VersionNumber
from app.wire.times import to_wire

NULL = msgspec.Raw(b"null")
DEFAULT_PAGE_SIZE = 20
MAX_PAGE_SIZE = 100
"""Versions on a page of the history, each with up to `MAX_METADATA_BYTES`."""


class CommitState(StateBody, kw_only=True, forbid_unknown_fields=True):
    """The next version of a state."""

    verify: bool = False


class CommitLock(msgspec.Struct, forbid_unknown_fields=True):
    """The results of processing a message: what is sent and published, and the next version of a state."""

    sends: Annotated[list[SendEntry], msgspec.Meta(max_length=MAX_BATCH_COUNT)] = []
    publishes: Annotated[list[PublishEntry], msgspec.Meta(max_length=MAX_PUBLISHES)] = []
    state: CommitState | None = None


class CommittedMessage(msgspec.Struct):
    """The message is completed, and everything that its processing adds is stored."""

    outcome: Literal["completed"]
    version: int | None
    sends: list[SentMessage]
    replayed: bool
    duplicate: bool


class ReadState(msgspec.Struct, forbid_unknown_fields=True):
    """Which version to read; the newest one by default."""

    version: Annotated[VersionNumber, msgspec.Meta(description="Read this version.")] | None = None
    before_message: (
        Annotated[
            Id,
            msgspec.Meta(description="Read the version to process this message on, even if it was processed before."),
        ]
        | None
    ) = None


class StateView(msgspec.Struct):
    """A version of a state."""

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


def committed(result: WorkUnitResult, *, replayed: bool) -> CommittedMessage:
    """Build the JSON of a commit."""
    version = result.versions[0].number if result.versions else None
    sends = [SentMessage.of(receipt) for receipt in result.receipts]
    return CommittedMessage("completed", version, sends, replayed, result.is_duplicate)


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
