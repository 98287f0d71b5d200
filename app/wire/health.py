"""How a server is, for those who watch it."""

from typing import Annotated, Literal

import msgspec


class Liveness(msgspec.Struct):
    """The process answers."""

    status: Literal["alive"] = "alive"


class Readiness(msgspec.Struct):
    """The server takes work.

    Its lock store answers (`ok`), or is left alone (`degraded`) while it does not, or while another broker has its
    prefix, or there is none (`none`), because no Redis was named for this server. Without one, locks are kept in the
    message store alone.
    """

    lock_store: Annotated[str, msgspec.Meta(extra_json_schema={"enum": ["ok", "degraded", "none"]})]
    status: Literal["ready"] = "ready"
    store: Literal["ok"] = "ok"
