"""Digests that show whether a message is unchanged since it was sent, and archived rows since they ended.

Both are SHA-256 over fields in a fixed order. A field is `-` where it is null, and else its length in octets in
decimal, a colon, and its octets. So two different rows never give the same octets. Every engine computes the same
digest, and so can a reader of a copy.
"""

from collections.abc import Iterable
from hashlib import sha256
from typing import TypeAlias

_CONTENT_DIGEST_BYTES = 16

Field: TypeAlias = int | str | bytes | None


def content_digest(message_id: str, group_id: str | None, headers: str | None, body_kind: int, body: bytes) -> bytes:
    """Return the first 16 bytes of SHA-256 over these fields of a message, in this order, as they are stored.

    No verb in docs/protocol.md changes them. Numbers are in decimal, texts in UTF-8, the body is as it is. Priority,
    times and properties may be edited; the digest of a sealed row covers them.
    """
    # The body is not copied, because this runs for every message.
    identity, kind = message_id.encode(), b"%d" % body_kind
    group = b"-" if group_id is None else _framed(group_id.encode())
    head = b"-" if headers is None else _framed(headers.encode())
    digest = sha256(b"%d:%b%b%b%d:%b%d:" % (len(identity), identity, group, head, len(kind), kind, len(body)))
    digest.update(body)
    return digest.digest()[:_CONTENT_DIGEST_BYTES]


def row_digest(fields: Iterable[Field]) -> str:
    """Return SHA-256 over the fields of one archived row, in hexadecimal.

    Numbers are in decimal, texts in UTF-8, and bytes in lower-case hexadecimal. A body is replaced by its hexadecimal
    SHA-256.
    """
    return sha256(b"".join(_octets(field) for field in fields)).hexdigest()


def digest_of_rows(row_digests: Iterable[str]) -> str:
    """Return SHA-256, in hexadecimal, over the digests of rows, each followed by a line feed, in the order given."""
    return sha256(b"".join([b"%b\n" % digest.encode() for digest in row_digests])).hexdigest()


def digest_of_numbers(sequence_numbers: Iterable[int]) -> str:
    """Return SHA-256, in hexadecimal, over the ascending numbers, each in decimal and followed by a line feed."""
    return sha256(b"".join(b"%d\n" % number for number in sorted(sequence_numbers))).hexdigest()


def _octets(field: Field) -> bytes:
    if field is None:
        return b"-"
    return _framed(field.hex().encode() if isinstance(field, bytes) else str(field).encode())


def _framed(octets: bytes) -> bytes:
    return b"%d:%b" % (len(octets), octets)
