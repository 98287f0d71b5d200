"""what-if: the model's estimate of another policy, beside what happened and the model's account of it."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from peeklock_pipeline.jobs.report import message_histories
from peeklock_pipeline.lake import Lake
from peeklock_pipeline.page import formatting
from peeklock_pipeline.policy import Policy
from peeklock_pipeline.progress import Progress, no_progress
from peeklock_pipeline.refusals import EmptyLake
from peeklock_pipeline.results import rows, write_table
from peeklock_pipeline.task_refusals import task_refusals
from peeklock_pipeline.transforms import what_if as model

MAX_QUEUES = 20
"""The number of queues in the result: those with most messages. The table has all."""


@dataclass(frozen=True, slots=True)
class WhatIfRequest:
    """The policy that was in force, the policy to estimate, and the seed.

    `crashed` is the share of lost locks whose receiver had crashed.
    """

    was: Policy
    policy: Policy
    crashed: float = 0.0
    seed: int = 1


@dataclass(frozen=True, slots=True)
class WhatIfResult:
    """The three scenarios: `total` over all messages, and for each of the largest `queues`; times in seconds."""

    what_if_request: dict[str, Any]
    messages: int
    total: list[dict[str, Any]]
    queues: list[dict[str, Any]]
    table: str

    def sentences(self) -> str:
        """Return the scenarios of all messages side by side, and the share of dead letters of each queue."""
        lines = [f"{'':24}{'happened':>14}{'model of it':>14}{'what if':>14}"]
        lines += [
            f"{title:24}" + "".join(f"{say(row[name]):>14}" for row in self.total)
            for name, (title, say) in MEASURE_LABELS.items()
        ]
        by_queue: dict[str, list[str]] = {}
        for row in self.queues:
            by_queue.setdefault(row["queue"], []).append(formatting.share(row["dead_letter_share"]))
        lines += ["", "dead-lettered, by queue"]
        lines += [f"{queue:24}" + "".join(f"{share:>14}" for share in shares) for queue, shares in by_queue.items()]
        return "\n".join(
            [*lines, "", f"{formatting.count(self.messages)} messages; all queues are in the table {self.table}."]
        )


MEASURE_LABELS: dict[str, tuple[str, Callable[[float | None], str]]] = {
    "redeliveries": ("redeliveries", formatting.count),
    "lock_losses": ("lock losses, about", formatting.count),
    "dead_letter_share": ("dead-lettered", formatting.share),
    "completion_p50": ("completed, half within", formatting.duration),
    "completion_p95": ("95 % within", formatting.duration),
    "completion_p99": ("99 % within", formatting.duration),
}
"""The label and the format of each measure of a scenario."""


@task_refusals()
def what_if(
    spark: SparkSession,
    lake: Lake,
    what_if_request: WhatIfRequest,
    queue: str | None = None,
    progress: Progress = no_progress,
) -> WhatIfResult:
    """Model the messages of a lake, or of one queue, under another policy, and write the result to a table.

    Refuses with `EmptyLake`, even if no message was delivered and ended, `UnknownQueue` and `BadLake`.
    """
    with message_histories(spark, lake, queue) as known:
        messages = model.modelled_messages(known).persist()
        progress(0, 3)
        if messages.isEmpty():
            raise EmptyLake(f"No message in {lake.root} was delivered and then completed or dead-lettered yet.")
        ended = modelled_messages(messages, what_if_request)
        write_table(lake, model.WHAT_IF, _measured(ended, "queue"))
        progress(1, 3)
        total = rows(_measured(ended))
        progress(2, 3)
        largest = [row["queue"] for row in _largest(messages).collect()]
        messages.unpersist()
    kept = lake.read(spark, model.WHAT_IF).where(fn.col("queue").isin(largest))
    queues = sorted(rows(kept), key=lambda row: (largest.index(row["queue"]), ORDER.index(row["scenario"])))
    progress(3, 3)
    total.sort(key=lambda row: ORDER.index(row["scenario"]))
    return WhatIfResult(asdict(what_if_request), total[0]["messages"], total, queues, model.WHAT_IF.name)


ORDER = (model.HAPPENED, model.IN_FORCE, model.NOT_IN_HEADERS)


def modelled_messages(messages: DataFrame, what_if_request: WhatIfRequest) -> dict[str, DataFrame]:
    """Return the results of messages in each scenario."""
    was, policy, crashed, seed = (
        what_if_request.was,
        what_if_request.policy,
        what_if_request.crashed,
        what_if_request.seed,
    )
    profiles = model.queue_profiles(messages, was, crashed).persist()
    return {
        model.HAPPENED: model.actual_results(messages, profiles),
        model.IN_FORCE: model.replay(messages, model.with_policy(profiles, was, was, crashed), was, was, seed),
        model.NOT_IN_HEADERS: model.replay(
            messages, model.with_policy(profiles, was, policy, crashed), was, policy, seed
        ),
    }


def _measured(ended: dict[str, DataFrame], *by: str) -> DataFrame:
    measured = [model.measure(messages, scenario, *by) for scenario, messages in ended.items()]
    return reduce(DataFrame.unionByName, measured)


def _largest(messages: DataFrame) -> DataFrame:
    return messages.groupBy("queue").count().orderBy(fn.desc("count"), "queue").limit(MAX_QUEUES)
