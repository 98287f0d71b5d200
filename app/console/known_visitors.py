"""Who has looked at pages lately, kept in memory for the time in which the database cannot say it."""

from dataclasses import dataclass

from app.broker.access.keys import hash_secret
from app.domain.access import Principal
from app.runtime.clock import Clock

KEPT_SECONDS = 3600.0
"""How long a visitor stays known without an answer of the database."""

MAX_VISITORS = 1000
"""Visitors that are kept, the newest: each has a hash and a principal."""


@dataclass(frozen=True, slots=True)
class KnownVisitor:
    """A visitor as the database has last described them."""

    principal: Principal
    is_signed_in: bool


class KnownVisitors:
    """The visitors by the secrets in their cookies, of which only hashes are kept."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._by_hash: dict[bytes, tuple[float, KnownVisitor]] = {}

    def remember(self, secret: str, visitor: KnownVisitor) -> None:
        """Keep a visitor whom the database has just described. The oldest is dropped if there are too many."""
        hashed = hash_secret(secret)
        self._by_hash.pop(hashed, None)
        self._by_hash[hashed] = (self._clock.monotonic() + KEPT_SECONDS, visitor)
        if len(self._by_hash) > MAX_VISITORS:
            del self._by_hash[next(iter(self._by_hash))]

    def forget(self, secret: str) -> None:
        """Drop a visitor: the session has ended."""
        self._by_hash.pop(hash_secret(secret), None)

    def forget_key(self, key_id: str | None) -> None:
        """Drop everyone who has signed in with a key: it was revoked. None drops those without a key."""
        self._by_hash = {
            hashed: (expires_at, visitor)
            for hashed, (expires_at, visitor) in self._by_hash.items()
            if visitor.principal.key_id != key_id
        }

    def find(self, secret: str) -> KnownVisitor | None:
        """Return a visitor, None for one who was not served within the last hour."""
        expires_at, visitor = self._by_hash.get(hash_secret(secret), (0.0, None))
        return visitor if self._clock.monotonic() < expires_at else None
