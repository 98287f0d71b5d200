"""Words that depend on a number."""


def messages(count: int) -> str:
    """Say how many messages there are: "1 message", "2 messages"."""
    return "1 message" if count == 1 else f"{count} messages"
