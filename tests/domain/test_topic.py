"""The bounds of what a publish may cost."""

import pytest

from app.domain.message import Envelope
from app.domain.refusals import MessageTooLarge
from app.domain.sending import NewMessage
from app.domain.topic import MAX_EVALUATED_BYTES, MAX_EVALUATIONS, check_evaluations

SMALL = NewMessage(Envelope("m"))
LARGE = NewMessage(Envelope("m", properties=b"x" * 1024))


def test_filters_are_bounded_in_number() -> None:
    check_evaluations([MAX_EVALUATIONS - 1, 1], [SMALL, LARGE])
    with pytest.raises(MessageTooLarge):
        check_evaluations([MAX_EVALUATIONS, 1], [SMALL, LARGE])


def test_filters_are_bounded_in_the_bytes_that_they_may_read() -> None:
    check_evaluations([MAX_EVALUATED_BYTES // 1024, 100], [LARGE, SMALL])
    with pytest.raises(MessageTooLarge):
        check_evaluations([MAX_EVALUATED_BYTES // 1024, 1], [LARGE, LARGE])
