"""Reads the texts of attributes: whole numbers, booleans, and words of a list."""

from collections.abc import Collection

from app.sqs.errors import InvalidAttributeValue

_MAX_DIGITS = 10


def whole_number(name: str, text: str, least: int, most: int) -> int:
    """Return the number that this text has in ASCII digits.

    Refuses with `InvalidAttributeValue` a text that is no such number, and a number outside these bounds.
    """
    is_number = text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS
    if not is_number or not least <= int(text) <= most:
        raise InvalidAttributeValue(f"{name} must be a whole number from {least} to {most}.")
    return int(text)


def boolean(name: str, text: str) -> bool:
    """Return whether this text is `true`. Refuses with `InvalidAttributeValue` one that is neither `true` nor `false`."""
    return one_of(name, text, ("true", "false")) == "true"


def boolean_of_any_case(name: str, text: str) -> bool:
    """Return whether this text is `true`, also in capital letters: MassTransit writes `True`, and SNS accepts it.

    Refuses as `boolean` does.
    """
    return boolean(name, text.lower())


def one_of(name: str, text: str, allowed: Collection[str]) -> str:
    """Return this text. Refuses it with `InvalidAttributeValue` if it is not one of those allowed."""
    if text not in allowed:
        raise InvalidAttributeValue(f"{name} must be {' or '.join(allowed)}.")
    return text
