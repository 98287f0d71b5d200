"""Bounds the bytes of a chunked body besides its content: chunk sizes, extensions and trailer fields."""

BYTES_PER_CHUNK = 32
"""Average bytes that a chunk may have besides its content. Its size takes up to 20 of them."""


class ChunkOverhead:
    """The bytes that the chunks of one request may still have besides their content.

    After the head it replaces the list to which the parser appends header fields. Fields there are trailer fields: it
    counts and drops them, because none may act as a header field (RFC 9110, 6.5.1).
    """

    __slots__ = ("_fields", "_framing")

    def __init__(self, allowed: int) -> None:
        self._fields = allowed
        self._framing = allowed

    @property
    def is_exceeded(self) -> bool:
        """Whether the chunks exceed the limit."""
        return self._fields < 0 or self._framing < 0

    def append(self, field: tuple[bytes, bytes]) -> None:
        """Count and drop a trailer field."""
        name, value = field
        self._fields -= len(name) + len(value)

    def begin_chunk(self) -> None:
        """Allow the overhead of one more chunk."""
        self._framing += BYTES_PER_CHUNK

    def count_framing(self, size: int) -> None:
        """Count received bytes that are not content."""
        self._framing -= size
