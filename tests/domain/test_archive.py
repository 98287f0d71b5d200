"""What a batch holds, when it may be removed, and what its digests are taken of."""

from dataclasses import replace
from hashlib import sha256

import pytest

from app.domain.archive import Candidate, Copy, Found, TrimResult, fitting, judged
from app.domain.digest import content_digest, digest_of_numbers, digest_of_rows, row_digest

COPY, FOUND = Copy(1, 3, "digest"), Found(3, "digest", youngest=60)


def judge(copy: Copy = COPY, sealed: str = "digest", found: Found = FOUND) -> TrimResult:
    return judged(copy, sealed, found, keep=60)


@pytest.mark.parametrize(
    ("sizes", "count"), [([], 0), ([11], 1), ([4, 6], 2), ([4, 7], 1), ([11, 1], 1), ([10, 0, 1], 2), ([4, 4, 4], 2)]
)
def test_a_batch_holds_the_bodies_that_fit_and_at_least_one_message(sizes: list[int], count: int) -> None:
    candidates = [Candidate(number, 0, size) for number, size in enumerate(sizes)]
    assert fitting(candidates, body_bytes=10) == candidates[:count]


def test_a_batch_goes_when_copy_rows_and_seal_agree() -> None:
    assert judge() is TrimResult.TRIMMED


def test_a_batch_stays_when_one_of_them_differs() -> None:
    assert judge(replace(COPY, digest="other")) is TrimResult.DIFFERS
    assert judge(replace(COPY, row_count=2)) is TrimResult.DIFFERS
    assert judge(sealed="other") is TrimResult.DIFFERS
    assert judge(found=replace(FOUND, digest="other")) is TrimResult.DIFFERS
    assert judge(replace(COPY, digest="other"), found=replace(FOUND, digest="other")) is TrimResult.DIFFERS


def test_a_batch_stays_while_a_message_of_it_is_too_young() -> None:
    assert judge(found=replace(FOUND, youngest=59)) is TrimResult.TOO_YOUNG


def hexadecimal(octets: bytes) -> str:
    return sha256(octets).hexdigest()


def test_the_digest_of_a_message_covers_what_no_step_changes() -> None:
    whole = b"2:id" + b"5:group" + b"-" + b"1:1" + b"4:" + b"body"
    assert content_digest("id", "group", None, 1, b"body") == sha256(whole).digest()[:16]


def test_the_digest_of_a_row_frames_each_field() -> None:
    assert row_digest([12, "ä", b"\xff", None, ""]) == hexadecimal(b"2:12" + b"2:\xc3\xa4" + b"2:ff" + b"-" + b"0:")


def test_the_digest_of_a_batch_is_taken_line_by_line() -> None:
    assert digest_of_rows(["b", "a"]) == hexadecimal(b"b\na\n")
    assert digest_of_numbers([10, 9]) == hexadecimal(b"9\n10\n")
