"""Signs requests as the specification Standard Webhooks says: HMAC-SHA256 over the id, the time and the body."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence

from peeklock_client.push.errors import InvalidPush

SECRET_VARIABLE = "PEEKLOCK_PUSH_SECRET"
PREFIX = "whsec_"
VERSION = "v1"
MIN_SECRET_BYTES, MAX_SECRET_BYTES = 24, 64
"""The sizes that Standard Webhooks requires."""

MAX_SECRETS = 2
"""The new one and the old one, while a secret is changed."""


def secrets_of(text: str) -> tuple[bytes, ...]:
    """Return the keys in a text such as `whsec_...`, or two of them with a space or a comma between.

    Raises `InvalidPush`, whose text does not show the secrets.
    """
    words = text.replace(",", " ").split()
    if not words:
        raise InvalidPush(
            f"Set {SECRET_VARIABLE} to the secret that signs the requests: {PREFIX} and 24 to 64 bytes in base64."
        )
    if len(words) > MAX_SECRETS:
        raise InvalidPush(f"{SECRET_VARIABLE} has {len(words)} secrets. At most two sign a request.")
    return tuple(map(_key_of, words))


def _key_of(word: str) -> bytes:
    try:
        key = base64.b64decode(word.removeprefix(PREFIX), validate=True) if word.startswith(PREFIX) else b""
    except (binascii.Error, ValueError):
        key = b""
    if not MIN_SECRET_BYTES <= len(key) <= MAX_SECRET_BYTES:
        raise InvalidPush(f"A secret of {SECRET_VARIABLE} is not {PREFIX} with 24 to 64 bytes in base64.")
    return key


def signatures(secrets: Sequence[bytes], webhook_id: str, timestamp: int, body: bytes) -> str:
    """Return the value of `webhook-signature`: one signature for each secret, with spaces between."""
    signed = f"{webhook_id}.{timestamp}.".encode() + body
    digests = (hmac.new(key, signed, hashlib.sha256).digest() for key in secrets)
    return " ".join(f"{VERSION},{base64.b64encode(digest).decode()}" for digest in digests)


def webhook_id(kind: str, *parts: object) -> str:
    """Return an id for these parts: the same for the same parts, and without a full stop, which the signature uses."""
    text = "\n".join(map(str, parts))
    return f"{kind}_{hashlib.sha256(text.encode()).hexdigest()[:32]}"
