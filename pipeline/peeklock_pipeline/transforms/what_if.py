"""Models the effect of another policy on the messages of the lake.

The model, queue by queue. Every message that was delivered, and then completed or dead-lettered by a failure, is sent
again at its original time and waits as long as it did for its first delivery. It then makes attempts until one
succeeds, a receiver dead-letters it, or it reaches the limit of failures.

Taken from history:
- the number of poison messages, which fail at every attempt, and the probability that an attempt at another message
  fails. The messages that ended before the limit show how much rarer n + 1 failures are than n. Messages that reached
  the limit beyond this expectation are poison;
- the probability that the receiver dead-letters a message in an attempt that does not fail;
- the share of lost locks among failures. It is taken as their share among last failures, separately for messages that
  reached the limit and for the others;
- the duration of attempts, taken from attempts that completed a message;
- the time that an available message waits for a delivery.

Assumed:
- An attempt that its receiver abandons takes as long as one that completes.
- A lost lock takes the whole lock duration. Its receiver was slow, and with a longer lock would have ended like
  any other. The share `crashed` is the exception: no lock duration helps it. The duration of slow attempts is estimated
  from the slowest tenth of known attempts: an attempt ends with the same probability in each further second. An attempt
  whose lock was lost counts as one that lasted at least that long.
- With a shorter lock, an attempt is lost if it took longer than the new lock and no longer than the old one; one that
  took longer than the old lock must have renewed, and continues to renew.
- Without a retry delay a message is at the head of its queue and delivered at once; after a delay it waits like any
  other.
- More or fewer attempts do not make receivers faster or slower.

Random draws decide the attempts. They follow from the seed, the message and the number of the attempt: the same lake,
policies and seed give the same result, and two policies are compared with the same draws.
"""

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from peeklock_pipeline.policy import Policy, Retry
from peeklock_pipeline.table_specs import TableSpec

STEPS = 200
"""The number of quantile steps from which durations of attempts are drawn."""

TAIL_QUANTILE = 0.9
"""Durations above this quantile are the base of the estimate for slow attempts."""

ACCURACY = 10_000
MAX_DELIVERY_COUNT_REASON, TTL_EXPIRED_REASON, LOCK_EXPIRED = (
    "max_delivery_count_exceeded",
    "ttl_expired",
    "lock_expired",
)

COUNTS = ("messages", "deliveries", "redeliveries", "failures", "dead_lettered")
QUANTILES = {"completion_p50": 0.5, "completion_p95": 0.95, "completion_p99": 0.99}

WHAT_IF = TableSpec(
    "what_if",
    pa.schema(
        [
            pa.field("scenario", pa.string(), nullable=False),
            pa.field("queue", pa.string(), nullable=False),
            *(pa.field(name, pa.int64(), nullable=False) for name in COUNTS),
            pa.field("lock_losses", pa.float64(), nullable=False),
            pa.field("dead_letter_share", pa.float64()),
            *(pa.field(name, pa.float64()) for name in QUANTILES),
        ]
    ),
)
"""What happened, the model of the policy that was in force, and the model of the other one; times in seconds."""

HAPPENED, IN_FORCE, NOT_IN_HEADERS = "happened", "in_force", "otherwise"


def modelled_messages(known: DataFrame) -> DataFrame:
    """Return the messages of `transforms.report.message_histories` whose attempts a policy affects.

    Messages that expired, were purged or cancelled, or were received and deleted in one step are left out.
    """
    by_attempt = f"ended = 'dead_lettered' AND dead_letter_reason <> '{TTL_EXPIRED_REASON}'"
    final = f"""CASE WHEN ended = 'completed' THEN 'completed'
                WHEN dead_letter_reason = '{MAX_DELIVERY_COUNT_REASON}' THEN 'limit' ELSE 'rejected' END"""
    until_first = "(unix_micros(first_delivered_at) - unix_micros(enqueued_at)) / 1e6D"
    return known.where(f"first_delivered_at IS NOT NULL AND (ended = 'completed' OR {by_attempt})").selectExpr(
        "sequence_number",
        "queue",
        "failure_count AS failures",
        f"{final} AS final",
        f"failure_count > 0 AND coalesce(last_failure = '{LOCK_EXPIRED}', false) AS lost_last",
        f"{until_first} AS until_first",
        "waiting",
        "processing",
        "end_to_end",
    )


