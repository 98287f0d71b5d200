"""What another policy would have done with the messages there were.

The model, queue by queue. Every message that was delivered, and then completed or dead-lettered by a failure, is sent
again at the time it was sent, waits for its first delivery as long as it did, and makes attempts until one succeeds, a
receiver dead-letters it, or the limit of failures is reached.

Taken from history:
- how many messages are poison, which fails at every attempt, and how probably an attempt at any other message fails.
  The messages that ended before the limit tell how much rarer n + 1 failures are than n; as many of those that reached
  the limit as this does not account for are poison;
- the probability that an attempt which does not fail ends with dead-lettering by its receiver;
- the share of failures that are lost locks, which is that of lost locks among last failures, apart for messages that
  reached the limit and for the others;
- how long attempts take, which is how long those took that completed a message;
- how long a message waits for a delivery once it is available.

Assumed:
- An attempt that its receiver abandons takes as long as one that completes.
- A lost lock takes the whole lock duration. Behind it stands a receiver that was slow and would have ended like any other
  had the lock lasted, but for the share `crashed`, which no lock helps. How much longer slow ones take is found from the
  slowest tenth of what is known: the end of an attempt is as probable in each further second, and attempts whose lock
  was lost count as known to have lasted that long.
- With a shorter lock, an attempt is lost if it took longer than the new lock and no longer than the old one; one that
  took longer than the old lock must have renewed, and goes on renewing.
- Without a retry delay a message is at the head of its queue and delivered at once; after a delay it waits as any other.
- More or fewer attempts do not make receivers faster or slower.

Attempts end by draws that follow from the seed, the message and the number of the attempt: the same lake, policies and
seed give the same answer, and two policies are compared with the same luck.
"""

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from peeklock_pipeline.policy import Policy, Retry
from peeklock_pipeline.table_specs import TableSpec

STEPS = 200
"""Into how many equal shares times are cut from which attempts are drawn."""

TAIL_QUANTILE = 0.9
"""Times above this quantile tell how much longer slow attempts take."""

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
"""What happened, what the model says of the policy that was in force, and what it says of the other; seconds."""

HAPPENED, IN_FORCE, NOT_IN_HEADERS = "happened", "in_force", "otherwise"


def modelled_messages(known: DataFrame) -> DataFrame:
    """The messages whose attempts a policy decides about, of what `transforms.report.lives` makes.

    Those that expired, were purged, cancelled, or received and deleted at once are left out.
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
    """What history says of each queue under the policy that was in force; one row each.

    `poison`: share of messages that fail at every attempt. `fails`: probability that an attempt at another one does.
    `rejects`: that it is dead-lettered by its receiver if it does not. `lost` and `lost_by_poison`: shares of failures
    that are lost locks. `times`, `waits`: `STEPS` + 1 quantiles in seconds. `ending`: probability per second that a slow
    attempt ends.
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
        # All others end before the limit but for the share that fails each time.
        fn.expr(f"1 - least(coalesce(try_divide(ended, messages * (1 - power(fails, {old_policy.limit}))), 0D), 1D)").alias("poison"),
        _share("rejected", "ended").alias("rejects"),
        _share("lost_once", "failed_once").alias("lost"),
        _share("lost_at_last", "dead").alias("lost_by_poison"),
        *(fn.coalesce(name, fn.array(fn.lit(0.0))).alias(name) for name in ("times", "waits")),
    )  # fmt: skip
    tail = _tail_exposure(messages.join(fn.broadcast(shaped.select("queue", "slow")), "queue"), lock)
    # Attempts whose lock was lost are known to have lasted from `slow` to the lock's end.
    lasted = fn.col("lost") * fn.col("failed") * (1 - crashed) * fn.greatest(lock - fn.col("slow"), fn.lit(0.0))
    ending = fn.coalesce(fn.try_divide(fn.col("endings"), fn.col("exposure") + lasted), fn.lit(0.0))
    return shaped.join(tail, "queue", "left").withColumn("ending", ending).drop("failed", "slow", "endings", "exposure")


def _conditions(limit: int) -> dict[str, str]:
    """What is counted of a queue's messages. Of those that ended otherwise than by the limit, of which n + 1 failures are
    `fails` times as frequent as n, the ones with at least one failure are so to the ones with less than the most."""
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
    """Of each queue's completed attempts above `slow`: how many ended within the lock, and how long they were watched."""
    beyond = fn.col("processing") > fn.col("slow")
    watched = fn.least(fn.col("processing"), fn.lit(lock)) - fn.col("slow")
    return messages.groupBy("queue").agg(
        fn.count_if(beyond & (fn.col("processing") <= lock)).alias("endings"),
        fn.coalesce(fn.sum(fn.when(beyond, watched)), fn.lit(0.0)).alias("exposure"),
    )


