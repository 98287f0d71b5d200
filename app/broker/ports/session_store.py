"""The store of sessions."""

from typing import Protocol

from app.domain.access import ReadKey
from app.domain.session import Session


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
