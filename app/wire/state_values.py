"""The next version of a state in requests: of a commit, and of a work unit."""

from typing import Annotated, TypeAlias

import msgspec

from app.domain.refusals import invalid_at
from app.domain.state import MAX_METADATA_BYTES, MAX_VALUE_BYTES, NextState
from app.wire.field_types import MAX_INT64, AnyJson, QueueName

StateKey: TypeAlias = QueueName
"""The key of a state has the form of a queue's name, so patterns of rights match both."""

VersionNumber: TypeAlias = Annotated[
    int, msgspec.Meta(ge=0, le=MAX_INT64, description="Versions count from 1; 0 means that the key has no version.")
]
Captured: TypeAlias = Annotated[
    msgspec.Raw,
    msgspec.Meta(
        description="Any JSON value: what the processing read besides the message and the state, such as the time, "
        "random numbers and the version of its code."
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
