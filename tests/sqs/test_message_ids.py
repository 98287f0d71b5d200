"""A MessageId and a SequenceNumber are made of the sequence number alone."""

from uuid import RFC_4122, UUID

from hypothesis import given
from hypothesis import strategies as st

from app.sqs.message_ids import message_id_of, sequence_number_text

sequence_numbers = st.integers(1, 2**62 - 1)


@given(sequence_numbers)
def test_an_id_is_a_uuid_of_version_8_that_ends_with_the_sequence_number(number: int) -> None:
    text = message_id_of(number)
    uuid = UUID(text)
    assert (uuid.version, uuid.variant, str(uuid)) == (8, RFC_4122, text)
    assert uuid.int & (2**62 - 1) == number


def test_an_operator_reads_the_sequence_number_in_hexadecimal() -> None:
    assert message_id_of(0xABC123) == "7065656b-6c6f-8000-8000-000000abc123"
    assert message_id_of(2**62 - 1) == "7065656b-6c6f-8000-bfff-ffffffffffff"


@given(sequence_numbers, sequence_numbers)
def test_the_texts_of_sequence_numbers_sort_as_the_numbers(one: int, other: int) -> None:
    first, second = sequence_number_text(one), sequence_number_text(other)
    assert len(first) == len(second) == 20
    assert (first < second) == (one < other)
