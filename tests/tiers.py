"""The three tiers of a test run, and the one rule that says which test belongs where.

- `quick` proves every rule and verb on SQLite and in memory. Few of its tests need a server: they run every verb through HTTP
  on PostgreSQL with Redis and on MariaDB, and one export with its audit on Spark.
- `full` adds what must pass before a change lands: every engine and lock store, faults of real processes, proxies, the browser,
  the pages of the documentation, the chart and the pipeline.
- `nightly` adds what takes too long for every change, or needs another broker. Another test shows the same kind of thing in
  every full run.

A mark with the name of a tier decides. Without one, a test belongs to `full` if its directory is one of `FULL_DIRECTORIES`, if
it needs one of `FULL_FIXTURES`, or if a parameter names a server; every other test is quick. So a test joins the right tier by
what it needs, and a test of the quick tier that starts a server says so with `@pytest.mark.quick`.
"""

from __future__ import annotations

from enum import IntEnum

import pytest

from tests.servers import KINDS


class Tier(IntEnum):
    """A run of a tier has the tests of the tiers before it too."""

    QUICK = 1
    FULL = 2
    NIGHTLY = 3


TIERS = {tier.name.lower(): tier for tier in Tier}
"""The tiers by the names that marks and the option `--tier` use."""

FULL_DIRECTORIES = frozenset({
    "benchmarks", "chart", "faults", "main", "mutants", "pipeline", "proxies", "sdks", "sqs_clients", "testing",
})  # fmt: skip
"""Directories of `tests/` whose tests run processes of their own: servers, pytest, Helm, Spark, compilers."""

FULL_FIXTURES = frozenset({"private_server", "require_server", "serve_as_reader"})
"""Fixtures that start a server, or install what a page of the documentation names."""


def tier_of(item: pytest.Item) -> Tier:
    """Return the tier of a test."""
    for name in reversed(TIERS):
        if item.get_closest_marker(name):
            return TIERS[name]
    return Tier.FULL if _needs_more(item) else Tier.QUICK


def _needs_more(item: pytest.Item) -> bool:
    directory = item.nodeid.split("/")[1]
    fixtures = getattr(item, "fixturenames", ())
    callspec = getattr(item, "callspec", None)
    words = " ".join(str(value) for value in callspec.params.values()).replace("-", " ").split() if callspec else ()
    return directory in FULL_DIRECTORIES or not (FULL_FIXTURES.isdisjoint(fixtures) and KINDS.keys().isdisjoint(words))
