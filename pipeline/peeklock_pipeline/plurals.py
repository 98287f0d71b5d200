"""Words that depend on a number."""


def messages(count: int) -> str:
    """Say how many messages there are: "1 message", "2 messages"."""
    return _counted(count, "message", "messages")


def batches(count: int) -> str:
    """Say how many batches there are."""
    return _counted(count, "batch", "batches")


def queues(count: int) -> str:
    """Say how many queues there are."""
    return _counted(count, "queue", "queues")


def _counted(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"
