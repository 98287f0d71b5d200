"""Digests that show whether a message is still what its sender said, and whether archived rows are still what ended.

Both are SHA-256 over fields in a fixed order. A field is `-` where it is null, and else its length in octets in decimal,
a colon, and its octets. Thus no two different rows give the same octets. Every engine computes the same, and so can a
reader of a copy.
"""

from collections.abc import Iterable
from hashlib import sha256
from typing import TypeAlias

CONTENT_DIGEST_BYTES = 16

Field: TypeAlias = int | str | bytes | None


def content_digest(message_id: str, group_id: str | None, headers: str | None, body_kind: int, body: bytes) -> bytes:
    """The first 16 bytes of SHA-256 over these fields of a message, in this order, as they are stored.

    No verb in docs/protocol.md changes them. Numbers are in decimal, texts in UTF-8, the body is as it is. Priority, times
    and properties may be edited; the digest of a sealed row covers them.
    """
    # It runs for every message, so the body is not copied.
    identity, kind = message_id.encode(), b"%d" % body_kind
    group, head = _framed(_octets(group_id)), _framed(_octets(headers))
    digest = sha256(b"%d:%b%b%b%d:%b%d:" % (len(identity), identity, group, head, len(kind), kind, len(body)))
    digest.update(body)
    return digest.digest()[:CONTENT_DIGEST_BYTES]


def row_digest(fields: Iterable[Field]) -> str:
    """SHA-256 over the fields of one archived row, in hexadecimal.

    Numbers are in decimal, texts in UTF-8, and bytes in lower-case hexadecimal. In the place of a body stands the
    hexadecimal SHA-256 of it.
    """
    return sha256(b"".join(_framed(_octets(field)) for field in fields)).hexdigest()


def digest_of_rows(row_digests: Iterable[str]) -> str:
    """SHA-256, in hexadecimal, over the digests of rows, each followed by a line feed, in the order given."""
    return sha256(b"".join(b"%s\n" % digest.encode() for digest in row_digests)).hexdigest()


def digest_of_numbers(sequence_numbers: Iterable[int]) -> str:
    """SHA-256, in hexadecimal, over the ascending numbers, each in decimal and followed by a line feed."""
    return sha256(b"".join(b"%d\n" % number for number in sorted(sequence_numbers))).hexdigest()


def _octets(field: Field) -> bytes | None:
    if field is None:
        return None
    return field.hex().encode() if isinstance(field, bytes) else str(field).encode()


def _framed(octets: bytes | None) -> bytes:
    return b"-" if octets is None else b"%d:%s" % (len(octets), octets)
