"""Derives the secret with which a client signs requests of the SQS interface."""

import hashlib
import hmac
from base64 import urlsafe_b64encode
from functools import lru_cache
from typing import Final

from app.domain.access import ApiKey

_MAX_CACHED_SECRETS: Final = 1024
"""Secrets of the keys that sign most. Each request needs that of its key."""


def maybe_signing_secret(server_secret: str | None, key: ApiKey) -> str | None:
    """Return the signing secret of an API key; None if the servers have no secret from which to derive it."""
    return None if server_secret is None else signing_secret(server_secret, key)


def signing_secret(server_secret: str, key: ApiKey) -> str:
    """Return the signing secret of an API key: base64url without padding, of 256 bits.

    A signature can be verified only with the secret itself, and the server keeps no secrets of keys. So this one is
    derived from the stored hash of the key and from the secret of the servers. Nothing new is stored, and
    neither the database nor the setting suffices alone. Another server secret changes the signing secrets of all keys.
    """
    return _derived(server_secret, key.id, key.secret_hash)


@lru_cache(maxsize=_MAX_CACHED_SECRETS)
def _derived(server_secret: str, key_id: str, secret_hash: bytes) -> str:
    digest = hmac.digest(server_secret.encode(), key_id.encode() + secret_hash, hashlib.sha256)
    return urlsafe_b64encode(digest).rstrip(b"=").decode()
