"""Attributes that SQS does not allow are refused with a sentence that names them."""

from __future__ import annotations

import pytest

from app.domain.refusals import InvalidRequest, Refusal
from app.sqs.errors import InvalidMessageContents, aws_error
from app.sqs.message_attributes import properties_of_attributes
from app.sqs.shapes.messages import AttributeValue
from tests.sqs.attributes import binary, number, string
from tests.walks import for_each


def refusal(name: str, attribute: AttributeValue) -> Refusal:
    with pytest.raises(InvalidRequest) as refused:
        properties_of_attributes({"fine": string("x"), name: attribute})
    return refused.value


@for_each("name", ["a", "A" * 128, "a.b.c", "_", "-", "0", "AWS", "AWSs.a", "Amazon", "b.AWS.a", "AWS-a", "all"])
def test_names_that_sqs_allows_are_accepted(name: str) -> None:
    assert properties_of_attributes({name: string("x")}) == {name: "x"}


@for_each(
    "name",
    [
        "",
        "a" * 129,
        "a:b",
        "a b",
        "a\n",
        "é",
        "٣",
        ".a",
        "a.",
        "a..b",
        "AWS.a",
        "aws.a",
        "aWs.TraceHeader",
        "Amazon.a",
        "AMAZON.a",
        "sqs:attributes",
        "dead_letter_queue",
        "\x00",
    ],
    ids=ascii,
)
def test_names_that_sqs_does_not_allow_are_refused(name: str) -> None:
    refused = refusal(name, string("x"))
    assert ascii(name)[:100] in refused.detail
    assert refused.detail.isprintable()
    assert aws_error(refused).code == "InvalidParameterValue"


def test_a_refusal_repeats_the_first_100_characters_of_a_name() -> None:
    refused = refusal("x" * 100_000, string("x"))
    assert f"'{'x' * 100} [...]'" in refused.detail
    assert "x" * 101 not in refused.detail


@for_each("data_type", ["String.a", "String.a.b", "String." + "x" * 249, "String.é", "String..", "String. "])
def test_a_label_has_any_text_of_xml(data_type: str) -> None:
    assert properties_of_attributes({"a": string("x", data_type)})["a"] == "x"


@for_each(
    "data_type",
    [
        "",
        "string",
        "Text",
        "Strings",
        "StringList",
        ".String",
        "String.",
        "String\n",
        "String.\x00",
        "Number.\ud800",
        "String." + "x" * 250,
    ],
    ids=ascii,
)
def test_other_types_are_refused(data_type: str) -> None:
    refused = refusal("named", string("x", data_type))
    assert "'named'" in refused.detail
    assert "String, Number or Binary" in refused.detail
    assert aws_error(refused).code == "InvalidParameterValue"


def value(data_type: str, text: str | None, encoded: str | None) -> AttributeValue:
    return AttributeValue(data_type=data_type, string_value=text, binary_value=encoded)


@for_each(
    ("attribute", "sentence"),
    [
        (value("String", None, None), "must have StringValue"),
        (value("String", None, "eA=="), "must have StringValue"),
        (value("String", "x", "eA=="), "must have StringValue"),
        (value("Number.int", None, "eA=="), "must have StringValue"),
        (value("Number", "5", ""), "must have StringValue"),
        (value("Binary", "eA==", None), "must have BinaryValue"),
        (value("Binary", "eA==", "eA=="), "must have BinaryValue"),
        (value("Binary", "", "eA=="), "must have BinaryValue"),
        (value("Binary.gif", None, None), "must have BinaryValue"),
        (value("String", "", None), "not empty"),
        (value("Number", "", None), "not empty"),
        (value("Binary", None, ""), "not empty"),
        (value("Binary", None, "eA"), "not base64"),
        (value("Binary", None, "eA==="), "not base64"),
        (value("Binary", None, "e A=="), "not base64"),
        (value("Binary", None, "eA==\n"), "not base64"),
        (value("Binary", None, "_-8="), "not base64"),
        (value("Binary", None, "é"), "not base64"),
        (value("Binary", None, "="), "not base64"),
    ],
    ids=str,
)
def test_an_attribute_has_exactly_the_value_of_its_type(attribute: AttributeValue, sentence: str) -> None:
    refused = refusal("named", attribute)
    assert "'named'" in refused.detail
    assert sentence in refused.detail
    assert aws_error(refused).code == "InvalidParameterValue"


@for_each(
    "text",
    [
        "0",
        "-0",
        "0.00",
        ".5",
        "5.",
        "9" * 38,
        "-" + "9" * 38,
        "0." + "9" * 38,
        "1" + "0" * 126,
        "1e126",
        "-1E+126",
        "1e-128",
        "0" * 200 + "1",
        "0e999",
        "0." + "0" * 127 + "1",
    ],
)
def test_numbers_that_sqs_allows_are_accepted(text: str) -> None:
    properties_of_attributes({"a": number(text)})


@for_each(
    "text",
    [
        "x",
        " 5",
        "5 ",
        "5\n",
        "1,5",
        "1_000",
        "--5",
        "0x10",
        ".",
        "e5",
        "1e",
        "1e5.0",
        "nan",
        "inf",
        "-Infinity",
        "٣",
        "9" * 39,
        "0." + "9" * 39,
        "1e127",
        "-2e126",
        "1.1e126",
        "9e-129",
        "1e999",
        "1e-9999999",
        "1e9999999",
        "0" * 256 + "1",
        "1" * 100_000,
    ],
    ids=lambda text: ascii(text[:40]),
)
def test_other_numbers_are_refused(text: str) -> None:
    refused = refusal("named", number(text))
    assert "'named' is not a number" in refused.detail
    assert aws_error(refused).code == "InvalidParameterValue"


@for_each("text", ["\x00", "a\x1b", "\ufffe", "\uffff", "\ud800", "\x0b"], ids=ascii)
def test_characters_that_xml_does_not_allow_are_invalid_contents(text: str) -> None:
    refused = refusal("named", string(text, "String.x"))
    assert isinstance(refused, InvalidMessageContents)
    assert "'named'" in refused.detail


def test_a_binary_value_has_any_bytes() -> None:
    properties_of_attributes({"a": binary(bytes(range(256)))})
