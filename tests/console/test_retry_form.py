"""A policy of retry delays is read from a form, written into one, and drawn."""

import msgspec
import pytest

from app.console.retry_form import MAX_DRAWN, MAX_SUMMED, drawing, policy_sentence, policy_texts, read_policy
from app.domain.instant import MINUTE, SECOND
from app.domain.refusals import InvalidRequest
from app.domain.retry import (
    MAX_LISTED_DELAYS,
    ExponentialDelay,
    FixedDelay,
    LinearDelay,
    ListedDelays,
    NoDelay,
    RetryPolicy,
)
from app.wire.retry import RetrySettings, to_retry_policy
from tests.walks import for_each

POLICIES: tuple[RetryPolicy, ...] = (
    NoDelay(),
    FixedDelay(90 * SECOND),
    LinearDelay(SECOND, 5 * SECOND, MINUTE),
    ExponentialDelay(SECOND, 1.5, MINUTE, 0.25),
    ExponentialDelay(SECOND // 1000, 2.0),
    ListedDelays((SECOND, 10 * SECOND, MINUTE)),
)


@for_each("policy", POLICIES)
def test_a_policy_is_read_again_as_it_was_written(policy: RetryPolicy) -> None:
    read = read_policy(policy_texts(policy))
    assert to_retry_policy(msgspec.convert(read, RetrySettings, strict=False)) == policy


def test_fields_of_other_kinds_are_not_read() -> None:
    fields = {"retry": "fixed", "retry_delay": "1 s", "retry_step": "not read", "retry_factor": "x"}
    assert read_policy(fields) == {"kind": "fixed", "delay_seconds": 1.0}


@pytest.mark.parametrize(
    ("policy", "sentence"),
    [
        (NoDelay(), "at once"),
        (FixedDelay(SECOND), "1 s after each failure"),
        (LinearDelay(SECOND, 5 * SECOND, MINUTE), "1 s, then 5 s more each time, at most 1 min"),
        (ExponentialDelay(SECOND, 1.5, MINUTE), "1 s, then 1.5 times as long, at most 1 min"),
        (ListedDelays((SECOND, MINUTE)), "1 s, 1 min"),
    ],
)
def test_a_policy_in_words(policy: RetryPolicy, sentence: str) -> None:
    assert policy_sentence(policy) == sentence


def test_each_delay_is_drawn_in_proportion_to_the_longest() -> None:
    drawn = drawing(ExponentialDelay(SECOND, 2.0, 4 * SECOND, 0.5), 5)
    assert [(one.failure, one.text, one.shortest, one.longest) for one in drawn.delays] == [
        (1, "500 ms to 1 s", 12.5, 25.0),
        (2, "1 s to 2 s", 25.0, 50.0),
        (3, "2 s to 4 s", 50.0, 100.0),
        (4, "2 s to 4 s", 50.0, 100.0),
    ]
    assert drawn.sentence == "Failure 5 dead-letters the message, 11 s of delays after the first one."


@pytest.mark.parametrize("policy", [NoDelay(), FixedDelay(0), ListedDelays((0, 0))])
def test_delays_of_zero_are_a_sentence_instead_of_a_drawing(policy: RetryPolicy) -> None:
    drawn = drawing(policy, 3)
    sentence = "Each failed delivery is repeated at once. Failure 3 dead-letters the message."
    assert (drawn.delays, drawn.sentence) == ((), sentence)


def test_a_delay_of_zero_before_others_is_drawn() -> None:
    assert [one.text for one in drawing(ListedDelays((0, SECOND)), 3).delays] == ["0 s", "1 s"]


def test_a_message_that_is_dead_lettered_at_once_never_waits() -> None:
    drawn = drawing(FixedDelay(SECOND), 1)
    assert (drawn.delays, drawn.sentence) == ((), "The first failure dead-letters a message, so it never waits.")


def test_a_drawing_is_bounded() -> None:
    drawn = drawing(FixedDelay(SECOND), MAX_SUMMED + 1)
    assert len(drawn.delays) == MAX_DRAWN
    assert drawn.sentence == "Failure 1,001 dead-letters the message."


def test_a_list_has_as_many_delays_as_the_api_takes() -> None:
    longest = ", ".join(["1 s"] * MAX_LISTED_DELAYS)
    policy = read_policy({"retry": "list", "retry_delays": longest})
    assert policy == {"kind": "list", "delays_seconds": [1.0] * MAX_LISTED_DELAYS}
    with pytest.raises(InvalidRequest):
        read_policy({"retry": "list", "retry_delays": f"{longest}, 1 s"})
