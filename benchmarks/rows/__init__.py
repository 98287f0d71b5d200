"""The rows of the table, one file each, and the order in which they run.

A row's file holds `measure`, which starts what it needs, measures, and yields each `Row` once it is measured.
"""

from collections.abc import Callable, Iterator
from typing import TypeAlias

from benchmarks.bench import Bench
from benchmarks.rows import (
    backlog,
    batch,
    commits,
    counts,
    filters,
    groups,
    histories,
    interpreters,
    large,
    lifecycle,
    open_arrivals,
    prefetch,
    profile,
    renewals,
    sealing,
    second_worker,
    send,
    snapshot,
    soak,
    sqlite,
    sqs,
    topics,
    transactions,
    two_requests,
    waiting,
    woken,
    worker,
    worker_memory,
)
from benchmarks.table import Row

Measure: TypeAlias = Callable[[Bench], Iterator[Row]]

ROWS: dict[str, Measure] = {
    "waiting": waiting.measure,
    "woken": woken.measure,
    "filters": filters.measure,
    "lifecycle": lifecycle.measure,
    "open-arrivals": open_arrivals.measure,
    "prefetch": prefetch.measure,
    "send": send.measure,
    "batch": batch.measure,
    "two-requests": two_requests.measure,
    "sqs": sqs.measure,
    "groups": groups.measure,
    "histories": histories.measure,
    "transactions": transactions.measure,
    "commits": commits.measure,
    "topics": topics.measure,
    "large": large.measure,
    "profile": profile.measure,
    "sqlite": sqlite.measure,
    "backlog": backlog.measure,
    "snapshot": snapshot.measure,
    "counts": counts.measure,
    "renewals": renewals.measure,
    "sealing": sealing.measure,
    "second-worker": second_worker.measure,
    "worker": worker.measure,
}
"""The rows that run if no row is named."""

ON_REQUEST: dict[str, Measure] = {
    "soak": soak.measure,
    "worker-memory": worker_memory.measure,
    "interpreters": interpreters.measure,
}
"""The rows that run only if they are named: they take long, or need more than this machine has."""
