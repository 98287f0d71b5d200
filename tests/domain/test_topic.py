"""The bounds of what a publish may cost."""

import pytest

from app.domain.filter_body import MAX_READ_BODY_BYTES
from app.domain.message import Envelope
from app.domain.refusals import MessageTooLarge
from app.domain.sending import NewMessage
from app.domain.topic import MAX_EVALUATED_BYTES, MAX_EVALUATIONS, FilterCounts, check_evaluations

SMALL = NewMessage(Envelope("m"))
LARGE = NewMessage(Envelope("m", properties=b"x" * 1024))
BODY = NewMessage(Envelope("m"), b"x" * 1024)


def test_filters_are_bounded_in_number() -> None:
    check_evaluations([FilterCounts(MAX_EVALUATIONS - 1), FilterCounts(1)], [SMALL, LARGE])
    with pytest.raises(MessageTooLarge):
        check_evaluations([FilterCounts(MAX_EVALUATIONS), FilterCounts(1)], [SMALL, LARGE])


def test_filters_are_bounded_in_the_bytes_that_they_may_read() -> None:
    check_evaluations([FilterCounts(MAX_EVALUATED_BYTES // 1024), FilterCounts(100)], [LARGE, SMALL])
    with pytest.raises(MessageTooLarge):
        check_evaluations([FilterCounts(MAX_EVALUATED_BYTES // 1024), FilterCounts(1)], [LARGE, LARGE])


def test_bodies_count_for_the_filters_that_read_them() -> None:
    many = MAX_EVALUATED_BYTES // 1024
    check_evaluations([FilterCounts(MAX_EVALUATIONS, many), FilterCounts(0)], [BODY, BODY])
    with pytest.raises(MessageTooLarge, match="properties and bodies"):
        check_evaluations([FilterCounts(many, many), FilterCounts(1, 1)], [BODY, BODY])
    with pytest.raises(MessageTooLarge, match="properties and bodies"):
        check_evaluations([FilterCounts(many, many), FilterCounts(1)], [BODY, LARGE])


def test_a_body_that_filters_do_not_read_counts_nothing() -> None:
    too_large = NewMessage(Envelope("m"), b"x" * (MAX_READ_BODY_BYTES + 1))
    check_evaluations([FilterCounts(MAX_EVALUATIONS, MAX_EVALUATIONS)], [too_large])
