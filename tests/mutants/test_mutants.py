"""The mutation run: which mistakes it makes, and that it sees which of them the tests see."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.mutants.__main__ import files_of, read_survivors, select_mutants
from tests.mutants.mutations import mutants
from tests.mutants.run import SERVER_FIXTURE
from tests.mutants.trial import TIMEOUT_SECONDS, file_of, module_of
from tests.mutants.tried_modules import TriedModules

ROOT = Path(__file__).resolve().parents[2]
NIGHTLY_MINUTES = 30
"""Of a night's run, for the mutants of changed rules."""


def mutations_of(step: str) -> list[str]:
    """The mistakes that are made in a function of these steps."""
    source = "def function(a, b):\n" + textwrap.indent(step, "    ")
    return [mutant.mutation for mutant in mutants("one", source)]


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ("c = a < b", ["a < b -> a <= b"]),
        ("c = a is None and b", ["a is None and b -> a is None or b", "a is None -> a is not None"]),
        ("c = not a", ["not a -> a"]),
        ("c = a + 60", ["a + 60 -> a - 60", "60 -> 61"]),
        ("c = min(a, b)", ["min(a, b) -> max(a, b)"]),
        ("if a: b = 'text'", ["if a: -> if not a:"]),
        ("raise Refusal", ["raise Refusal -> pass"]),
        ("await store(a)", ["await store(a) -> pass"]),
        ("return a", ["return a -> return None"]),
    ],
)
def test_each_mistake(step: str, expected: list[str]) -> None:
    assert mutations_of(step if "await" not in step else f"async def inner():\n    {step}") == expected


def test_equal_mistakes_in_one_function_are_numbered() -> None:
    assert mutations_of("c = [True, True]") == ["True -> False", "True -> False (2)"]


@pytest.mark.parametrize("step", ["'text'", "c: int | None", "def inner(a: A | B) -> C | D: ..."])
def test_what_no_step_depends_on_is_left_alone(step: str) -> None:
    assert mutations_of(step) == []


def test_a_mutant_is_named_by_its_method_and_carries_the_code_of_it() -> None:
    source = "class A:\n    @property\n    def b(self):\n        return [c for c in self.d if c < 2]\n"
    found = {str(mutant): mutant.code for mutant in mutants("one", source)}
    assert list(found) == [
        "one: A.b: return [c for c in self.d if c < 2] -> return None",
        "one: A.b: c < 2 -> c <= 2",
        "one: A.b: 2 -> 3",
    ]
    assert {code.co_qualname for code in found.values()} == {"A.b"}


def test_what_is_outside_of_functions_is_left_alone() -> None:
    assert list(mutants("one", "LIMIT = 60 * 60\n\nclass A:\n    b: int = 1\n\ndef c(d=1): ...\n")) == []


def test_a_method_keeps_its_only_super() -> None:
    source = "class A(B):\n    def c(self):\n        super().c()\n        d()\n"
    assert [mutant.mutation for mutant in mutants("one", source)] == ["d() -> pass"]


@pytest.mark.nightly
def test_every_survivor_in_the_list_is_still_a_mistake_that_is_made() -> None:
    modules = {file_of(name.partition(":")[0]) for name in read_survivors()}
    assert read_survivors().keys() <= {str(mutant) for mutant in select_mutants(sorted(modules), None)}


# ---- the run ---------------------------------------------------------------------------------------------------------

