"""The page of metrics: what a server answers at `/metrics`."""

from __future__ import annotations

import re
from time import perf_counter

from prometheus_client.parser import text_string_to_metric_families

from app.broker.administration.queues import QueueWithCounts
from app.domain.queue import Queue, QueueCounts, QueueSettings
from app.http.metrics import LOCK_STORE_STATES, STATES, Metrics, MetricsSnapshot
from developing.paths import ROOT
from developing.reference import markdown, words

INTRODUCTION = """
`GET /metrics` answers every metric of a server in the text format of Prometheus. A server with several workers adds up
the counts of its processes. [Monitoring](../monitoring.md) says which metrics to watch, and who sees the names of queues.
"""
AFTER_METRICS = f"""
The states of messages are {", ".join(f"`{state}`" for state in STATES)}. Those of the lock store are
{", ".join(f"`{state}`" for state in LOCK_STORE_STATES)}. While the store cannot be reached, the metrics of queues and
messages are missing. Figures of queues are counted at most once per second, however many callers ask.
"""
OPERATIONS = """
## Operations and outcomes

`operation` is an operation id of [the HTTP reference](http-api.md), such as `send_message`. The document and the pages
below `/docs` are counted as `read_page`. `outcome` is `ok`, the `code` of the problem that was answered
([problem codes](problems.md)), or `client-gone` where the client closed its connection first. Requests that cannot be
read, and paths that do not exist, are not counted.
"""
MESSAGE_EVENTS = """
One process counts each event, so sum over all servers. Redrives, moves, restores and forwarded dead letters are not counted
here. A process has series for the first 2,000 queues that it serves. Other queues count in the totals only. A deleted
queue has no series, and leaves its place to another queue when the process answers a request for metrics.
"""
STATEMENTS = "SQLite has `write` alone. The others are those of PostgreSQL and MariaDB."
SECTIONS = (
    ("events", "Events", "event", "counts", ""),
    ("message_events", "Events of messages", "event", "counts", MESSAGE_EVENTS),
    ("passes", "Passes", "pass", "what it does", ""),
    ("statements", "Statements", "statement", "carries", STATEMENTS),
)
"""The tables of what labels say: the table of words, the heading, the columns, and the text below."""


def page() -> str:
    """Return the page: every metric, then the values of labels."""
    text = _exposition()
    tables = [
        part
        for name, heading, first, second, below in SECTIONS
        for part in (f"## {heading}", _words(name, first, second), below)
    ]
    return markdown.page(
        "Metrics",
        INTRODUCTION,
        "## All metrics",
        _metrics_table(text),
        AFTER_METRICS,
        _buckets_table(text),
        OPERATIONS,
        *tables,
    )


def _exposition() -> str:
    """Return what a server answers that has counted one of everything."""
    metrics = Metrics()
    metrics.observe("send_message", "ok", perf_counter())
    metrics.count("locks_expired")
    metrics.count_messages(1, "sent")
    metrics.record_batch("send", 1)
    metrics.record_pass("expiry", "ok")
    queue = Queue(1, "orders", QueueSettings(), 1, 0, 0)
    return metrics.render(MetricsSnapshot([QueueWithCounts(queue, QueueCounts())], "ok")).decode()


def _metrics_table(text: str) -> str:
    rows: list[tuple[str, ...]] = []
    for family in text_string_to_metric_families(text):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = dict.fromkeys(label for sample in family.samples for label in sample.labels if label != "le")
        rows.append((f"`{name}`", family.type, ", ".join(f"`{label}`" for label in labels), family.documentation))
    return markdown.table(("metric", "type", "labels", "meaning"), rows)


def _buckets_table(text: str) -> str:
    ends: dict[str, list[str]] = {}
    for name, end in re.findall(r'^(\w+)_bucket{.*?le="([^"]+)"', text, re.MULTILINE):
        if end != "+Inf":
            ends.setdefault(name, []).append(f"{float(end):g}")
    return markdown.table(
        ("histogram", "ends of its buckets"), [(f"`{name}`", ", ".join(found)) for name, found in ends.items()]
    )


def _words(name: str, first: str, second: str) -> str:
    said = words.of(words.METRIC_WORDS, name, _names(name) or words.METRIC_WORDS[name])
    return markdown.table((first, second), [(f"`{word}`", meaning) for word, meaning in said.items()])


def _names(table: str) -> set[str]:
    """Return the names that the code counts by, where a pattern finds them. A server's answer proves the others."""
    pattern = {"events": r'counters\.count\(\s*"(\w+)"', "statements": r'(?:_observed\(|_observe\()\s*"(\w+)"'}.get(
        table
    )
    source = "\n".join(file.read_text("utf-8") for file in sorted((ROOT / "app").rglob("*.py")))
    return set(re.findall(pattern, source)) if pattern else set()