def queue_profiles(messages: DataFrame, old_policy: Policy, crashed: float = 0.0) -> DataFrame:
    """Return the profile of each queue under the policy that was in force; one row each.

    `poison`: share of messages that fail at every attempt. `fails`: probability that an attempt at another message
    fails. `rejects`: probability that its receiver dead-letters it in an attempt that does not fail. `lost`,
    `lost_by_poison`: share of lost locks among failures. `times`, `waits`: `STEPS` + 1 quantiles in seconds. `ending`:
    probability per second that a slow attempt ends.
    """
    levels, lock = [step / STEPS for step in range(STEPS + 1)], old_policy.lock
    in_time = fn.when(fn.col("processing") <= lock, fn.col("processing"))
    counted = messages.groupBy("queue").agg(
        fn.count("*").alias("messages"),
        *(fn.count_if(fn.expr(condition)).alias(name) for name, condition in _conditions(old_policy.limit).items()),
        fn.sum(fn.when(fn.col("final") != "limit", fn.col("failures"))).alias("failed"),
        fn.percentile_approx("processing", levels, ACCURACY).alias("times"),
        fn.percentile_approx("waiting", levels, ACCURACY).alias("waits"),
        fn.percentile_approx(in_time, TAIL_QUANTILE, ACCURACY).alias("slow"),
    )
    known = counted.withColumn("fails", fn.least(_share("failed_once", "not_at_last"), fn.lit(1.0)))
    shaped = known.select(
        "queue", "slow", "failed", "fails",
        # All others end before the limit, except the share that fails each time.
        fn.expr(f"1 - least(coalesce(try_divide(ended, messages * (1 - power(fails, {old_policy.limit}))), 0D), 1D)").alias("poison"),
        _share("rejected", "ended").alias("rejects"),
        _share("lost_once", "failed_once").alias("lost"),
        _share("lost_at_last", "dead").alias("lost_by_poison"),
        *(fn.coalesce(name, fn.array(fn.lit(0.0))).alias(name) for name in ("times", "waits")),
    )  # fmt: skip
    tail = _tail_exposure(messages.join(fn.broadcast(shaped.select("queue", "slow")), "queue"), lock)
    # Attempts whose lock was lost lasted from `slow` to the end of the lock at least.
    lasted = fn.col("lost") * fn.col("failed") * (1 - crashed) * fn.greatest(lock - fn.col("slow"), fn.lit(0.0))
    ending = fn.coalesce(fn.try_divide(fn.col("endings"), fn.col("exposure") + lasted), fn.lit(0.0))
    return shaped.join(tail, "queue", "left").withColumn("ending", ending).drop("failed", "slow", "endings", "exposure")


def _conditions(limit: int) -> dict[str, str]:
    """Return the conditions that are counted for a queue.

    Among messages that did not reach the limit, n + 1 failures are `fails` times as frequent as n. So `fails` is the
    number of messages with at least one failure, divided by the number with fewer failures than the most possible."""
    return {
        "ended": "final <> 'limit'",
        "failed_once": "final <> 'limit' AND failures > 0",
        "not_at_last": f"final <> 'limit' AND failures < {limit - 1}",
        "lost_once": "final <> 'limit' AND lost_last",
        "rejected": "final = 'rejected'",
        "dead": "final = 'limit'",
        "lost_at_last": "final = 'limit' AND lost_last",
    }


def _share(part: str, whole: str) -> Column:
    return fn.coalesce(fn.try_divide(fn.col(part), fn.col(whole)), fn.lit(0.0))


def _tail_exposure(messages: DataFrame, lock: float) -> DataFrame:
    """Return for each queue's completed attempts above `slow`: how many ended within the lock, and their time."""
    beyond = fn.col("processing") > fn.col("slow")
    watched = fn.least(fn.col("processing"), fn.lit(lock)) - fn.col("slow")
    return messages.groupBy("queue").agg(
        fn.count_if(beyond & (fn.col("processing") <= lock)).alias("endings"),
        fn.coalesce(fn.sum(fn.when(beyond, watched)), fn.lit(0.0)).alias("exposure"),
    )


