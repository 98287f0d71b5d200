"""The test with generated requests accepts an invalid message in a stored batch only if it was refused."""

from typing import Any

import pytest

from tests.api.non_atomic_batches import refuses_each_bad_message

GOOD, BAD = {"body": 1}, {"body": 1, "priority": -1}
SENT, REFUSED = {"result": "sent"}, {"result": "refused"}


@pytest.mark.parametrize(
    "bad",
    [BAD, {"available_at": "tomorrow"}, {"colour": "red"}, None, []],
    ids=["value", "format", "name", "null", "list"],
)
def test_a_bad_message_that_is_refused_alone_is_not_accepted(bad: Any) -> None:
    assert refuses_each_bad_message({"messages": [GOOD, bad], "atomic": False}, [SENT, REFUSED])


def test_a_good_message_may_be_refused_for_another_reason() -> None:
    assert refuses_each_bad_message({"messages": [GOOD, BAD], "atomic": False}, [REFUSED, REFUSED])


@pytest.mark.parametrize(
    ("batch", "results"),
    [
        ({"messages": [GOOD, BAD], "atomic": False}, [SENT, SENT]),
        ({"messages": [GOOD, BAD], "atomic": False}, [REFUSED, SENT]),
        ({"messages": [BAD, BAD], "atomic": False}, [REFUSED, SENT]),
        ({"messages": [GOOD, BAD], "atomic": True}, [SENT, REFUSED]),
        ({"messages": [GOOD, BAD]}, [SENT, REFUSED]),
        ({"messages": [GOOD, BAD], "atomic": False, "colour": "red"}, [SENT, REFUSED]),
        ({"messages": [BAD] * 1001, "atomic": False}, [REFUSED] * 1001),
        ({"messages": [GOOD], "atomic": False}, [REFUSED]),
        ({"messages": {}, "atomic": False}, []),
        ([], []),
    ],
    ids=[
        "stored", "the good one refused instead", "one of two stored", "atomic", "atomic unless said otherwise",
        "an unknown name beside", "too many", "nothing bad", "no list", "no object",
    ],
)  # fmt: skip
def test_a_stored_batch_is_accepted_in_all_other_cases(batch: Any, results: list[Any]) -> None:
    assert not refuses_each_bad_message(batch, results)
