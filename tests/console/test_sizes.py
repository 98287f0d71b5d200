"""Sizes are read as people write them, and written so that they are read again as the same."""

import random

import pytest

from app.console.sizes import NoSize, exact_size_text, parse_size, size_text
from tests.console.console_server import ConsoleServer
from tests.console.test_queue_settings import form_fields

SETTINGS = "/queues/orders/settings"


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1 MiB", 1 << 20),
        ("256 KiB", 256 << 10),
        ("256kib", 256 << 10),
        ("1.5 MiB", 3 << 19),
        ("2 GiB", 2 << 30),
        ("17 B", 17),
        ("1 byte", 1),
        ("1,048,576 bytes", 1 << 20),
        ("1048576", 1 << 20),
        ("0", 0),
        ("  8   KiB ", 8 << 10),
    ],
)
def test_a_size_is_read_as_people_write_it(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "Write a size such as 256 KiB"),
        ("large", "Write a size such as 256 KiB"),
        ("-1", "Write a size such as 256 KiB"),
        ("1,5 MiB", "Write a size such as 256 KiB"),
        ("1,04,576", "Write a size such as 256 KiB"),
        ("1 MiB 5 KiB", "Write a size such as 256 KiB"),
        ("٣ KiB", "Write a size such as 256 KiB"),
        ("1 KiB" + " " * 30 + "x", "Write a size such as 256 KiB"),
        ("64 kB", "kB is ambiguous. A KiB is 1,024 bytes"),
        ("1 M", "M is ambiguous."),
        ("1 MiBs", "MiBs is not a unit of size. Did you mean `mib`?"),
        ("1 parsec", "parsec is not a unit of size. Write"),
        ("1.5 B", "A size is a whole number of bytes."),
        ("0.0001 KiB", "A size is a whole number of bytes."),
    ],
)
def test_what_is_no_size_is_refused_with_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(NoSize) as refused:
        parse_size(text)
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"), (1000, "1,000 B"), (1024, "1 KiB"), (1025, "1,025 B"), (1536, "1.5 KiB"), (1 << 20, "1 MiB"),
        (100 << 20, "100 MiB"), (1_000_000, "1,000,000 B"), (5 << 28, "1.25 GiB"), ((1 << 20) + 1024, "1025 KiB"),
    ],
)  # fmt: skip
def test_a_size_is_written_in_its_largest_unit(size: int, text: str) -> None:
    assert size_text(size) == text


def test_a_size_that_was_written_is_read_as_the_same() -> None:
    numbers = random.Random(7)
    for size in (
        numbers.randrange(1 << numbers.randrange(1, 44)) << numbers.choice((0, 8, 10, 20)) for _ in range(2000)
    ):
        assert parse_size(size_text(size)) == size


def test_the_exact_number_of_bytes_is_beside_a_size() -> None:
    assert [exact_size_text(size) for size in (1, 700, 1000_000, 1 << 18)] == [
        "1 byte", "700 bytes", "1,000,000 bytes", "256 KiB (262,144 bytes)",
    ]  # fmt: skip


async def test_a_setting_form_reads_and_shows_sizes(console: ConsoleServer) -> None:
    await console.api.request("PUT", "/queues/orders", {"max_message_bytes": 256 << 10})
    page = await console.page(SETTINGS)
    assert 'value="256 KiB"' in page
    assert ">262,144 bytes</span>" in page
    fields = form_fields(page)
    preview = await console.http.post(f"/console{SETTINGS}", data={**fields, "max_message_bytes": "128 KiB"})
    assert "256 KiB (262,144 bytes)" in preview.text
    assert "128 KiB (131,072 bytes)" in preview.text
    confirmed = {**form_fields(preview.text), "confirmed": "true"}
    await console.following(await console.http.post(f"/console{SETTINGS}", data=confirmed))
    assert (await console.api.request_json("GET", "/queues/orders"))["max_message_bytes"] == 128 << 10


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("64 kB", "kB is ambiguous."),
        ("900 GiB", "This is too large or too small. From 1 byte to"),
        ("0", "This is too large or too small. From 1 byte to"),
    ],
)
async def test_a_size_that_is_refused_says_why_at_its_field(console: ConsoleServer, text: str, sentence: str) -> None:
    response = await console.post("/new-queue", name="orders", max_message_bytes=text)
    assert response.status_code == 422
    assert 'id="fault-max_message_bytes"' in response.text
    assert sentence in response.text
    assert f'value="{text}"' in response.text