TESTS = """
import os, pytest
from app.domain.retry import FixedDelay, NoDelay, retry_delay

def test_an_answer():
    assert retry_delay(FixedDelay(5), 1, 0.0) == 5

def test_that_no_answer_ends():
    if retry_delay(NoDelay(), 1, 0.0) != 0:
        os._exit({end})

def test_that_fails_without_a_change():
    assert retry_delay(FixedDelay(5), 1, 0.0) is None
"""


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What a run over one module prints, whose tests see one mistake, and end the process at another."""
    file = tmp_path_factory.mktemp("tests") / "test_retry.py"
    file.write_text(TESTS.format(end=99))
    command = (sys.executable, "-m", "tests.mutants", "app/domain/retry.py", "--tests", file)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


def test_a_mutant_that_no_test_sees_survives(output: str) -> None:
    assert "survived: app.domain.retry: retry_delay: failures - 1 -> failures + 1 (NOT LISTED)" in output


def test_an_end_that_is_no_answer_of_the_tests_is_not_taken_for_one(output: str) -> None:
    assert "broken: app.domain.retry: retry_delay: 0 -> 1" in output


def test_a_test_that_fails_without_a_mutant_is_named_and_kills_none(output: str) -> None:
    assert "left out: " in output
    assert "test_that_fails_without_a_change" in output
    assert "1 killed" in output


def test_the_last_lines_count_every_outcome(output: str) -> None:
    assert "survived, 1 killed, 0 timed out, 1 broken, 0 not reached, 0 not run" in output


CLIENT_TESTS = """
from peeklock_client import ConstantRetry

def test_an_answer():
    assert ConstantRetry(5).delay_seconds(1) == 5
"""


@pytest.mark.nightly
def test_mistakes_in_the_client_are_planted_too(tmp_path: Path) -> None:
    file = tmp_path / "test_retry.py"
    file.write_text(CLIENT_TESTS)
    command = (sys.executable, "-m", "tests.mutants", "client/peeklock_client/worker/retry.py", "--tests", file)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert "not reached: peeklock_client.worker.retry: LinearRetry.delay_seconds" in done.stdout, done.stderr
    assert "0 killed" not in done.stdout


@pytest.mark.parametrize(
    ("file", "module"),
    [("app/domain/retry.py", "app.domain.retry"), ("client/peeklock_client/errors.py", "peeklock_client.errors")],
)
def test_a_module_has_the_name_by_which_it_is_imported(file: str, module: str) -> None:
    assert (module_of(ROOT / file), file_of(module)) == (module, ROOT / file)


WAITING_TESTS = """
import threading
from app.domain.retry import FixedDelay, retry_delay

def test_that_waits_for_ever_after_a_mistake():
    if retry_delay(FixedDelay(5), 1, 0.0) != 5:
        threading.Event().wait()
"""


@pytest.mark.nightly
def test_a_trial_that_only_waits_is_timed_out_before_its_time_is_over(tmp_path: Path) -> None:
    file = tmp_path / "test_waiting.py"
    file.write_text(WAITING_TESTS)
    command = (sys.executable, "-m", "tests.mutants", "app/domain/retry.py", "--tests", file)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=TIMEOUT_SECONDS)
    assert "timed out: app.domain.retry: retry_delay: return " in done.stdout


@pytest.mark.nightly
@pytest.mark.timeout(3 * NIGHTLY_MINUTES * 60)
def test_no_mutant_of_a_rule_that_has_changed_survives() -> None:
    """The others have a line in tried_modules.txt. What does not fit into the time is left to the next night."""
    command = (sys.executable, "-m", "tests.mutants", "app/domain", "--changed", f"--minutes={NIGHTLY_MINUTES}")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_module_is_tried_again_after_a_change(tmp_path: Path) -> None:
    tried, modules = TriedModules(tmp_path / "tried.txt"), files_of(["app/domain/retry.py", "app/domain/delivery.py"])
    tried.file.write_text("app.domain.delivery 0\napp.domain.that_is_gone 0\n")
    assert tried.changed(modules) == modules
    tried.add(["app.domain.retry"])
    assert tried.changed(modules) == modules[1:]
    assert tried.read().keys() == {"app.domain.delivery", "app.domain.retry"}


def test_the_fixture_by_which_tests_with_a_server_are_left_out_exists(request: pytest.FixtureRequest) -> None:
    assert callable(request.getfixturevalue(SERVER_FIXTURE))


@pytest.mark.nightly
def test_a_module_of_tests_that_cannot_be_loaded_ends_the_run(tmp_path: Path) -> None:
    file = tmp_path / "test_unloadable.py"
    file.write_text("import a_module_that_does_not_exist")
    command = (sys.executable, "-m", "tests.mutants", "app/domain/retry.py", "--tests", file)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "No module named 'a_module_that_does_not_exist'" in done.stdout
    assert "mutants; running" not in done.stdout
