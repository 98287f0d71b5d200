"""Access control: rights on patterns of queue names, denied unless granted."""

from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Final, Literal, TypeAlias

import msgspec

from app.domain.instant import Instant
from app.domain.name_ranges import NameRange, ranges_of

MAX_LIVE_KEYS_PER_PRINCIPAL = 2
KEY_BYTES = 32
"""Random bytes of a key. It limits no request."""
KEY_PREFIX = "pk_"
KEY_ID_BYTES = 8
"""Random bytes of the id of a key. It limits no request."""


_KEY_ID_DIGITS = frozenset("0123456789abcdef")


def is_key_id(text: str) -> bool:
    """Return whether a key can have this id: lower-case hexadecimal digits, which every database compares alike."""
    return len(text) == 2 * KEY_ID_BYTES and _KEY_ID_DIGITS.issuperset(text)


class Right(StrEnum):
    """What an API key may allow. `manage` covers settings, purge, redrive, edit, cancel and keys."""

    SEND = "send"
    LISTEN = "listen"
    MANAGE = "manage"
    BROWSE = "browse"


ALL_RIGHTS = frozenset(Right)

ANY_RIGHT: Final = "any"
RequiredRight: TypeAlias = Right | Literal["any"] | None
"""The right that a call needs. `ANY_RIGHT` is one right on one queue, which every live key holds; None needs no key."""


@dataclass(frozen=True, slots=True)
class Grant:
    """Rights on every queue whose name matches one of the patterns (`*` and `?`, case-sensitive)."""

    rights: frozenset[Right]
    patterns: tuple[str, ...] = ("*",)

    def allows(self, right: Right, name: str | None) -> bool:
        """Return whether the right is granted on the name; None asks for every name (`*`)."""
        if right not in self.rights:
            return False
        if "*" in self.patterns:
            return True
        return name is not None and any(fnmatchcase(name, pattern) for pattern in self.patterns)

    def ranges(self, right: Right) -> tuple[NameRange, ...]:
        """Return the ranges of names that may be listed with the right; none if they cannot be listed."""
        return ranges_of(("*",) if "*" in self.patterns else self.patterns) if right in self.rights else ()


class Principal(msgspec.Struct, frozen=True):
    """The caller of a request: a name and its grant."""

    name: str
    grant: Grant
    key_id: str | None = None


@dataclass(frozen=True, slots=True)
class ApiKey:
    """An API key as it is stored: never the secret itself, only its SHA-256."""

    id: str
    principal: str
    secret_hash: bytes
    grant: Grant
    created_at: Instant
    expires_at: Instant | None = None
    last_used_at: Instant | None = None
    revoked_at: Instant | None = None

    def is_live(self, now: Instant) -> bool:
        """Return whether the key is neither revoked nor expired."""
        return self.revoked_at is None and (self.expires_at is None or self.expires_at > now)


@dataclass(frozen=True, slots=True)
class ReadKey:
    """A stored key, and when it was read, by the store's clock."""

    key: ApiKey
    read_at: Instant


ANONYMOUS = Principal("anonymous", Grant(ALL_RIGHTS))
"""The caller on a loopback server without API keys."""
