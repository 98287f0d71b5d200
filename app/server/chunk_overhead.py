"""Bounds what a chunked body costs besides its content: chunk sizes, extensions, trailer fields, and the chunks themselves."""

BYTES_PER_CHUNK = 32
"""Average bytes that a chunk may have besides its content. Its size takes up to 20 of them."""

MAX_SMALL_CHUNKS = 16_384
"""Chunks that a body may have in addition to one for every `MIN_BYTES_PER_CHUNK` of its content."""

MIN_BYTES_PER_CHUNK = 64
"""Bytes of content that allow a body one more chunk. Reading them costs far less than reading a chunk."""


class ChunkOverhead:
    """The chunks that one request may still have, and the bytes that they may have besides their content.

    After the head it replaces the list to which the parser appends header fields. Fields there are trailer fields: it
    counts and drops them, because none may act as a header field (RFC 9110, 6.5.1).
    """

    __slots__ = ("_chunk_credit", "_fields", "_framing")

    def __init__(self, allowed: int) -> None:
        self._fields = allowed
        self._framing = allowed
        self._chunk_credit = MAX_SMALL_CHUNKS * MIN_BYTES_PER_CHUNK

    @property
    def is_exceeded(self) -> bool:
        """Whether the bytes besides the content exceed their limit."""
        return self._fields < 0 or self._framing < 0

    @property
    def has_too_many_chunks(self) -> bool:
        """Whether the chunks are too many for their content."""
        return self._chunk_credit < 0

    def append(self, field: tuple[bytes, bytes]) -> None:
        """Count and drop a trailer field."""
        name, value = field
        self._fields -= len(name) + len(value)

    def begin_chunk(self) -> None:
        """Allow the overhead of one more chunk."""
        self._framing += BYTES_PER_CHUNK
        self._chunk_credit -= MIN_BYTES_PER_CHUNK

    def count(self, framing: int, content: int) -> None:
        """Count received bytes."""
        self._framing -= framing
        self._chunk_credit += content
