"""Sessions: sign in with an API key, recognise the session by SHA-256, sign out.

A session is a secret of 256 random bits that stands for one API key. It ends at the sign-out, after `SESSION_DURATION`,
or when its key is no longer live.
"""

import secrets

from app.broker.access.keys import Authenticator, LiveKeys, hash_secret
from app.broker.ports.access import SessionStore
from app.domain.access import Principal
from app.domain.refusals import Unauthenticated
from app.domain.session import SESSION_BYTES, SESSION_DURATION, Session
from app.runtime.clock import Clock

_CACHE_SECONDS = 2.0
"""How long a session may still work in another process after the sign-out, or after its key was revoked."""


class Sessions:
    """Identifies people by the secret of their session and caches each result for a few seconds."""

    def __init__(self, sessions: SessionStore, authenticator: Authenticator, clock: Clock) -> None:
        self._sessions = sessions
        self._authenticator = authenticator
        self._clock = clock
        self._live_keys = LiveKeys(sessions.key_of, clock, _CACHE_SECONDS)
        authenticator.on_cleared = self._live_keys.clear

    async def sign_in(self, api_key: str) -> str:
        """Start a session of the principal of this API key; return the secret of the session.

        Refuses with `Unauthenticated`.
        """
        principal = await self._authenticator.authenticate(api_key)
        if principal.key_id is None:
            raise Unauthenticated
        secret = secrets.token_urlsafe(SESSION_BYTES)
        now = self._clock.now()
        await self._sessions.add(Session(hash_secret(secret), principal.key_id, now, now + SESSION_DURATION))
        return secret

    async def find(self, secret: str) -> Principal:
        """Return the principal of a session. Refuses with `Unauthenticated` if it or its key is not live."""
        key = await self._live_keys.find(hash_secret(secret))
        if key is None:
            raise Unauthenticated
        return self._authenticator.principal_of(key)

    async def sign_out(self, secret: str) -> None:
        """End a session; harmless if it has ended."""
        secret_hash = hash_secret(secret)
        await self._sessions.delete(secret_hash)
        self._live_keys.forget(secret_hash)

    async def close(self) -> None:
        """Stop the lookups in progress."""
        await self._live_keys.close()
