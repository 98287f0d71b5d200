"""Looks up live API keys by a hash, and caches each for a few seconds."""

from collections.abc import Callable, Coroutine
from math import inf
from typing import Any, TypeAlias

from app.domain.access import ApiKey, ReadKey
from app.domain.instant import to_seconds
from app.runtime.cache import Cache
from app.runtime.clock import Clock

_MAX_ENTRIES = 10_000

ReadByHash: TypeAlias = Callable[[bytes], Coroutine[Any, Any, ReadKey | None]]


class LiveKeys:
    """Finds live keys by the hash that `read` takes: that of a key's secret, or that of a session.

    A key expires by the store's clock. The time that remains is counted on the process's monotonic clock from before the
    store was read, as that of locks is, so a key never counts as live for too long.
    """

    def __init__(self, read: ReadByHash, clock: Clock, cache_seconds: float) -> None:
        self._read = read
        self._clock = clock
        self._cache = Cache(self._load, clock, ttl_seconds=cache_seconds, max_size=_MAX_ENTRIES)

    async def find(self, hashed: bytes) -> ApiKey | None:
        """Return the key with this hash; None if it is unknown, revoked or expired."""
        found = await self._cache.get(hashed)
        return found[0] if found is not None and self._clock.monotonic() < found[1] else None

    def forget(self, hashed: bytes) -> None:
        """Read the key with this hash again at its next use."""
        self._cache.forget(hashed)

    def clear(self) -> None:
        """Read every key again at its next use."""
        self._cache.clear()

    async def close(self) -> None:
        """Stop the reads in progress."""
        await self._cache.close()

    async def _load(self, hashed: bytes) -> tuple[ApiKey, float] | None:
        """Return a key, and when it expires on the monotonic clock."""
        read_started_at = self._clock.monotonic()
        found = await self._read(hashed)
        if found is None or found.key.revoked_at is not None:
            return None
        expires_at = found.key.expires_at
        return found.key, inf if expires_at is None else read_started_at + to_seconds(expires_at - found.read_at)
