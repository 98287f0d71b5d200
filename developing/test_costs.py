"""What the tests of a run have cost in processor time: the slowest, and whether their tier has kept its budget."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from developing.paths import ROOT

RESULTS = ROOT / "build/tests"
"""The JUnit files of the last run, one for each of its parts."""
PROPERTY = "processor_seconds"
"""The property of a test in these files."""

BUDGETS = {"quick": 900.0, "full": 3400.0}
"""The seconds of processor time that the commands of a tier take together on a slow machine. A fast one takes half of it."""
TOLERANCE = 1.5
"""A run fails if it takes this many times its budget. Busy machines differ by less."""
SLOWEST = 15


class Cost(NamedTuple):
    """The processor time of one test function, with the number of its parameters' combinations."""

    seconds: float
    cases: int
    name: str


def result_file(part: str) -> Path:
    """Return the JUnit file of a part of a run."""
    return RESULTS / f"{part.replace(' ', '-').lower()}.xml"


def slowest(files: Iterable[Path]) -> list[Cost]:
    """Return the test functions that took the most processor time, from JUnit files."""
    seconds: dict[str, list[float]] = {}
    for name, cost in (found for file in files for found in _costs(file)):
        seconds.setdefault(name, []).append(cost)
    costs = (Cost(sum(each), len(each), name) for name, each in seconds.items())
    return sorted(costs, reverse=True)[:SLOWEST]


def table(costs: Iterable[Cost]) -> str:
    """Return these costs as text, a line each."""
    return "".join(f"{cost.seconds:8.1f} s {cost.cases:5}  {cost.name}\n" for cost in costs)


def exceeds_budget(tier: str, seconds: float) -> str:
    """Return the sentence for a run of a tier that took too much processor time; empty if it did not."""
    budget = BUDGETS.get(tier)
    if budget is None or seconds <= budget * TOLERANCE:
        return ""
    return f"the {tier} tests took {seconds:.0f} s of processor time, more than {TOLERANCE} times their budget of {budget:.0f} s"


def _costs(file: Path) -> Iterator[tuple[str, float]]:
    if not file.exists():  # its command has failed before it had a result
        return
    for case in ElementTree.parse(file).iter("testcase"):
        found = case.find(f"properties/property[@name='{PROPERTY}']")
        if found is not None:
            name = f"{case.get('classname')}.{case.get('name')}".partition("[")[0]
            yield name, float(found.get("value", "0"))
