"""The developer's command: what it needs, and the parts of a test run that run side by side."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from developing.newest_python import newest_of, supported_versions
from developing.parallel import run_parallel
from developing.processes import Refusal
from developing.sdk import GENERATORS, make_sdk
from developing.test_costs import BUDGETS, SLOWEST, TOLERANCE, exceeds_budget, slowest, table

ROOT = Path(__file__).parents[2]
PASSING_SCRIPT = "print('1 passed')"
FAILING_SCRIPT = "import sys; print('FAILED tests/test_one.py::test_it - because'); print('1 failed'); sys.exit(3)"


@pytest.mark.parametrize(
    ("first", "second", "code"),
    [(PASSING_SCRIPT, PASSING_SCRIPT, 0), (FAILING_SCRIPT, PASSING_SCRIPT, 3), (PASSING_SCRIPT, FAILING_SCRIPT, 3)],
)
def test_the_exit_code_is_that_of_the_part_that_failed(first: str, second: str, code: int) -> None:
    commands = {"first": (sys.executable, "-c", first), "second": (sys.executable, "-c", second)}
    assert run_parallel(commands)[0] == code


def test_the_last_lines_name_each_part_and_the_tests_that_failed(capsys: pytest.CaptureFixture[str]) -> None:
    run_parallel({"first": (sys.executable, "-c", FAILING_SCRIPT), "second": (sys.executable, "-c", PASSING_SCRIPT)})
    lines = capsys.readouterr().out.splitlines()
    assert lines[:4] == ["---- first", "FAILED tests/test_one.py::test_it - because", "1 failed", ""]
    assert lines[4:7] == ["---- second", "1 passed", ""]
    failed, named, passed = lines[7:]
    assert failed.startswith("---- first: FAILED with code 3 (")
    assert named == "FAILED tests/test_one.py::test_it - because"
    assert passed.startswith("---- second: passed (")


def test_the_parts_run_at_the_same_time(tmp_path: Path) -> None:
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
    assert run_parallel(commands)[0] == 0


JUNIT = """<testsuites><testsuite>{cases}</testsuite></testsuites>"""
CASE = """<testcase classname="tests.one" name="{name}"><properties><property name="processor_seconds" value="{seconds}"/>
</properties></testcase>"""


def junit_file(directory: Path, name: str, costs: Sequence[tuple[str, float]]) -> Path:
    """Write a JUnit file with the processor time of tests."""
    file = directory / name
    file.write_text(JUNIT.format(cases="".join(CASE.format(name=name, seconds=seconds) for name, seconds in costs)))
    return file


def test_the_slowest_tests_of_all_parts_are_named_with_the_sum_of_their_cases(tmp_path: Path) -> None:
    one = junit_file(tmp_path, "one.xml", [("test_a[1]", 1.5), ("test_a[2]", 2.0), ("test_b", 3.0)])
    other = junit_file(
        tmp_path, "other.xml", [("test_c", 9.25), *((f"test_{number}", 0.0) for number in range(SLOWEST))]
    )
    found = slowest([one, other])
    assert len(found) == SLOWEST
    assert [tuple(cost) for cost in found[:3]] == [
        (9.25, 1, "tests.one.test_c"), (3.5, 2, "tests.one.test_a"), (3.0, 1, "tests.one.test_b"),
    ]  # fmt: skip
    assert table(found[1:2]).split() == ["3.5", "s", "2", "tests.one.test_a"]


@pytest.mark.parametrize("tier", BUDGETS)
def test_a_tier_that_exceeds_its_budget_by_half_is_named(tier: str) -> None:
    assert exceeds_budget(tier, BUDGETS[tier] * TOLERANCE) == ""
    assert exceeds_budget(tier, BUDGETS[tier] * TOLERANCE + 1).startswith(f"the {tier} tests took ")


def test_what_runs_before_a_change_lands_is_the_full_tier() -> None:
    assert (ROOT / ".ci/run").read_text().splitlines()[-1] == "exec python3 dev.py test --full"


def test_it_needs_nothing_but_python() -> None:
    """Without site-packages, as before `.venv` exists."""
    done = subprocess.run([sys.executable, "-S", ROOT / "dev.py", "--help"], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_the_help_of_the_benchmark_installs_nothing() -> None:
    """Without site-packages too: nothing could be installed, or imported."""
    done = subprocess.run([sys.executable, "-S", ROOT / "dev.py", "bench", "--help"], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b"usage: dev.py bench")


@pytest.mark.parametrize("language", GENERATORS)
def test_an_sdk_replaces_no_file(language: str, tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("kept")
    with pytest.raises(Refusal, match="is not empty"):
        make_sdk(language, tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["notes"]


def interpreter(folder: Path, prints: str) -> Path:
    """Return a program that answers any question with this line."""
    program = folder / f"python-{len([*folder.iterdir()])}"
    program.write_text(f"#!/bin/sh\necho '{prints}'\n")
    program.chmod(0o700)
    return program


SUPPORTED = [(3, 98), (3, 99)]


def test_the_newest_release_that_is_supported_is_chosen(tmp_path: Path) -> None:
    answers = ("3 98 final", "3 99 final", "3 97 final", "4 0 final", "2 99 final")
    older, newest, *_ = programs = [interpreter(tmp_path, answer) for answer in answers]
    assert newest_of(programs, SUPPORTED) == ((3, 99), newest)
    assert newest_of([older], SUPPORTED) == ((3, 98), older)


@pytest.mark.parametrize("answer", ["3 99 candidate", "pyenv: python3.99: command not found", ""])
def test_a_program_that_is_no_release_of_python_is_not_chosen(tmp_path: Path, answer: str) -> None:
    assert newest_of([interpreter(tmp_path, answer), tmp_path / "missing"], SUPPORTED) is None


def test_a_version_that_is_not_newer_is_not_chosen() -> None:
    assert newest_of([Path(sys.executable)], supported_versions()) is None


def test_the_versions_of_the_project_file_are_supported() -> None:
    assert supported_versions()[0] == (3, 11)
    assert sys.version_info[:2] in supported_versions()
