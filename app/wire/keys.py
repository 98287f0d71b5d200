"""API keys in requests and responses; the secret is in one response only."""

from typing import Annotated, Any, TypeAlias

import msgspec

from app.domain.access import ApiKey, Grant, Right
from app.domain.instant import Duration, from_seconds, to_seconds
from app.domain.message import MAX_ID_LENGTH
from app.domain.queue import MAX_TTL
from app.wire.field_types import END_OF_TEXT, Timestamp, text_of
from app.wire.times import maybe_to_wire, to_wire

PrincipalName: TypeAlias = Annotated[
    str,
    msgspec.Meta(
        pattern=rf"^[^\x00-\x20\x7f](?:[^\x00-\x1f\x7f]*[^\x00-\x20\x7f])?{END_OF_TEXT}",
        min_length=1,
        max_length=MAX_ID_LENGTH,
        description="Printable, without a space at either end: MariaDB ignores trailing spaces.",
    ),
]
Pattern: TypeAlias = Annotated[str, text_of(r"[A-Za-z0-9._*?-]", min_length=1, max_length=MAX_ID_LENGTH)]


Lifetime: TypeAlias = Annotated[
    float,
    msgspec.Meta(ge=1, le=to_seconds(MAX_TTL), description="How long the key is valid. Default: until it is revoked."),
]


class CreateKey(msgspec.Struct, forbid_unknown_fields=True):
    """The principal of the key and its rights, on queues whose names match a pattern (`*`, `?`)."""

    principal: PrincipalName
    rights: Annotated[list[Right], msgspec.Meta(min_length=1)]
    patterns: Annotated[list[Pattern], msgspec.Meta(min_length=1, max_length=64)] = msgspec.field(
        default_factory=lambda: ["*"]
    )
    expires_in_seconds: Lifetime | None = None

    def grant(self) -> Grant:
        """Return the grant of the key."""
        return Grant(frozenset(self.rights), tuple(self.patterns))

    def lifetime(self) -> Duration | None:
        """Return the lifetime of the key; None: unlimited."""
        return None if self.expires_in_seconds is None else from_seconds(self.expires_in_seconds)


class KeyView(msgspec.Struct, kw_only=True):
    """An API key, without its secret."""

    id: str
    principal: str
    rights: list[Right]
    patterns: list[str]
    created_at: Timestamp
    expires_at: Timestamp | None
    last_used_at: Timestamp | None
    revoked_at: Timestamp | None


class CreatedKey(KeyView, kw_only=True):
    """A new key; `secret` is shown only here."""

    secret: str
    sqs_secret_access_key: str | None


class SqsCredentials(msgspec.Struct):
    """What a client of Amazon SQS signs its requests with."""

    access_key_id: str
    secret_access_key: str | None


class KeyPage(msgspec.Struct):
    """Keys, oldest first; `next_cursor` is null on the last page."""

    items: list[KeyView]
    next_cursor: str | None


def key_view(key: ApiKey) -> KeyView:
    """Build the JSON of a key, without its secret."""
    return KeyView(**_fields(key))


def created_key(key: ApiKey, secret: str, sqs_secret: str | None) -> CreatedKey:
    """Build the JSON of a new key, with its secrets."""
    return CreatedKey(**_fields(key), secret=secret, sqs_secret_access_key=sqs_secret)


def _fields(key: ApiKey) -> dict[str, Any]:
    return {
        "id": key.id,
        "principal": key.principal,
        "rights": sorted(key.grant.rights),
        "patterns": list(key.grant.patterns),
        "created_at": to_wire(key.created_at),
        "expires_at": maybe_to_wire(key.expires_at),
        "last_used_at": maybe_to_wire(key.last_used_at),
        "revoked_at": maybe_to_wire(key.revoked_at),
    }
