"""API keys: create, show once, recognise by SHA-256, revoke.

A principal may hold two live keys, so that it can change from one to the other without an outage.
"""

import hashlib
import hmac
import secrets
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from math import inf
from typing import Any, Generic, TypeAlias, TypeVar

from app.broker.ports.access import ApiKeyStore
from app.domain.access import (
    ANONYMOUS,
    KEY_BYTES,
    KEY_ID_BYTES,
    KEY_PREFIX,
    MAX_LIVE_KEYS_PER_PRINCIPAL,
    ApiKey,
    Grant,
    Principal,
    ReadKey,
    is_key_id,
)
from app.domain.instant import Instant, to_seconds
from app.domain.refusals import KeyNotFound, TooManyKeys, Unauthenticated
from app.runtime.cache import Cache
from app.runtime.clock import Clock

CACHE_SECONDS = 5.0
"""How long a revoked key may still work in a process that has just used it."""

MAX_SECRET_LENGTH = 256

_MAX_CACHED_KEYS = 10_000

Name = TypeVar("Name", bound=bytes | str)
ReadByName: TypeAlias = Callable[[Name], Coroutine[Any, Any, ReadKey | None]]


@dataclass(frozen=True, slots=True)
class NewApiKey:
    """A new key with its secret, which is never shown again."""

    key: ApiKey
    secret: str


def hash_secret(secret: str) -> bytes:
    """Return the hash that is stored for a secret. A plain hash is enough: 256 random bits cannot be guessed."""
    return hashlib.sha256(secret.encode()).digest()


async def create_key(
    keys: ApiKeyStore, principal: str, grant: Grant, now: Instant, expires_at: Instant | None = None
) -> NewApiKey:
    """Create a key of 256 random bits. Refuses with `TooManyKeys` if the principal has two live keys."""
    secret = KEY_PREFIX + secrets.token_urlsafe(KEY_BYTES)
    return await adopt_key(keys, secret, principal, grant, now, expires_at)


async def adopt_key(
    keys: ApiKeyStore, secret: str, principal: str, grant: Grant, now: Instant, expires_at: Instant | None = None
) -> NewApiKey:
    """Store a key with a given secret: an operator provides the secret of the first key.

    Refuses with `TooManyKeys`.
    """
    key = ApiKey(secrets.token_hex(KEY_ID_BYTES), principal, hash_secret(secret), grant, now, expires_at)
    if not await keys.add(key, MAX_LIVE_KEYS_PER_PRINCIPAL):
        raise TooManyKeys
    return NewApiKey(key, secret)


async def get_key(keys: ApiKeyStore, key_id: str) -> ApiKey:
    """Return a key, live or not. Refuses with `KeyNotFound`."""
    if not is_key_id(key_id):
        raise KeyNotFound
    found = await keys.by_id(key_id)
    if found is None:
        raise KeyNotFound(f"There is no API key {key_id}.")
    return found.key


async def revoke_key(keys: ApiKeyStore, key_id: str) -> None:
    """Revoke a key. Refuses with `KeyNotFound`."""
    if not is_key_id(key_id):
        raise KeyNotFound
    if not await keys.revoke(key_id):
        raise KeyNotFound(f"There is no live API key {key_id}.")