def with_policy(profiles: DataFrame, old_policy: Policy, policy: Policy, crashed: float = 0.0) -> DataFrame:
    """The habits of queues with another lock duration, one row each, as `replay` needs them.

    `slow`: share of attempts keeping their lock that the old one would have cut off. `cut_from` and `cut`: the quantiles
    of attempts that the new lock cuts off, where they begin and how many they are.
    """
    low, high = min(policy.lock, old_policy.lock), old_policy.lock
    at_most = "size(filter(times, t -> t <= {0}D)) / size(times)"
    kept = f"{crashed}D + (1 - {crashed}D) * exp(-ending * {max(policy.lock - old_policy.lock, 0.0)}D)"
    cut = profiles.withColumns({"cut_from": fn.expr(at_most.format(low)), "kept": fn.expr(kept)})
    cut = cut.withColumn("cut", fn.expr(at_most.format(high)) - fn.col("cut_from"))
    losses = cut.withColumn("old", fn.col("fails") * fn.col("lost"))
    losses = losses.withColumn("new", fn.expr("old * kept + (1 - old) * cut"))
    # What keeps its lock now ends as what kept its lock before.
    abandoned = "coalesce(try_divide((fails - old) * (1 - new), 1 - old), 0D)"
    failing = losses.withColumn("fails", fn.expr(f"new + {abandoned}"))
    return failing.select(
        "queue", "poison", "fails", "rejects", "times", "waits", "ending", "cut", "cut_from",
        fn.expr("coalesce(try_divide(new, fails), 0D)").alias("lost"),
        fn.expr("lost_by_poison * kept + (1 - lost_by_poison) * cut").alias("lost_by_poison"),
        fn.expr("coalesce(try_divide(old * (1 - kept), 1 - new), 0D)").alias("slow"),
    )  # fmt: skip


def replay(messages: DataFrame, profiles: DataFrame, old_policy: Policy, policy: Policy, seed: int) -> DataFrame:
    """Messages as the model has them end: how many `failures` and `lock_losses`, `final`, and `end_to_end` seconds."""
    drawn = messages.select("sequence_number", "queue", "until_first").join(fn.broadcast(profiles), "queue")
    drawn = drawn.withColumn("is_poison", fn.expr(f"{_draw(seed, 'poison')} < poison"))
    # At least n failures are as probable as n failures in a row.
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
    """Messages as they ended; `lock_losses` are the share of their failures that lost locks have in their queue."""
    shares = profiles.select("queue", "lost", "lost_by_poison")
    losses = fn.expr("failures * CASE WHEN final = 'limit' THEN lost_by_poison ELSE lost END").alias("lock_losses")
    return messages.join(fn.broadcast(shares), "queue").select("queue", "failures", "final", losses, "end_to_end")


def measure(ended: DataFrame, scenario: str, *by: str) -> DataFrame:
    """The measures of `WHAT_IF` of messages that ended so, for each value of `by`; completion is end to end."""
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
    """A number in [0, 1) that follows from the seed, the message, the attempt and what is asked."""
    return f"(pmod(xxhash64({seed}L, sequence_number, {attempt}, '{what}'), {2**53}L) / {float(2**53)}D)"


def _time(seed: int, old_policy: Policy, policy: Policy, attempt: str) -> str:
    """How long an attempt takes that keeps its lock: one of history that the new lock allows, or a slow one."""
    chance = _draw(seed, "time", attempt)
    longer = max(policy.lock - old_policy.lock, 0.0)
    # A slow one ends between the old lock and the new: the inverse of an exponential distribution cut off there.
    slower = f"""{old_policy.lock}D + CASE WHEN ending > 0
        THEN -ln(1 - {chance} * (1 - exp(-ending * {longer}D))) / ending ELSE 0D END"""
    allowed = f"({chance} * (1 - cut))"
    usual = _quantile("times", f"CASE WHEN {allowed} < cut_from THEN {allowed} ELSE {allowed} + cut END")
    is_slow = f"{_draw(seed, 'slow', attempt)} < slow"
    return f"(CASE WHEN {is_slow} THEN {slower} ELSE {usual} END)"


def _quantile(values: str, chance: str) -> str:
    return f"{values}[int(({chance}) * size({values}))]"


def _pause(seed: int, retry: Retry) -> str:
    """From failure number i to the next delivery."""
    if retry.listed:
        listed = ", ".join(f"{delay}D" for delay in retry.listed)
        delay = f"array({listed})[least(i, {len(retry.listed)}) - 1]"
    else:
        # Capped, because a power overflows long before the longest delay does.
        grown = f"({retry.first}D * power({retry.factor}D, least(i - 1, 64)) + {retry.step}D * (i - 1))"
        delay = f"least({grown}, {retry.longest}D) * (1 - {retry.jitter}D * {_draw(seed, 'jitter', 'i')})"
    wait = _quantile("waits", _draw(seed, "wait", "i"))
    return f"({delay} + CASE WHEN {delay} > 0 THEN {wait} ELSE 0D END)"
