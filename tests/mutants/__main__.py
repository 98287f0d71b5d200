"""Makes mistakes in domain, broker and store, one at a time, and lists those that no fast test sees.

Each mutant runs against the tests that run its function, the fastest first. Only tests without a server run, on the
store in memory where they can. What survives must stand in `survivors.toml` with the reason why it may.

This is one of two halves: it changes Python. Conditions in SQL and Lua are taken away one by one in
`tests/faults/test_fences.py` and `tests/faults/test_lua_fences.py`, against every engine, in each run of the tests.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import Phase, settings

from tests.mutants.mutations import Mutant, mutants
from tests.mutants.run import MutationRun
from tests.mutants.trial import ROOT

FOLDERS = ("app/domain", "app/broker", "app/store")
TESTS = (
    "tests/domain", "tests/broker", "tests/contract", "tests/store", "tests/maintenance",
    "tests/architecture/test_migrations.py", "tests/architecture/test_field_parity.py",
)  # fmt: skip
SURVIVORS = Path(__file__).with_name("survivors.toml")

OPTIONS = (
    "-q", "--capture=no", "--no-header", "-pno:xdist", "-pno:cacheprovider",
    "-Wignore::pytest.PytestAssertRewriteWarning",
)  # fmt: skip


def select_mutants(paths: Sequence[str], sample: int | None) -> list[Mutant]:
    """Every mutant of these modules and folders, or a sample of them, the same in each run."""
    files = [file for path in paths for file in sorted((ROOT / path).rglob("*.py")) or [ROOT / path]]
    found = [mutant for file in files for mutant in mutants(_module(file), file.read_text(), str(file))]
    return found if sample is None or sample >= len(found) else random.Random(0).sample(found, sample)


def _module(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts)


def read_survivors() -> dict[str, str]:
    """The survivors that are known, each with its reason."""
    modules = tomllib.loads(SURVIVORS.read_text())
    return {f"{module}: {mutant}": why for module, ones in modules.items() for mutant, why in ones.items()}


def main() -> int:
    """Run what the command line asks for; the exit code is 0 where the tests and the list are as they should be."""
    parser = argparse.ArgumentParser(prog="dev.py test --mutants", description=__doc__)
    parser.add_argument("paths", nargs="*", default=FOLDERS, help="modules or folders; without any, all three")
    parser.add_argument("--minutes", type=float, default=120.0, help="start no further mutant after this")
    parser.add_argument("--sample", type=int, help="run only this many, the same in each run")
    parser.add_argument("--tests", nargs="+", default=TESTS, help="what is to see the mistakes")
    arguments = parser.parse_args()
    run = MutationRun(select_mutants(arguments.paths, arguments.sample), read_survivors(), arguments.minutes)
    # The same examples in each run; none is kept or made smaller, and a busy machine makes none too slow.
    settings.register_profile(
        "mutants", derandomize=True, database=None, deadline=None, phases=[Phase.explicit, Phase.generate]
    )
    settings.load_profile("mutants")
    with tempfile.TemporaryDirectory() as directory:
        code = pytest.main([*OPTIONS, f"--basetemp={directory}/tests", *arguments.tests], plugins=[run])
    return int(code) or int(not run.report())


if __name__ == "__main__":
    sys.exit(main())
