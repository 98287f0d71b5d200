"""The health of a server, for probes."""

from typing import Annotated, Literal

import msgspec


class Liveness(msgspec.Struct):
    """The process answers."""

    status: Literal["alive"] = "alive"


class Readiness(msgspec.Struct):
    """The server accepts requests.

    `lock_store` is `ok` while the lock store answers. It is `degraded` while the lock store does not answer, or while
    another broker uses its prefix; the server then works without it. It is `none` if the server has no Redis
    configured; locks are then kept in the message store alone.
    """

    lock_store: Annotated[str, msgspec.Meta(extra_json_schema={"enum": ["ok", "degraded", "none"]})]
    status: Literal["ready"] = "ready"
    store: Literal["ok"] = "ok"