def with_policy(profiles: DataFrame, old_policy: Policy, policy: Policy, crashed: float = 0.0) -> DataFrame:
    """Return the profiles of queues with another lock duration, one row each, as `replay` needs them.

    `slow`: share of attempts that keep their lock and that the old lock would have cut off. `cut_from` and `cut`: start
    and width of the range of quantiles that the new lock cuts off.
    """
    low, high = min(policy.lock, old_policy.lock), old_policy.lock
    at_most = "size(filter(times, t -> t <= {0}D)) / size(times)"
    kept = f"{crashed}D + (1 - {crashed}D) * exp(-ending * {max(policy.lock - old_policy.lock, 0.0)}D)"
    cut = profiles.withColumns({"cut_from": fn.expr(at_most.format(low)), "kept": fn.expr(kept)})
    cut = cut.withColumn("cut", fn.expr(at_most.format(high)) - fn.col("cut_from"))
    losses = cut.withColumn("old", fn.col("fails") * fn.col("lost"))
    losses = losses.withColumn("new", fn.expr("old * kept + (1 - old) * cut"))
    # Attempts that keep their lock now end like those that kept it before.
    abandoned = "coalesce(try_divide((fails - old) * (1 - new), 1 - old), 0D)"
    failing = losses.withColumn("fails", fn.expr(f"new + {abandoned}"))
    return failing.select(
        "queue", "poison", "fails", "rejects", "times", "waits", "ending", "cut", "cut_from",
        fn.expr("coalesce(try_divide(new, fails), 0D)").alias("lost"),
        fn.expr("lost_by_poison * kept + (1 - lost_by_poison) * cut").alias("lost_by_poison"),
        fn.expr("coalesce(try_divide(old * (1 - kept), 1 - new), 0D)").alias("slow"),
    )  # fmt: skip


def replay(messages: DataFrame, profiles: DataFrame, old_policy: Policy, policy: Policy, seed: int) -> DataFrame:
    """Return how messages end in the model: `failures`, `lock_losses`, `final`, and `end_to_end` in seconds."""
    drawn = messages.select("sequence_number", "queue", "until_first").join(fn.broadcast(profiles), "queue")
    drawn = drawn.withColumn("is_poison", fn.expr(f"{_draw(seed, 'poison')} < poison"))
    # The probability of at least n failures is that of n failures in a row.
    failures = f"""CASE WHEN is_poison OR fails >= 1 THEN {policy.limit} WHEN fails <= 0 THEN 0
        ELSE int(least(ln(1 - {_draw(seed, "failures")}) / ln(fails), {policy.limit})) END"""
    drawn = drawn.withColumn("failures", fn.expr(failures))
    final = f"""CASE WHEN failures = {policy.limit} THEN 'limit'
        WHEN {_draw(seed, "reject")} < rejects THEN 'rejected' ELSE 'completed' END"""
    attempts = "CASE WHEN failures > 0 THEN sequence(1, failures) ELSE array() END"
    drawn = drawn.withColumns({"final": fn.expr(final), "attempts": fn.expr(attempts)})
    is_lost = f"{_draw(seed, 'lost', 'i')} < CASE WHEN is_poison THEN lost_by_poison ELSE lost END"
    failed = f"CASE WHEN {is_lost} THEN {policy.lock}D ELSE {_time(seed, old_policy, policy, 'i')} END"
    elapsed = f"aggregate(attempts, 0D, (spent, i) -> spent + {failed} + {_pause(seed, policy.retry)})"
    return drawn.select(
        "queue",
        "failures",
        "final",
        fn.expr(f"CAST(size(filter(attempts, i -> {is_lost})) AS DOUBLE)").alias("lock_losses"),
        fn.expr(f"until_first + {elapsed} + {_time(seed, old_policy, policy, 'failures + 1')}").alias("end_to_end"),
    )


