"""The health of a server, for probes."""

from typing import Annotated, Literal

import msgspec


class Liveness(msgspec.Struct):
    """The process answers."""

    status: Literal["alive"] = "alive"


class Readiness(msgspec.Struct):
    """The server accepts requests."""

    lock_store: Annotated[str, msgspec.Meta(extra_json_schema={"enum": ["ok", "degraded", "none"]})]
    status: Literal["ready"] = "ready"
    store: Literal["ok"] = "ok"
