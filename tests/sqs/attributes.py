"""Message attributes for tests, and strategies for all that SQS allows."""

from __future__ import annotations

from base64 import b64encode
from decimal import Decimal

from hypothesis import strategies as st

from app.domain.dead_letters import SOURCE_PROPERTY
from app.sqs.shapes.messages import AttributeValue


def string(value: str, data_type: str = "String") -> AttributeValue:
    return AttributeValue(data_type=data_type, string_value=value)


def number(value: str, data_type: str = "Number") -> AttributeValue:
    return AttributeValue(data_type=data_type, string_value=value)


def binary(value: bytes, data_type: str = "Binary") -> AttributeValue:
    return AttributeValue(data_type=data_type, binary_value=b64encode(value).decode())


WORDS = st.text("ABCxyz019_-", min_size=1, max_size=5)
NAMES = (
    st.lists(WORDS, min_size=1, max_size=4)
    .map(".".join)
    .filter(lambda name: not name.lower().startswith(("aws.", "amazon.")) and name != SOURCE_PROPERTY)
)
TEXTS = st.text(
    st.characters(exclude_categories=("Cc", "Cs"), exclude_characters="\ufffe\uffff") | st.sampled_from("\t\r\n")
)
LABELS = st.just("") | TEXTS.filter(bool).map(lambda label: f".{label[:200]}")
DIGITS = st.text("0123456789", min_size=1, max_size=19)
NUMBERS = st.one_of(
    st.integers(-(10**38) + 1, 10**38 - 1).map(str),
    st.integers(-(2**63) - 2, -(2**63) + 2).map(str),
    st.integers(2**63 - 2, 2**63 + 2).map(str),
    st.floats(allow_nan=False, allow_infinity=False)
    .filter(lambda value: not value or Decimal("1e-128") <= Decimal(repr(abs(value))) <= Decimal("1e126"))
    .map(repr),
    st.tuples(
        st.sampled_from(["", "+", "-"]),
        DIGITS,
        st.just("") | DIGITS.map(".{}".format) | st.just("."),
        st.just("") | st.integers(-99, 99).map("e{}".format) | st.integers(0, 99).map("E+{:02}".format),
    ).map("".join),
)
ATTRIBUTES = st.one_of(
    st.builds(lambda value, label: string(value, f"String{label}"), TEXTS.filter(bool), LABELS),
    st.builds(lambda value, label: number(value, f"Number{label}"), NUMBERS, LABELS),
    st.builds(lambda value, label: binary(value, f"Binary{label}"), st.binary(min_size=1, max_size=40), LABELS),
)
MESSAGE_ATTRIBUTES = st.dictionaries(NAMES, ATTRIBUTES, max_size=10)
