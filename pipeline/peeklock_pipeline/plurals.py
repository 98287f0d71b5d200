"""Counted nouns in singular or plural."""


def messages(count: int) -> str:
    """Return a count of messages: "1 message", "2 messages"."""
    return _counted(count, "message", "messages")


def batches(count: int) -> str:
    """Return a count of batches."""
    return _counted(count, "batch", "batches")


def queues(count: int) -> str:
    """Return a count of queues."""
    return _counted(count, "queue", "queues")


def files(count: int) -> str:
    """Return a count of files."""
    return _counted(count, "file", "files")


def size(count: int) -> str:
    """Return a count of bytes."""
    return _counted(count, "byte", "bytes")


def _counted(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"
