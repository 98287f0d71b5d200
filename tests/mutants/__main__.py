"""Makes mistakes in domain, broker and store, one at a time, and lists those that no fast test sees.

Each mutant runs against the tests that run its function, the fastest first. Only tests without a server run, on the
store in memory where they can. What survives must stand in `survivors.toml` with the reason why it may.

This is one of two halves: it changes Python. Conditions in SQL and Lua are taken away one by one in
`tests/faults/test_fences.py` and `tests/faults/test_lua_fences.py`, against every engine.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest
from hypothesis import Phase, settings

from pytest_peeklock import ServerProcess
from tests.client.conftest import SERVER_VARIABLE
from tests.mutants.mutations import Mutant, mutants
from tests.mutants.run import MutationRun
from tests.mutants.trial import ROOT, module_of
from tests.mutants.tried_modules import TriedModules

FOLDERS = ("app/domain", "app/broker", "app/store")
TESTS = (
    "tests/domain", "tests/broker", "tests/contract", "tests/store", "tests/maintenance",
    "tests/architecture/test_migrations.py", "tests/architecture/test_field_parity.py",
)  # fmt: skip
CLIENT_TESTS = ("tests/client", "--ignore=tests/client/test_command.py", "--ignore=tests/client/test_readme.py")
"""Tests of the client without those of its processes, which mistakes in this process do not reach."""

SURVIVORS = Path(__file__).with_name("survivors.toml")

OPTIONS = (
    "-q", "--capture=no", "--no-header", "-pno:xdist", "-pno:cacheprovider",
    "-Wignore::pytest.PytestAssertRewriteWarning",
)  # fmt: skip


def files_of(paths: Iterable[str]) -> list[Path]:
    """Every module of these modules and folders."""
    return [file for path in paths for file in sorted((ROOT / path).rglob("*.py")) or [ROOT / path]]


def select_mutants(files: Iterable[Path], sample: int | None) -> list[Mutant]:
    """Every mutant of these modules and folders, or a sample of them, the same in each run."""
    found = [mutant for file in files for mutant in mutants(module_of(file), file.read_text(), str(file))]
    return found if sample is None or sample >= len(found) else random.Random(0).sample(found, sample)


def read_survivors() -> dict[str, str]:
    """The survivors that are known, each with its reason."""
    modules = tomllib.loads(SURVIVORS.read_text())
    return {f"{module}: {mutant}": why for module, ones in modules.items() for mutant, why in ones.items()}


@contextmanager
def shared_server() -> Iterator[None]:
    """Run one server for the tests of the client, so that no trial waits for the start of another one."""
    with ServerProcess() as server:
        os.environ[SERVER_VARIABLE] = server.url
        yield


def main() -> int:
    """Run what the command line asks for; the exit code is 0 where the tests and the list are as they should be."""
    parser = argparse.ArgumentParser(prog="dev.py test --mutants", description=__doc__)
    parser.add_argument(
        "paths", nargs="*", default=FOLDERS, help="modules or folders, such as client/peeklock_client/worker"
    )
    parser.add_argument("--minutes", type=float, default=120.0, help="start no further mutant after this")
    parser.add_argument("--changed", action="store_true", help="only modules that have changed since they were tried")
    parser.add_argument("--sample", type=int, help="run only this many, the same in each run")
    parser.add_argument("--tests", nargs="+", help="what is to see the mistakes")
    arguments = parser.parse_args()
    tried, files = TriedModules(), files_of(arguments.paths)
    files = tried.changed(files) if arguments.changed else files
    if not files:
        print("no module has changed")
        return 0
    run = MutationRun(select_mutants(files, arguments.sample), read_survivors(), arguments.minutes)
    # The same examples in each run; none is kept or made smaller, and a busy machine makes none too slow.
    settings.register_profile(
        "mutants", derandomize=True, database=None, deadline=None, phases=[Phase.explicit, Phase.generate]
    )
    settings.load_profile("mutants")
    is_client = any(Path(path).parts[0] == "client" for path in arguments.paths)
    tests = arguments.tests or (CLIENT_TESTS if is_client else TESTS)
    with tempfile.TemporaryDirectory() as directory, shared_server() if is_client else nullcontext():
        code = pytest.main([*OPTIONS, f"--basetemp={directory}/tests", *tests], plugins=[run])
    is_whole = not arguments.tests and arguments.sample is None
    if int(code) == 0 and is_whole:
        tried.add({module_of(file) for file in files} - run.unfinished_modules())
    return int(code) or int(not run.report())


if __name__ == "__main__":
    sys.exit(main())
