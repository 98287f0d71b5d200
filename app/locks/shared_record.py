"""The highest values that the processes of a broker have seen, in Redis or for a single process."""

from collections.abc import Mapping

from app.locks.lua_scripts import RAISE
from app.locks.redis_connection import RedisConnection, ScriptCall
from app.locks.redis_keys import RedisKeys

SEEN_SECONDS = 30 * 86_400
"""How long Redis keeps the values after the last process has ended: longer than it takes to restore a lost database."""


class MemorySharedRecord:
    """Implements `SharedRecord` for a process without others."""

    async def raise_to(self, seen: Mapping[str, int]) -> Mapping[str, int]:
        """Return what this process has seen."""
        return seen


class RedisSharedRecord:
    """Implements `SharedRecord`."""

    def __init__(self, connection: RedisConnection, keys: RedisKeys) -> None:
        self._connection = connection
        self._key = keys.seen()

    async def raise_to(self, seen: Mapping[str, int]) -> Mapping[str, int]:
        """See `SharedRecord`."""
        fields = [text for name, value in seen.items() for text in (name, value)]
        (reply,) = await self._connection.run([ScriptCall(RAISE, [self._key], [SEEN_SECONDS, *fields])])
        if not isinstance(reply, bytes):
            return {}
        words = reply.decode().split()
        return dict(zip(words[::2], map(int, words[1::2]), strict=True))
