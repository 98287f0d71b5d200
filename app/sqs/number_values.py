"""Attributes of type Number: texts of decimal numbers, which become numbers of JSON where these have the same value."""

import re
from decimal import Decimal

import msgspec

from app.wire.field_types import MAX_INT64, MIN_INT64

_MAX_DIGITS = 38
"""Digits of precision, without zeros at the beginning and the end."""
_MAX_LENGTH = 256
"""Characters of a number. Two more than the longest one that is written without an exponent and without needless zeros."""
_SMALLEST, _LARGEST = Decimal("1e-128"), Decimal("1e126")
NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")

_encode = msgspec.json.Encoder().encode


def is_number(text: str) -> bool:
    """Return whether SQS takes a text as a number: at most 38 digits of precision, between 10^-128 and 10^126."""
    if len(text) > _MAX_LENGTH or not NUMBER.fullmatch(text):
        return False
    number = Decimal(text)
    digits = "".join(map(str, number.as_tuple().digits)).rstrip("0")
    return len(digits) <= _MAX_DIGITS and (not number or _SMALLEST <= number.copy_abs() <= _LARGEST)


def property_of_number(text: str) -> int | float | str:
    """Return the number of JSON with exactly the value of a number; its text if JSON has none, as for 20 digits.

    A rounded number would be another number, such as an id that does not exist.
    """
    number = Decimal(text)
    if text.lstrip("+-").isdigit() and MIN_INT64 <= number <= MAX_INT64:
        return int(text)
    rounded = float(text)
    return rounded if Decimal(repr(rounded)) == number else text


def text_of_number(number: float) -> str:
    """Return how JSON writes a number."""
    return _encode(number).decode()
