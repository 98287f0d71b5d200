"""The rows of the data pipeline, which need Spark and Java; each is measured as those of the service are."""

from collections.abc import Callable, Iterator

from benchmarks.bench import Bench
from benchmarks.pipeline import export, growth
from benchmarks.rows import sealing
from benchmarks.table import Row

ROWS: dict[str, Callable[[Bench], Iterator[Row]]] = {
    "export": export.measure,
    "growth": growth.measure,
    "sealing": sealing.measure,
}
"""What `--pipeline` runs when no row is named."""
