"""Parts of a test run that run side by side: all are run, and a failure of any is red and is named at the end."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

PASSES = "print('1 passed')"
FAILS = "import sys; print('FAILED tests/test_one.py::test_it - because'); print('1 failed'); sys.exit(3)"


@pytest.fixture(scope="module")
def dev() -> ModuleType:
    """The developer's command, as a module."""
    spec = importlib.util.spec_from_file_location("dev", Path(__file__).parents[2] / "dev.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("first", "second", "code"), [(PASSES, PASSES, 0), (FAILS, PASSES, 3), (PASSES, FAILS, 3)])
def test_the_exit_code_is_that_of_the_part_that_failed(dev: ModuleType, first: str, second: str, code: int) -> None:
    commands = {"first": (sys.executable, "-c", first), "second": (sys.executable, "-c", second)}
    assert dev.side_by_side(commands) == code


def test_the_last_lines_name_each_part_and_the_tests_that_failed(
    dev: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    dev.side_by_side({"first": (sys.executable, "-c", FAILS), "second": (sys.executable, "-c", PASSES)})
    lines = capsys.readouterr().out.splitlines()
    assert lines[:4] == ["---- first", "FAILED tests/test_one.py::test_it - because", "1 failed", ""]
    assert lines[4:7] == ["---- second", "1 passed", ""]
    failed, named, passed = lines[7:]
    assert failed.startswith("---- first: FAILED with code 3 (")
    assert named == "FAILED tests/test_one.py::test_it - because"
    assert passed.startswith("---- second: passed (")


def test_the_parts_run_at_the_same_time(dev: ModuleType, tmp_path: Path) -> None:
    meets = (
        "import pathlib, sys, time\n"
        "own, other = map(pathlib.Path, sys.argv[1:])\n"
        "own.touch()\n"
        "until = time.monotonic() + 60\n"
        "while not other.exists() and time.monotonic() < until: time.sleep(0.01)\n"
        "sys.exit(not other.exists())\n"
    )
    one, two = tmp_path / "one", tmp_path / "two"
    commands = {"one": (sys.executable, "-c", meets, one, two), "two": (sys.executable, "-c", meets, two, one)}
    assert dev.side_by_side(commands) == 0
