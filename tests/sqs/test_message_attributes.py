"""Message attributes become properties, and the same attributes come back."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from app.sqs.message_attributes import (
    EVERY_ATTRIBUTE,
    TYPES_PROPERTY,
    attributes_of_properties,
    properties_of_attributes,
    selection_of,
)
from app.sqs.shapes.messages import AnsweredValue, AttributeValue
from app.wire.field_types import PropertyValue
from app.wire.properties import encode_properties, properties_of
from tests.sqs.attributes import ATTRIBUTES, MESSAGE_ATTRIBUTES, binary, number, string
from tests.walks import for_each

Properties = dict[str, PropertyValue]


def plain(attributes: dict[str, AttributeValue] | dict[str, AnsweredValue]) -> Any:
    """The type and the values of each attribute, of what was sent or of what was answered."""
    return {
        name: (attribute.data_type, attribute.string_value, attribute.binary_value)
        for name, attribute in attributes.items()
    }


def answered(properties: Properties) -> Any:
    return plain(attributes_of_properties(properties))


# ---- there and back --------------------------------------------------------------------------------------------------


@given(MESSAGE_ATTRIBUTES)
def test_attributes_come_back_exactly_from_stored_properties(attributes: dict[str, AttributeValue]) -> None:
    stored = encode_properties(properties_of_attributes(attributes), "")
    assert answered(properties_of(stored)) == plain(attributes)


@given(ATTRIBUTES)
def test_each_attribute_has_a_property_of_its_name(attribute: AttributeValue) -> None:
    properties = properties_of_attributes({"a": attribute})
    assert "a" in properties
    assert properties.keys() <= {"a", TYPES_PROPERTY}


@for_each(
    ("attribute", "value"),
    [
        (string("text"), "text"),
        (string("5"), "5"),
        (number("5"), 5),
        (number("-9223372036854775808"), -(2**63)),
        (number("1.99"), 1.99),
        (number("1e16"), 1e16),
    ],
    ids=str,
)
def test_what_json_says_exactly_needs_no_second_property(attribute: AttributeValue, value: Any) -> None:
    properties = properties_of_attributes({"a": attribute})
    assert properties == {"a": value}
    assert type(properties["a"]) is type(value)


@for_each(
    ("attribute", "value", "kept"),
    [
        (number("5", "Number.int"), 5, "Number.int"),
        (string("x", "String.uuid"), "x", "String.uuid"),
        (binary(b"\x00\xff"), "AP8=", "Binary"),
        (number("1.10"), 1.1, ["Number", "1.10"]),
        (number("007", "Number.agent"), 7, ["Number.agent", "007"]),
        (number("+5"), 5, ["Number", "+5"]),
        (number("-0"), 0, ["Number", "-0"]),
        (number("1E3"), 1000.0, ["Number", "1E3"]),
        (number("9223372036854775808"), "9223372036854775808", "Number"),
        (number("10000000000000000000000"), 1e22, ["Number", "10000000000000000000000"]),
        (number("0.1234567890123456789"), "0.1234567890123456789", "Number"),
    ],
    ids=str,
)
def test_what_json_does_not_say_is_kept_beside_it(attribute: AttributeValue, value: Any, kept: Any) -> None:
    properties = properties_of_attributes({"a": attribute})
    types = properties.pop(TYPES_PROPERTY)
    assert properties == {"a": value}
    assert type(properties["a"]) is type(value)
    assert isinstance(types, str)
    assert json.loads(types) == {"a": kept}


# ---- properties of other senders -------------------------------------------------------------------------------------


def test_native_properties_come_as_strings_and_numbers() -> None:
    properties: Properties = {"text": "x", "count": 3, "rate": 0.5, "yes": True, "no": False}
    assert answered(properties) == {
        "text": ("String", "x", None),
        "count": ("Number", "3", None),
        "rate": ("Number", "0.5", None),
        "yes": ("String", "true", None),
        "no": ("String", "false", None),
    }


@for_each(
    ("name", "value"),
    [
        ("a", None),
        ("a", ""),
        ("a", "\x00"),
        ("a:b", "x"),
        ("a b", "x"),
        (".a", "x"),
        ("AWS.a", "x"),
        ("dead_letter_queue", "orders"),
        (TYPES_PROPERTY, "{}"),
    ],
)
def test_what_sqs_cannot_have_is_left_out(name: str, value: PropertyValue) -> None:
    assert answered({name: value, "other": "x"}) == {"other": ("String", "x", None)}


# ---- properties that were changed after the send ---------------------------------------------------------------------


@for_each(
    ("attribute", "changed", "expected"),
    [
        (number("1.10"), 1.2, ("Number", "1.2", None)),
        (number("1.10"), "1.10", ("String", "1.10", None)),
        (number("1.00"), True, ("String", "true", None)),
        (number("1.10", "Number.price"), 1.2, ("Number", "1.2", None)),
        (number("5", "Number.int"), 6, ("Number.int", "6", None)),
        (number("5", "Number.int"), 1e300, ("Number.int", "1e300", None)),
        (number("5", "Number.int"), "six", ("String", "six", None)),
        (number("5", "Number.int"), False, ("String", "false", None)),
        (number("9223372036854775808"), "1e999999", ("String", "1e999999", None)),
        (string("x", "String.uuid"), "y", ("String.uuid", "y", None)),
        (string("x", "String.uuid"), 5, ("Number", "5", None)),
        (string("x", "String.uuid"), True, ("String", "true", None)),
        (binary(b"x"), "not base64", ("String", "not base64", None)),
        (binary(b"x"), "eQ==", ("Binary", None, "eQ==")),
        (binary(b"x"), 5, ("Number", "5", None)),
    ],
    ids=str,
)
def test_the_value_of_a_changed_property_wins(attribute: AttributeValue, changed: PropertyValue, expected: Any) -> None:
    assert answered({**properties_of_attributes({"a": attribute}), "a": changed}) == {"a": expected}


@for_each("changed", [None, ""])
def test_an_attribute_whose_property_was_emptied_is_left_out(changed: PropertyValue) -> None:
    for attribute in (number("1.10"), string("x", "String.uuid"), binary(b"x")):
        assert answered({**properties_of_attributes({"a": attribute}), "a": changed}) == {}


def test_an_attribute_whose_property_was_removed_is_left_out() -> None:
    properties = properties_of_attributes({"a": number("1.10"), "b": string("x")})
    del properties["a"]
    assert answered(properties) == {"b": ("String", "x", None)}


@for_each(
    "types",
    [
        5,
        True,
        None,
        "",
        "{",
        "[]",
        '{"a": 5}',
        '{"a": ["Number"]}',
        '{"a": "List"}',
        '{"a": "String."}',
        '{"a": "Binary"}',
        '{"a": "String.' + "x" * 250 + '"}',
        '{"a": "String.\\u0000"}',
        '{"a": ["Number", "x"]}',
        '{"a": ["Number", ""]}',
        '{"a": ["Number", "1e99999999"]}',
        '{"a": ["String", "y"]}',
        '{"a": ["Binary", "eQ=="]}',
    ],
)
def test_types_that_a_native_sender_has_made_up_have_no_effect(types: PropertyValue) -> None:
    assert answered({"a": "x", TYPES_PROPERTY: types}) == {"a": ("String", "x", None)}


@given(
    st.dictionaries(
        st.text(min_size=1, max_size=3) | st.just("a"), st.none() | st.booleans() | st.text() | st.integers()
    ),
    st.text() | st.dictionaries(st.text(), st.text() | st.lists(st.text(), max_size=3)).map(json.dumps),
)
def test_any_properties_have_an_answer(properties: Properties, types: str) -> None:
    for attribute in attributes_of_properties({**properties, TYPES_PROPERTY: types}).values():
        assert attribute.string_value or attribute.binary_value


# ---- selection -------------------------------------------------------------------------------------------------------

SENT: Properties = {"Help.Me": "Me", "Hello": "There", "General": "Kenobi"}


@for_each(
    ("names", "expected"),
    [
        (["All"], {"Help.Me", "Hello", "General"}),
        (["*"], {"Help.Me", "Hello", "General"}),
        ([".*"], {"Help.Me", "Hello", "General"}),
        (["Foo", "Help"], set[str]()),
        (["Hello", "General"], {"Hello", "General"}),
        (["Foo", "Hello"], {"Hello"}),
        (["Hel.*"], {"Help.Me", "Hello"}),
        (["AWS."], set[str]()),
        (["..foo"], set[str]()),
        (["Foo", "Gen.*", "Hello"], {"General", "Hello"}),
        (["hello", "all"], set[str]()),
    ],
)
def test_names_select_as_in_recorded_answers_of_sqs(names: list[str], expected: set[str]) -> None:
    selection = selection_of(names)
    assert selection is not None
    assert attributes_of_properties(SENT, selection).keys() == expected


def test_without_names_no_attribute_is_asked_for() -> None:
    assert selection_of(()) is None
    assert selection_of(("All", "Hello")) == EVERY_ATTRIBUTE


def test_the_answer_is_encoded_with_the_members_of_sqs() -> None:
    assert msgspec.json.encode(attributes_of_properties({"a": 1})) == b'{"a":{"DataType":"Number","StringValue":"1"}}'
