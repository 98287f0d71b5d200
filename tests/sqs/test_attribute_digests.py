"""The MD5 of attributes is the one that SDKs compute."""

from __future__ import annotations

import struct
from base64 import b64decode
from hashlib import md5

from hypothesis import given

from app.sqs.message_attributes import attributes_of_properties, md5_of_attributes, properties_of_attributes
from app.sqs.shapes.messages import AttributeValue
from tests.sqs.attributes import MESSAGE_ATTRIBUTES, binary, number, string
from tests.walks import for_each

ADDRESS = {"City": string("Any City"), "PostalCode": string("99065"), "Region": string("WA")}
STORE = {"SellerName": string("Example Store")}


@for_each(
    ("attributes", "expected"),
    [
        # answers of SQS that the tests of LocalStack have recorded
        (
            {"Help.Me": string("Me"), "Hello": string("There"), "General": string("Kenobi")},
            "4c360f3fdafd970e05fae2f149d997f5",
        ),
        ({"Hello": string("There"), "General": string("Kenobi")}, "fca026605781cb4126a1e9044df24232"),
        ({"Hello": string("There")}, "a311262e065454b75da111d535b8dacd"),
        ({"Foo": string("Bar")}, "ae7155c6026991b6d54b11589678bf9c"),
        # samples of YDB and of other clients
        (
            {
                "test_attribute_name_2": string("test_attribute_value_2"),
                "test_attribute_name_1": string("test_attribute_value_1"),
            },
            "d53f3b558fe951154770f25cb63dbba9",
        ),
        ({"test_attribute_name": binary(b"test_attribute_value")}, "23f6bd27ea87aab7dfeadcc9aebee495"),
        ({"ordinal": number("1"), "category": string("test")}, "d21ae90c49061e927f57df5f5d72be1f"),
        ({**STORE, **ADDRESS, "PricePerGallon": number("1.99")}, "10809b55e3d9b22c17220b7dbaf283ef"),
    ],
)
def test_published_digests_are_met(attributes: dict[str, AttributeValue], expected: str) -> None:
    assert md5_of_attributes(attributes) == expected
    assert md5_of_attributes(attributes_of_properties(properties_of_attributes(attributes))) == expected


def documented(attributes: dict[str, AttributeValue]) -> str:
    """The algorithm of the guide, written a second time."""
    buffer = bytearray()
    for name, attribute in sorted(attributes.items()):
        is_binary = attribute.data_type.startswith("Binary")
        value = b64decode(attribute.binary_value or "") if is_binary else (attribute.string_value or "").encode("utf-8")
        for index, part in enumerate((name.encode("utf-8"), attribute.data_type.encode("utf-8"), value)):
            if index == 2:
                buffer.append(2 if is_binary else 1)
            buffer += struct.pack(">I", len(part)) + part
    return md5(buffer).hexdigest()


@given(MESSAGE_ATTRIBUTES.filter(bool))
def test_any_attributes_have_the_documented_digest_when_sent_and_when_received(
    attributes: dict[str, AttributeValue],
) -> None:
    expected = documented(attributes)
    assert md5_of_attributes(attributes) == expected
    assert md5_of_attributes(attributes_of_properties(properties_of_attributes(attributes))) == expected


def test_a_message_without_attributes_has_no_digest() -> None:
    assert md5_of_attributes({}) is None
