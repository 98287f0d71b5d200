"""API keys, and the sessions of people."""

from collections.abc import Sequence
from typing import Protocol

from app.domain.access import ApiKey, ReadKey
from app.domain.session import Session


class ApiKeyStore(Protocol):
    """The API keys."""

    async def add(self, key: ApiKey, max_live: int) -> bool:
        """Store a key unless its principal has `max_live` live keys; return whether its secret is stored now.

        A secret that is already stored stays unchanged, live or not: if several servers adopt the same one, all
        succeed.
        """
        ...

    async def by_hash(self, secret_hash: bytes) -> ReadKey | None:
        """Return the key whose secret has this SHA-256, live or not; None if there is none."""
        ...

    async def by_id(self, key_id: str) -> ReadKey | None:
        """Return the key with this id, live or not; None if there is none."""
        ...

    async def list_all(self) -> list[ApiKey]:
        """Return every key, oldest first."""
        ...

    async def revoke(self, key_id: str) -> bool:
        """Revoke a key now; return whether a live key of this id existed. If not, the synchronous standbys know it too."""
        ...

    async def record_use(self, key_ids: Sequence[str]) -> None:
        """Store the current time as the last use of these keys."""
        ...

    async def has_live(self) -> bool:
        """Return whether any live key exists."""
        ...


class SessionStore(Protocol):
    """The sessions of people who have signed in."""

    async def add(self, session: Session) -> None:
        """Store a session, and delete those that have expired."""
        ...

    async def key_of(self, secret_hash: bytes) -> ReadKey | None:
        """Return the API key of the session with this hash, or None if no session has it or it has expired.

        The key may have been revoked meanwhile.
        """
        ...

    async def delete(self, secret_hash: bytes) -> None:
        """Delete the session with this hash, if it exists."""
        ...
