"""The health of a server, for probes."""

from typing import Literal

import msgspec

from app.wire.field_types import LockStoreState


class Liveness(msgspec.Struct):
    """The process answers."""

    status: Literal["alive"] = "alive"


class Readiness(msgspec.Struct):
    """The server accepts requests."""

    lock_store: LockStoreState
    status: Literal["ready"] = "ready"
    store: Literal["ok"] = "ok"
