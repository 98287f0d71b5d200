"""Durations are read as people write them, and written so that they are read again as the same."""

import random
import re

import pytest

from app.console.durations import UNITS, NoDuration, duration_text, parse_duration, rounded_duration_text
from app.domain.instant import DAY, HOUR, MINUTE, SECOND
from app.domain.queue import MAX_TTL
from tests.walks import for_each


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("30 s", 30 * SECOND),
        ("30s", 30 * SECOND),
        ("2 min", 2 * MINUTE),
        ("2 Minutes", 2 * MINUTE),
        ("5m", 5 * MINUTE),
        ("7 d", 7 * DAY),
        ("1 w", 7 * DAY),
        ("1 h 30 min", 90 * MINUTE),
        ("1h30m", 90 * MINUTE),
        ("1 day, 2 hours", 26 * HOUR),
        ("1.5 h", 90 * MINUTE),
        ("0.1 s", SECOND // 10),
        ("250 ms", SECOND // 4),
        ("0.001 ms", 1),
        ("0", 0),
        ("0 s", 0),
        ("  30   s ", 30 * SECOND),
    ],
)
def test_a_duration_is_read_as_people_write_it(text: str, duration: int) -> None:
    assert parse_duration(text) == duration


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "Write a duration such as 30 s"),
        ("soon", "Write a duration such as 30 s"),
        ("-5 s", "Write a duration such as 30 s"),
        ("1,5 h", "This number has no unit. Write `1 s`"),
        ("30", "This number has no unit. Write `30 s`, `30 min`, `30 h` or `30 d`."),
        ("1 h 30", "This number has no unit."),
        ("0 5 ms", "This number has no unit."),
        ("0 h 0", "This number has no unit."),
        ("3 minuts", "minuts is no unit of time. Did you mean `minutes`?"),
        ("3 M", "M is no unit of time."),
        ("2 months", "months is no unit of time."),
        ("30 min 1 h", "the largest first"),
        ("1 h 2 h", "Write each unit once"),
        ("0.0001 ms", "The smallest unit"),
        ("1 h,", "Write a duration such as 30 s"),
        ("1 h 30 min " * 10, "Write a duration such as 30 s"),
        ("٣ s", "Write a duration such as 30 s"),
        ("1 s; 2 s", "Write a duration such as 30 s"),
        ("1e3 s", "e is no unit of time."),
    ],
)
def test_a_text_that_is_no_duration_is_refused_with_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(NoDuration, match=re.escape(sentence)):
        parse_duration(text)


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (0, "0 s"),
        (1, "0.001 ms"),
        (SECOND // 4, "250 ms"),
        (3 * SECOND // 2, "1.5 s"),
        (30 * SECOND, "30 s"),
        (120 * SECOND, "2 min"),
        (90 * MINUTE, "1 h 30 min"),
        (7 * DAY, "7 d"),
        (DAY + 1, "1 d 0.000001 s"),
    ],
)
def test_a_duration_is_written_in_few_units(duration: int, text: str) -> None:
    assert duration_text(duration) == text


def test_every_duration_is_read_again_as_it_was_written() -> None:
    chance = random.Random(17)
    for digits in range(1, len(str(MAX_TTL)) + 1):
        for _ in range(100):
            duration = min(chance.randrange(10**digits), MAX_TTL)
            assert parse_duration(duration_text(duration)) == duration


@for_each("word", sorted(UNITS))
def test_every_word_for_a_unit_is_read(word: str) -> None:
    assert parse_duration(f"3 {word}") == 3 * UNITS[word]


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (1_234_567, "1.2 s"),
        (12_345, "12 ms"),
        (59_990_000, "1 min"),
        (61_600_000, "1 min 2 s"),
        (HOUR + 31 * SECOND, "1 h 1 min"),
        (DAY + HOUR + 1, "1 d 1 h"),
    ],
)
def test_a_drawing_has_rounded_durations(duration: int, text: str) -> None:
    assert rounded_duration_text(duration) == text
