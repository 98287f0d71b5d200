"""API keys: made, shown once, recognised by their SHA-256, ended.

A principal may hold two live keys, so that one can be rolled over to the other without a gap.
"""

import hashlib
import hmac
import secrets
from dataclasses import dataclass

from app.broker.ports import ApiKeyStore
from app.domain.access import (
    ANONYMOUS,
    KEY_BYTES,
    KEY_PREFIX,
    MAX_LIVE_KEYS_PER_PRINCIPAL,
    ApiKey,
    Grant,
    Principal,
)
from app.domain.instant import Instant
from app.domain.refusals import KeyNotFound, TooManyKeys, Unauthenticated
from app.runtime.cache import Cache
from app.runtime.clock import Clock

CACHE_SECONDS = 5.0
"""How long a revoked key may still work in a process that has just seen it."""

MAX_ENTRIES = 10_000
MAX_SECRET_LENGTH = 256


@dataclass(frozen=True, slots=True)
class NewApiKey:
    """A key just made: the only time its secret is seen."""

    key: ApiKey
    secret: str


def hash_secret(secret: str) -> bytes:
    """What is stored of a secret. A plain hash is enough: 256 random bits cannot be guessed."""
    return hashlib.sha256(secret.encode()).digest()


async def create_key(
    keys: ApiKeyStore, principal: str, grant: Grant, now: Instant, expires_at: Instant | None = None
) -> NewApiKey:
    """Make a key of 256 random bits. Refuses with `TooManyKeys` beside two live ones."""
    secret = KEY_PREFIX + secrets.token_urlsafe(KEY_BYTES)
    return await adopt_key(keys, secret, principal, grant, now, expires_at)


async def adopt_key(
    keys: ApiKeyStore, secret: str, principal: str, grant: Grant, now: Instant, expires_at: Instant | None = None
) -> NewApiKey:
    """Store a key whose secret somebody else made, as an operator does for the first one."""
    key = ApiKey(secrets.token_hex(8), principal, hash_secret(secret), grant, now, expires_at)
    if not await keys.add(key, MAX_LIVE_KEYS_PER_PRINCIPAL):
        raise TooManyKeys
    return NewApiKey(key, secret)


async def revoke_key(keys: ApiKeyStore, key_id: str) -> None:
    """End a key. Refuses with `KeyNotFound`."""
    if not await keys.revoke(key_id):
        raise KeyNotFound(f"There is no live API key {key_id}.")


class Authenticator:
    """Tells who speaks, by the secret of their key; remembers an answer for a few seconds.

    Where `open_without_keys` is set (a server on loopback), callers without a secret are let in as
    `ANONYMOUS` until the first key is made. Keys that have ended keep the door shut.
    """

    def __init__(self, keys: ApiKeyStore, clock: Clock, *, anonymous_without_keys: bool) -> None:
        self._keys = keys
        self._clock = clock
        self._keys_by_hash = Cache(keys.by_hash, clock, ttl_seconds=CACHE_SECONDS, max_size=MAX_ENTRIES)
        self._no_keys_cache = Cache(self._has_no_keys, clock, ttl_seconds=CACHE_SECONDS, max_size=1)
        self._open_without_keys = anonymous_without_keys
        self._used: set[str] = set()

    async def authenticate(self, secret: str | None) -> Principal:
        """The principal of a live key. Refuses with `Unauthenticated`, always with the same words."""
        if secret is None:
            if self._open_without_keys and await self._no_keys_cache.get(None):
                return ANONYMOUS
            raise Unauthenticated
        if len(secret) > MAX_SECRET_LENGTH:
            raise Unauthenticated
        hashed = hash_secret(secret)
        key = await self._keys_by_hash.get(hashed)
        if key is None or not hmac.compare_digest(key.secret_hash, hashed) or not key.is_live(self._clock.now()):
            raise Unauthenticated
        self._used.add(key.id)
        return Principal(key.principal, key.grant, key.id)

    def clear_cache(self) -> None:
        """Keys have changed in this process: look everything up anew."""
        self._keys_by_hash.clear()
        self._no_keys_cache.clear()

    async def record_use(self) -> None:
        """Write down which keys were used since the last time (a background pass, not each request)."""
        used, self._used = self._used, set()
        if used:
            await self._keys.record_use(sorted(used))

    async def close(self) -> None:
        """End the look-ups under way."""
        await self._keys_by_hash.close()
        await self._no_keys_cache.close()

    async def _has_no_keys(self, _key: None) -> bool:
        return not await self._keys.list_all()
