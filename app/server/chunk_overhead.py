"""Bounds what a chunked body carries besides its content: sizes, extensions and trailer fields."""

BYTES_PER_CHUNK = 32
"""Bytes besides its content that each chunk may have on average: its size takes up to 20 of them."""


class ChunkOverhead:
    """What the chunks of one request may still have besides their content.

    It stands where a parser appends header fields once the head has ended. Those are trailer fields: it counts them
    and drops them, because none of them may act as a header field (RFC 9110, 6.5.1).
    """

    __slots__ = ("_fields", "_framing")

    def __init__(self, allowed: int) -> None:
        self._fields = allowed
        self._framing = allowed

    @property
    def is_exceeded(self) -> bool:
        """Whether the chunks have more than they may."""
        return self._fields < 0 or self._framing < 0

    def append(self, field: tuple[bytes, bytes]) -> None:
        """Drop a trailer field."""
        name, value = field
        self._fields -= len(name) + len(value)

    def begin_chunk(self) -> None:
        """One more chunk."""
        self._framing += BYTES_PER_CHUNK

    def count_framing(self, size: int) -> None:
        """Count bytes that arrived and are not content."""
        self._framing -= size