def actual_results(messages: DataFrame, profiles: DataFrame) -> DataFrame:
    """Return messages as they ended. `lock_losses` is their failures times the share of lost locks in their queue."""
    shares = profiles.select("queue", "lost", "lost_by_poison")
    losses = fn.expr("failures * CASE WHEN final = 'limit' THEN lost_by_poison ELSE lost END").alias("lock_losses")
    return messages.join(fn.broadcast(shares), "queue").select("queue", "failures", "final", losses, "end_to_end")


def measure(ended: DataFrame, scenario: str, *by: str) -> DataFrame:
    """Return the measures of `WHAT_IF` for each value of `by`; completion times are end to end."""
    deliveries = fn.expr("failures + int(final <> 'limit')")
    completed = fn.when(fn.col("final") == "completed", fn.col("end_to_end"))
    counted = ended.groupBy(*by).agg(
        fn.count("*").alias("messages"),
        fn.coalesce(fn.sum(deliveries), fn.lit(0)).alias("deliveries"),
        fn.coalesce(fn.sum(deliveries - 1), fn.lit(0)).alias("redeliveries"),
        fn.coalesce(fn.sum("failures"), fn.lit(0)).cast("bigint").alias("failures"),
        fn.count_if(fn.col("final") != "completed").alias("dead_lettered"),
        fn.coalesce(fn.sum("lock_losses"), fn.lit(0.0)).alias("lock_losses"),
        fn.percentile_approx(completed, list(QUANTILES.values()), ACCURACY).alias("completion"),
    )
    quantiles = {name: fn.col("completion")[place] for place, name in enumerate(QUANTILES)}
    share = fn.try_divide(fn.col("dead_lettered"), fn.col("messages"))
    named = counted.withColumns({"scenario": fn.lit(scenario), "dead_letter_share": share} | quantiles)
    return named.select("scenario", *by, *COUNTS, "lock_losses", "dead_letter_share", *QUANTILES)


def _draw(seed: int, what: str, attempt: str = "0") -> str:
    """Return a number in [0, 1) that follows from the seed, the message, the attempt and the name of the draw."""
    return f"(pmod(xxhash64({seed}L, sequence_number, {attempt}, '{what}'), {2**53}L) / {float(2**53)}D)"


def _time(seed: int, old_policy: Policy, policy: Policy, attempt: str) -> str:
    """Return the duration of an attempt that keeps its lock: a known one that fits the new lock, or a slow one."""
    chance = _draw(seed, "time", attempt)
    longer = max(policy.lock - old_policy.lock, 0.0)
    # A slow attempt ends between the old and the new lock: the inverse of an exponential distribution, truncated there.
    slower = f"""{old_policy.lock}D + CASE WHEN ending > 0
        THEN -ln(1 - {chance} * (1 - exp(-ending * {longer}D))) / ending ELSE 0D END"""
    allowed = f"({chance} * (1 - cut))"
    usual = _quantile("times", f"CASE WHEN {allowed} < cut_from THEN {allowed} ELSE {allowed} + cut END")
    is_slow = f"{_draw(seed, 'slow', attempt)} < slow"
    return f"(CASE WHEN {is_slow} THEN {slower} ELSE {usual} END)"


def _quantile(values: str, chance: str) -> str:
    return f"{values}[int(({chance}) * size({values}))]"


def _pause(seed: int, retry: Retry) -> str:
    """Return the seconds from failure number i to the next delivery."""
    if retry.listed:
        listed = ", ".join(f"{delay}D" for delay in retry.listed)
        delay = f"array({listed})[least(i, {len(retry.listed)}) - 1]"
    else:
        # Capped, because a power overflows long before the longest delay does.
        grown = f"({retry.first}D * power({retry.factor}D, least(i - 1, 64)) + {retry.step}D * (i - 1))"
        delay = f"least({grown}, {retry.longest}D) * (1 - {retry.jitter}D * {_draw(seed, 'jitter', 'i')})"
    wait = _quantile("waits", _draw(seed, "wait", "i"))
    return f"({delay} + CASE WHEN {delay} > 0 THEN {wait} ELSE 0D END)"
