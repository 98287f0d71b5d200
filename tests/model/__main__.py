"""Print the table of runs: states, steps, seconds, and broken promises."""

from __future__ import annotations

import argparse
import time

from tests.model.runs import ABLATIONS, LONG, RESIDUAL, SOUND, ModelRun


def main() -> int:
    """Explore the requested runs; the exit status is 1 if a run is not as expected."""
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    parser.add_argument("names", nargs="*", help="only runs whose name contains one of these")
    parser.add_argument("--all", action="store_true", help="the long runs too")
    parser.add_argument("--paths", action="store_true", help="print the shortest path to each broken promise")
    chosen = parser.parse_args()
    runs = (*SOUND, *RESIDUAL, *ABLATIONS, *(LONG if chosen.all else ()))
    wanted = [run for run in runs if not chosen.names or any(name in run.name for name in chosen.names)]
    print(f"{'run':<70} {'states':>9} {'steps':>9} {'CPU s':>6}  broken")
    failed = [run for run in wanted if not _explore(run, chosen.paths)]
    return 1 if failed else 0


def _explore(run: ModelRun, with_paths: bool) -> bool:
    began = time.process_time()
    seen = run.explore()
    spent = time.process_time() - began
    expected = run.as_expected(seen)
    states = f"{seen.states}{' ' if seen.complete else '+'}"
    broken = ", ".join(sorted(seen.broken)) or "nothing"
    print(
        f"{run.name:<70} {states:>9} {seen.steps:>9} {spent:>6.1f}  {broken}{'' if expected else '  UNEXPECTED'}",
        flush=True,
    )
    for promise, path in sorted(seen.paths.items()) if with_paths else ():
        print(f"    {promise}:", *path, sep="\n        ")
    return expected


if __name__ == "__main__":
    raise SystemExit(main())