class LiveKeys(Generic[Name]):
    """Finds live keys by the name that `read` takes: the hash of a key's secret or of a session, or the id of a key.

    A key expires by the store's clock. The time that remains is counted on the process's monotonic clock from before the
    store was read, as that of locks is, so a key never counts as live for too long.
    """

    def __init__(self, read: ReadByName[Name], clock: Clock, cache_seconds: float) -> None:
        self._read = read
        self._clock = clock
        self._cache = Cache(self._load, clock, ttl_seconds=cache_seconds, max_size=_MAX_CACHED_KEYS)

    async def find(self, name: Name) -> ApiKey | None:
        """Return the key with this name; None if it is unknown, revoked or expired."""
        found = await self._cache.get(name)
        return found[0] if found is not None and self._clock.monotonic() < found[1] else None

    def forget(self, name: Name) -> None:
        """Read the key with this name again at its next use."""
        self._cache.forget(name)

    def clear(self) -> None:
        """Read every key again at its next use."""
        self._cache.clear()

    async def close(self) -> None:
        """Stop the reads in progress."""
        await self._cache.close()

    async def _load(self, name: Name) -> tuple[ApiKey, float] | None:
        """Return a key, and when it expires on the monotonic clock."""
        read_started_at = self._clock.monotonic()
        found = await self._read(name)
        if found is None or found.key.revoked_at is not None:
            return None
        expires_at = found.key.expires_at
        return found.key, inf if expires_at is None else read_started_at + to_seconds(expires_at - found.read_at)


class Authenticator:
    """Identifies callers by the secret or by the id of their API key and caches each result for a few seconds.

    With `anonymous_without_keys` (a server on loopback), callers without a secret are `ANONYMOUS` until the first key
    is created. An expired or revoked key does not reopen the server.
    """

    def __init__(self, keys: ApiKeyStore, clock: Clock, *, anonymous_without_keys: bool) -> None:
        self._keys = keys
        self._live_keys: LiveKeys[bytes | str] = LiveKeys(self._read, clock, CACHE_SECONDS)
        self._no_keys_cache = Cache(self._has_no_keys, clock, ttl_seconds=CACHE_SECONDS, max_size=1)
        self._anonymous_without_keys = anonymous_without_keys
        self._used_key_ids: set[str] = set()
        self.on_cleared: Callable[[], None] = _do_nothing
        """Called when keys have changed in this process."""

    async def authenticate(self, secret: str | None) -> Principal:
        """Return the principal of a live key. Refuses with `Unauthenticated`, with the same text for every cause."""
        if secret is None:
            if await self.is_open():
                return ANONYMOUS
            raise Unauthenticated
        if len(secret) > MAX_SECRET_LENGTH:
            raise Unauthenticated
        hashed = hash_secret(secret)
        key = await self._live_keys.find(hashed)
        if key is None or not hmac.compare_digest(key.secret_hash, hashed):
            raise Unauthenticated
        return self.principal_of(key)

    async def is_open(self) -> bool:
        """Return whether callers need no key."""
        return self._anonymous_without_keys and await self._no_keys_cache.get(None) is True

    async def find_key(self, key_id: str) -> ApiKey | None:
        """Return the live key with this id; None if it is unknown, revoked or expired.

        It proves nothing about the caller, who has to prove that it knows the secret of the key.
        """
        return await self._live_keys.find(key_id) if is_key_id(key_id) else None

    def principal_of(self, key: ApiKey) -> Principal:
        """Return the principal of a live key, which it uses now, also through a session."""
        self._used_key_ids.add(key.id)
        return Principal(key.principal, key.grant, key.id)

    def clear_cache(self) -> None:
        """Clear the caches after keys have changed in this process."""
        self._live_keys.clear()
        self._no_keys_cache.clear()
        self.on_cleared()

    async def record_use(self) -> None:
        """Store which keys were used since the last call (from a background loop, not for each request)."""
        used, self._used_key_ids = self._used_key_ids, set()
        if not used:
            return
        try:
            await self._keys.record_use(sorted(used))
        except BaseException:
            # The next call stores them.
            self._used_key_ids |= used
            raise

    async def close(self) -> None:
        """Stop the lookups in progress."""
        await self._live_keys.close()
        await self._no_keys_cache.close()

    async def _read(self, name: bytes | str) -> ReadKey | None:
        return await (self._keys.by_id(name) if isinstance(name, str) else self._keys.by_hash(name))

    async def _has_no_keys(self, _key: None) -> bool:
        return not await self._keys.list_all()


def _do_nothing() -> None:
    """No listener is set."""
