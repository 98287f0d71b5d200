"""`python3 dev.py bench`: prints the table, with the reference of each row measured in the same run."""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.machine import describe
from benchmarks.rows import ROWS, Bench, Row
from benchmarks.systems import servers


def main() -> int:
    """Measure the rows that are asked for, all by default; say so while it works."""
    options = _options()
    conditions = describe()
    print("Conditions: " + ", ".join(f"{name} {value}" for name, value in conditions.items()))
    print(
        "One lifecycle is send, receive, complete of a 1 KiB JSON body over keep-alive HTTP, with an API key, "
        "PostgreSQL with fsync, Redis, one worker. Milliseconds are CPU of all server processes; the load's is not in.\n"
    )
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="peeklock-bench-") as folder:
        Path(folder).chmod(0o755)
        with servers(Path(folder)) as (postgres, redis):
            bench = Bench(postgres, redis, Path(folder), 0.1 if options.quick else 1.0)
            for name in options.rows or ROWS:
                began = time.monotonic()
                print(f"... {name}", file=sys.stderr, flush=True)
                for row in ROWS[name](bench):
                    rows.append(row)
                    _show(row)
                print(f"... {name} took {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    if options.json:
        options.json.write_text(
            json.dumps({"conditions": conditions, "rows": [row.as_json() for row in rows]}, indent=2)
        )
    missed = [row.what for row in rows if not row.met]
    print(
        f"\n{len(rows) - len(missed)} of {len(rows)} targets met" + (f"; missed: {'; '.join(missed)}" if missed else "")
    )
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="dev.py bench", description=__doc__)
    parser.add_argument("rows", nargs="*", choices=[*ROWS, []], help="which rows; all by default")
    parser.add_argument("--quick", action="store_true", help="a tenth of the work; figures are only a hint")
    parser.add_argument("--json", type=Path, help="write the table to this file too")
    return parser.parse_args()


def _show(row: Row) -> None:
    print(f"{'met   ' if row.met else 'MISSED'} {row.what}")
    print(f"         measured   {row.measured}")
    print(f"         reference  {row.reference}")
    print(f"         target     {row.target}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
