"""The model of another policy, tested on histories with known probabilities."""

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from peeklock_pipeline.jobs.what_if import WhatIfRequest, modelled_messages, what_if
from peeklock_pipeline.lake import Lake
from peeklock_pipeline.policy import Policy, Retry, read_policy
from peeklock_pipeline.refusals import BadPolicy, EmptyLake
from peeklock_pipeline.transforms import what_if as model
from peeklock_pipeline.transforms.report import message_histories
from pyspark.sql import DataFrame, SparkSession

from tests.pipeline.histories import ended, fill, history

RunCommand = Callable[..., tuple[int, str, str]]

OLD_POLICY = Policy(lock=10, limit=4, retry=Retry(first=5))
"""What was in force when the histories here were made."""

MESSAGES = 3000
MEAN, ABANDONS, POISON = 6.0, 0.1, 0.02


def simulated_message(
    number: int, rng: random.Random, lock: float = OLD_POLICY.lock, limit: int = OLD_POLICY.limit
) -> dict[str, Any]:
    """A message whose attempts take exponentially long, one in ten of which are abandoned; one in fifty is poison."""
    is_poison = rng.random() < POISON
    now = first = rng.uniform(0, 2)
    failures, last_failure = 0, None
    while failures < limit:
        takes, delivered = rng.expovariate(1 / MEAN), now
        if takes <= lock and not is_poison and rng.random() >= ABANDONS:
            return ended(number, 0, first, delivered, delivered + takes, failure_count=failures,
                         delivery_count=failures + 1, last_failure=last_failure)  # fmt: skip
        failures, last_failure = failures + 1, "lock_expired" if takes > lock else "boom"
        now += min(takes, lock) + 5 + rng.uniform(0, 2)
    return ended(number, 0, first, delivered, now + 100, outcome="purged", failure_count=failures, delivery_count=failures,
                 last_failure=last_failure, dead_letter_reason="max_delivery_count_exceeded")  # fmt: skip


def simulated_messages(**policy: Any) -> list[dict[str, Any]]:
    """A history under a policy."""
    rng = random.Random(7)
    return [simulated_message(number, rng, **policy) for number in range(1, MESSAGES + 1)]


@pytest.fixture(scope="module")
def messages(spark: SparkSession) -> Iterator[DataFrame]:
    """What happened under `OLD_POLICY`."""
    frame = model.modelled_messages(message_histories(history(spark, simulated_messages()))).persist()
    yield frame
    frame.unpersist()


def outcome(messages: DataFrame, policy: Policy, scenario: str = model.NOT_IN_HEADERS, **options: float) -> Any:
    """The measures of one scenario."""
    return model.measure(
        modelled_messages(messages, WhatIfRequest(OLD_POLICY, policy, **options))[scenario], scenario
    ).first()


def simulated_outcome(spark: SparkSession, **policy: Any) -> Any:
    """What would have happened under another policy, because it is made so."""
    other = model.modelled_messages(message_histories(history(spark, simulated_messages(**policy))))
    return model.measure(
        model.actual_results(other, model.queue_profiles(other, replace(OLD_POLICY, **policy))), "truth"
    ).first()


@pytest.fixture(scope="module")
def same_policy_outcome(messages: DataFrame) -> dict[str, Any]:
    """The scenarios where the other policy is the one in force."""
    return {
        name: outcome(messages, OLD_POLICY, name) for name in (model.HAPPENED, model.IN_FORCE, model.NOT_IN_HEADERS)
    }


def test_with_the_policy_in_force_the_model_is_close_to_history(same_policy_outcome: dict[str, Any]) -> None:
    happened, modelled = same_policy_outcome[model.HAPPENED], same_policy_outcome[model.IN_FORCE]
    assert modelled.messages == happened.messages == MESSAGES
    # Some 900 failures and 100 dead letters: three deviations of what is drawn are 10 % and 30 % of them.
    assert modelled.failures == pytest.approx(happened.failures, rel=0.10)
    assert modelled.lock_losses == pytest.approx(happened.lock_losses, rel=0.15)
    assert modelled.dead_letter_share == pytest.approx(happened.dead_letter_share, rel=0.30)
    assert modelled.completion_p50 == pytest.approx(happened.completion_p50, rel=0.10)
    assert modelled.completion_p95 == pytest.approx(happened.completion_p95, rel=0.15)


def test_the_same_question_has_the_same_answer_and_another_seed_another(
    messages: DataFrame, same_policy_outcome: dict[str, Any]
) -> None:
    assert outcome(messages, OLD_POLICY, model.IN_FORCE) == same_policy_outcome[model.IN_FORCE]
    assert outcome(messages, OLD_POLICY, model.IN_FORCE, seed=2) != same_policy_outcome[model.IN_FORCE]
    in_force, otherwise = (
        same_policy_outcome[model.IN_FORCE].asDict(),
        same_policy_outcome[model.NOT_IN_HEADERS].asDict(),
    )
    assert in_force | {"scenario": ""} == otherwise | {"scenario": ""}


