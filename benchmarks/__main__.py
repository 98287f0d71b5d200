"""`python3 dev.py bench`: prints the table, with the reference of each row measured in the same run."""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path

from benchmarks.bench import Bench
from benchmarks.machine import describe
from benchmarks.options import option_parser
from benchmarks.results_page import PAGE, record
from benchmarks.rows import ON_REQUEST, ROWS, Measure
from benchmarks.systems import servers
from benchmarks.table import Row

CONDITIONS = (
    "One lifecycle is send, receive, complete of a 1 KiB JSON body over keep-alive HTTP, with an API key, "
    "PostgreSQL with fsync, Redis, one worker. Milliseconds are CPU of all server processes, without the load."
)
PIPELINE_CONDITIONS = (
    "An export's CPU is that of Spark's JVM, of the Python driver and of its Python workers, children included. "
    "That of PostgreSQL is given separately. Every copy goes into a new directory."
)


def main() -> int:
    """Measure the rows that are asked for, else all of `ROWS` or of the pipeline's; say so while it works.

    The figures of the service's rows go into docs/performance.md too, unless the run is a quick one.
    """
    options = option_parser().parse_args()
    measures = _asked_for(options)
    conditions = describe()
    print("Conditions: " + ", ".join(f"{name} {value}" for name, value in conditions.items()))
    print((PIPELINE_CONDITIONS if options.pipeline else CONDITIONS) + "\n")
    measured = _measure(measures, 0.1 if options.quick else 1.0)
    rows = [row for group in measured.values() for row in group]
    if options.json:
        table = {"conditions": conditions, "rows": [row.as_json() for row in rows]}
        options.json.write_text(json.dumps(table, indent=2))
    if not options.quick and not options.pipeline:
        PAGE.write_text(record(PAGE.read_text(), [*ROWS, *ON_REQUEST], measured, conditions))
    missed = [f"{row.name}, {row.conditions}" for row in rows if row.verdict == "missed"]
    met = sum(row.verdict == "met" for row in rows)
    print(f"\n{met} of {met + len(missed)} targets met" + (f"; missed: {'; '.join(missed)}" if missed else ""))
    return 0


def _measure(measures: Mapping[str, Measure], scale: float) -> dict[str, list[Row]]:
    """Print each row once it is measured. Return all of them by their requested names."""
    measured: dict[str, list[Row]] = {name: [] for name in measures}
    for name, row in _rows(measures, scale):
        measured[name].append(row)
        print(row.as_text(), flush=True)
    return measured


def _rows(measures: Mapping[str, Measure], scale: float) -> Iterator[tuple[str, Row]]:
    with tempfile.TemporaryDirectory(prefix="peeklock-bench-") as directory:
        folder = Path(directory)
        folder.chmod(0o755)  # PostgreSQL runs as an account of its own
        with servers(folder) as (postgres, redis):
            bench = Bench(postgres, redis, folder, scale)
            for name, measure in measures.items():
                began = time.monotonic()
                print(f"... {name}", file=sys.stderr, flush=True)
                for row in measure(bench):
                    yield name, row
                print(f"... {name} took {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)


def _asked_for(options: argparse.Namespace) -> dict[str, Measure]:
    """Return the named rows in that order. Those of the pipeline are loaded only on request, because they need Spark."""
    known = import_module("benchmarks.pipeline").ROWS if options.pipeline else ROWS | ON_REQUEST
    if unknown := [name for name in options.rows if name not in known]:
        sys.exit(f"dev.py bench: there is no row {', '.join(unknown)} here; choose from {', '.join(known)}")
    return {name: known[name] for name in options.rows or known if options.rows or name not in ON_REQUEST}


if __name__ == "__main__":
    sys.exit(main())
