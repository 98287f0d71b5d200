"""Sessions of people who have signed in with an API key, so that a browser does not keep the key itself."""

from dataclasses import dataclass

from app.domain.instant import HOUR, Duration, Instant

SESSION_DURATION: Duration = 12 * HOUR
"""A session ends with a working day, or when its API key is revoked or expires, or at the sign-out."""

SESSION_BYTES = 32
"""Random bytes of a session. It limits no request."""


@dataclass(frozen=True, slots=True)
class Session:
    """A session as it is stored: the SHA-256 of its secret, and the key that it stands for."""

    secret_hash: bytes
    key_id: str
    created_at: Instant
    expires_at: Instant