@pytest.mark.nightly
def test_a_longer_lock_loses_fewer_locks_as_if_it_had_been_so(
    messages: DataFrame, same_policy_outcome: dict[str, Any], spark: SparkSession
) -> None:
    longer = outcome(messages, Policy(20, OLD_POLICY.limit, OLD_POLICY.retry))
    would = simulated_outcome(spark, lock=20)
    assert longer.lock_losses < same_policy_outcome[model.IN_FORCE].lock_losses / 2
    assert longer.failures == pytest.approx(would.failures, rel=0.25)
    assert longer.completion_p50 == pytest.approx(would.completion_p50, rel=0.15)


def test_no_lock_helps_against_receivers_that_died(messages: DataFrame, same_policy_outcome: dict[str, Any]) -> None:
    longer = outcome(messages, Policy(3600, OLD_POLICY.limit, OLD_POLICY.retry), crashed=1.0)
    assert longer.failures == same_policy_outcome[model.IN_FORCE].failures


def test_a_shorter_lock_loses_those_that_took_longer(messages: DataFrame, spark: SparkSession) -> None:
    shorter = outcome(messages, Policy(5, OLD_POLICY.limit, OLD_POLICY.retry))
    would = simulated_outcome(spark, lock=5)
    assert shorter.lock_losses == pytest.approx(would.lock_losses, rel=0.15)
    assert shorter.dead_letter_share == pytest.approx(would.dead_letter_share, rel=0.25)


def test_a_lower_limit_dead_letters_more_as_if_it_had_been_so(
    messages: DataFrame, same_policy_outcome: dict[str, Any], spark: SparkSession
) -> None:
    lower = outcome(messages, Policy(OLD_POLICY.lock, 2, OLD_POLICY.retry))
    assert lower.dead_letter_share > same_policy_outcome[model.IN_FORCE].dead_letter_share * 1.5
    assert lower.dead_letter_share == pytest.approx(simulated_outcome(spark, limit=2).dead_letter_share, rel=0.2)
    assert lower.redeliveries < same_policy_outcome[model.IN_FORCE].redeliveries


@pytest.mark.nightly
def test_a_higher_limit_does_not_save_what_never_succeeds(
    messages: DataFrame, same_policy_outcome: dict[str, Any]
) -> None:
    higher = outcome(messages, Policy(OLD_POLICY.lock, 40, OLD_POLICY.retry))
    assert higher.dead_letter_share < same_policy_outcome[model.IN_FORCE].dead_letter_share
    assert higher.failures > same_policy_outcome[model.IN_FORCE].failures


def test_a_longer_delay_is_waited_for(messages: DataFrame, same_policy_outcome: dict[str, Any]) -> None:
    patient = outcome(messages, Policy(OLD_POLICY.lock, OLD_POLICY.limit, Retry(first=500)))
    assert patient.failures == same_policy_outcome[model.IN_FORCE].failures
    assert patient.completion_p95 > 495
    assert patient.completion_p50 < 20


# ---- by hand ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def by_hand(spark: SparkSession) -> DataFrame:
    """Thirteen messages: six succeed at once, two at the second attempt, one is rejected then, four fail twice."""
    dead = {"outcome": "purged", "dead_letter_reason": "max_delivery_count_exceeded", "failure_count": 2}
    rows = [
        *(ended(n, 0, 1, 1, 1 + n) for n in range(1, 7)),
        ended(7, 0, 1, 5, 15, failure_count=1, last_failure="lock_expired"),
        ended(8, 0, 1, 5, 15, failure_count=1, last_failure="boom"),
        ended(9, 0, 1, 5, 6, outcome="purged", failure_count=1, last_failure="boom", dead_letter_reason="bad"),
        *(ended(n, 0, 1, 5, 6, last_failure="lock_expired" if n == 10 else "boom", **dead) for n in range(10, 14)),
        ended(14, 0, None, None, 6, outcome="expired"),
        ended(15, 0, 1, 1, 1, outcome="received"),
        ended(16, 0, 1, 1, 9, outcome="purged", dead_letter_reason="ttl_expired"),
    ]
    return model.modelled_messages(message_histories(history(spark, rows)))


TWICE = Policy(lock=20, limit=2)


