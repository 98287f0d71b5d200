"""Numbers with their nouns in sentences for people."""


def count_of(number: int, one: str, many: str | None = None) -> str:
    """Write a number with what it counts: `1 message`, `2,000 messages`.

    `many` is the plural where it is not `one` with an s, as in `count_of(2, "entry", "entries")`. A verb may follow either.
    """
    return f"{number:,} {one if number == 1 else many or one + 's'}"
