"""A verdict of the benchmark falls when what it is about has gone wrong."""

import pytest

from benchmarks.measure import percentile
from benchmarks.soak_load import MessageLog
from benchmarks.table import Row, at_least, at_most, expect_none


@pytest.mark.parametrize(
    ("there", "seen_again", "astray"),
    [({3}, 0, 0), (set(), 0, 1), ({2, 3}, 0, 1), ({3, 4}, 0, 1), ({3}, 1, 1), ({2}, 0, 2)],
    ids=["whole", "lost", "completed and still there", "sent by nobody", "handed out again", "one for another"],
)
def test_a_soak_finds_each_message_that_is_astray(there: set[int], seen_again: int, astray: int) -> None:
    accepted, completed = dict.fromkeys({1, 2, 3}, "native"), dict.fromkeys({1, 2}, "SQS")
    account = MessageLog(accepted, completed, seen_again)
    assert account.unaccounted(there) == astray


def test_a_row_is_met_when_all_its_aims_are() -> None:
    held, missed = at_most(2, " ms", 2.0), at_least(8000, "/s", 7999.9)
    assert (held.text, held.met, missed.text, missed.met) == ("≤ 2 ms", True, "≥ 8,000/s", False)
    assert (expect_none("loss", 0).met, expect_none("loss", 1).met) == (True, False)
    verdicts = [Row("row", "none", "1", "itself", goals).verdict for goals in ([held], [held, missed], [])]
    assert verdicts == ["met", "missed", "no target"]


def test_a_percentile_is_a_value_that_was_measured() -> None:
    assert [percentile([3.0, 1.0, 2.0, 4.0], percent) for percent in (0, 50, 95, 100)] == [1.0, 2.0, 4.0, 4.0]