def test_habits_are_shares_of_what_happened(by_hand: DataFrame) -> None:
    (profile,) = model.queue_profiles(by_hand, TWICE).collect()
    # Of nine that ended before the limit three had failed once, and six never had: every second attempt fails, and so
    # one in four of the ordinary ones fails twice. Nine that did not are three quarters of twelve; one is poison.
    assert profile.fails == pytest.approx(1 / 2)
    assert profile.poison == pytest.approx(1 / 13)
    assert profile.rejects == pytest.approx(1 / 9)
    assert (profile.lost, profile.lost_by_poison) == pytest.approx((1 / 3, 1 / 4))
    assert (profile.times[0], profile.times[-1]) == (1, 10)
    # Processing took 1 to 6, 10 and 10 s. Nothing is above the 0.9 quantile, 10 s, so nothing is known of what is slower.
    assert profile.ending == 0


def test_the_end_of_slow_attempts_is_estimated_from_ended_and_interrupted_ones(spark: SparkSession) -> None:
    rows = [
        *(ended(n, 0, 0, 0, 1) for n in range(1, 10)),
        ended(10, 0, 0, 0, 3),
        ended(11, 0, 0, 0, 1, failure_count=1, last_failure="lock_expired"),
    ]
    (profile,) = model.queue_profiles(
        model.modelled_messages(message_histories(history(spark, rows))), Policy(lock=5, limit=3)
    ).collect()
    # Above 1 s one attempt ended, after 2 s; another lasted for 4 s without an end.
    assert profile.ending == pytest.approx(1 / (2 + 4))


def test_what_happened_is_counted_and_not_drawn(by_hand: DataFrame) -> None:
    row: Any = model.measure(model.actual_results(by_hand, model.queue_profiles(by_hand, TWICE)), "happened").first()
    assert (row.messages, row.failures, row.dead_lettered) == (13, 3 + 4 * 2, 5)
    assert (row.deliveries, row.redeliveries) == (6 + 3 * 2 + 4 * 2, 3 + 4)
    assert row.lock_losses == pytest.approx(3 / 3 + 8 / 4)
    assert (row.completion_p50, row.completion_p99) == (5, 15)


# ---- the job, policies, and the command ------------------------------------------------------------------------------


def test_the_answer_is_kept_and_told_of_the_largest_queues(lake: Lake, spark: SparkSession) -> None:
    fill(lake, [ended(n, 0, 1, 1, 3, queue="many" if n % 3 else "few") for n in range(1, 31)])
    done = what_if(spark, lake, WhatIfRequest(Policy(), Policy(limit=1)))
    assert (done.messages, done.table) == (30, "what_if")
    assert [row["scenario"] for row in done.total] == ["happened", "in_force", "otherwise"]
    assert [row["queue"] for row in done.queues] == ["many"] * 3 + ["few"] * 3
    assert lake.read(spark, model.WHAT_IF).count() == 6
    json.dumps(done.total)


def test_a_lake_in_which_nothing_was_delivered_is_refused(lake: Lake, spark: SparkSession) -> None:
    fill(lake, [ended(1, 0, None, None, 5, outcome="expired", delivery_count=0)])
    with pytest.raises(EmptyLake, match="No message in"):
        what_if(spark, lake, WhatIfRequest(Policy(), Policy()))


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("", OLD_POLICY),
        ("lock=1.5min", Policy(90, 4, Retry(first=5))),
        ("limit=7, retry=none", Policy(10, 7)),
        ("retry=fixed:250ms", Policy(10, 4, Retry(first=0.25))),
        ("retry=linear:1s:5s:1min", Policy(10, 4, Retry(1, 5, longest=60))),
        ("retry=exponential:1s:2:1h:0.5", Policy(10, 4, Retry(1, factor=2, longest=3600, jitter=0.5))),
        ("retry=listed:1s:10s", Policy(10, 4, Retry(listed=(1, 10)))),
    ],
)
def test_a_policy_is_read_over_the_one_in_force(text: str, policy: Policy) -> None:
    assert read_policy(text, OLD_POLICY) == policy


@pytest.mark.parametrize(
    "text",
    ["lock", "lock=10", "lock=0s", "lock=13h", "limit=0", "limit=1.5", "limit=9999", "retry=often", "retry=fixed",
     "retry=exponential:1s", "retry=exponential:1s:x", "retry=exponential:1s:2:1h:2", "retry=fixed:8d", "patience=3"],
)  # fmt: skip
def test_a_policy_that_no_queue_could_have_is_refused(text: str) -> None:
    with pytest.raises(BadPolicy):
        read_policy(text, OLD_POLICY)


def test_the_command_refuses_in_a_sentence_and_explains_itself(run_command: RunCommand, lake: Lake) -> None:
    command = ("what-if", "--lake", lake.root, "--policy")
    assert run_command(*command, "lock=never") == (2, "", "'never' is no duration; write 500ms, 30s, 5min, 2h or 1d.\n")
    code, out, err = run_command(*command, "lock=1min")
    assert (code, out, "Nothing was exported to" in err) == (2, "", True)
    code, out, _ = run_command("what-if", "--explain")
    assert (code, "Taken from history:" in out) == (0, True)
