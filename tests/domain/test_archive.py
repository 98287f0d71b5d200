"""The contents of a batch, when it may be removed, and what its digests cover."""

from dataclasses import replace
from hashlib import sha256

from app.domain.archive import BatchContents, CopiedBatch, TrimResult, trim_result
from app.domain.digest import content_digest, digest_of_numbers, digest_of_rows, row_digest

COPY, FOUND = CopiedBatch(1, 3, "digest"), BatchContents(3, "digest", youngest_age=60)


def trim(copy: CopiedBatch = COPY, sealed: str = "digest", found: BatchContents = FOUND) -> TrimResult:
    return trim_result(copy, sealed, found, min_age=60)


def test_a_batch_is_trimmed_if_copy_rows_and_sealed_digest_agree() -> None:
    assert trim() is TrimResult.TRIMMED


def test_a_batch_stays_if_copy_rows_or_sealed_digest_differ() -> None:
    assert trim(replace(COPY, digest="other")) is TrimResult.DIFFERS
    assert trim(replace(COPY, row_count=2)) is TrimResult.DIFFERS
    assert trim(sealed="other") is TrimResult.DIFFERS
    assert trim(found=replace(FOUND, digest="other")) is TrimResult.DIFFERS
    assert trim(replace(COPY, digest="other"), found=replace(FOUND, digest="other")) is TrimResult.DIFFERS


def test_a_batch_stays_while_one_of_its_messages_is_too_young() -> None:
    assert trim(found=replace(FOUND, youngest_age=59)) is TrimResult.TOO_YOUNG


def hexadecimal(octets: bytes) -> str:
    return sha256(octets).hexdigest()


def test_the_digest_of_a_message_covers_its_constant_fields() -> None:
    whole = b"2:id" + b"5:group" + b"-" + b"1:1" + b"4:" + b"body"
    assert content_digest("id", "group", None, 1, b"body") == sha256(whole).digest()[:16]


def test_the_digest_of_a_row_frames_each_field() -> None:
    assert row_digest([12, "ä", b"\xff", None, ""]) == hexadecimal(b"2:12" + b"2:\xc3\xa4" + b"2:ff" + b"-" + b"0:")


def test_the_digest_of_a_batch_separates_rows_by_line_feeds() -> None:
    assert digest_of_rows(["b", "a"]) == hexadecimal(b"b\na\n")
    assert digest_of_numbers([10, 9]) == hexadecimal(b"9\n10\n")
