"""Runs collected tests in a fork of the process that has collected them, so that a trial costs no more than its tests."""

from __future__ import annotations

import cProfile
import gc
import json
import os
import resource
import signal
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import zip_longest
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

from tests.mutants.mutations import Mutant

ROOT = Path(__file__).resolve().parents[2]
CLIENT_ROOT = ROOT / "client"
CODE_PREFIXES = tuple(f"{folder}{os.sep}" for folder in (ROOT / "app", CLIENT_ROOT / "peeklock_client"))
"""Where the code is in which mistakes are made."""
TIMEOUT_SECONDS = 60
"""What one test may take by the clock in a trial, also on a busy machine."""
IDLE_SECONDS = 5
"""How long a trial may use almost no processor time before it counts as timed out: it waits for what never comes."""
IDLE_SHARE = 0.01
"""Of one processor: a trial that uses less is idle. Loops that only wake up from time to time use less, too."""
MAX_MEMORY = 4 << 30
"""Bytes of address space, so that a loop that no longer ends cannot fill the machine."""


class TrialOutcome(Enum):
    """What became of a mutant."""

    SURVIVED = "survived"
    KILLED = "killed"
    TIMED_OUT = "timed out"
    BROKEN = "broken"
    """Its trial ended in another way than by the tests, which says nothing of them."""
    NOT_REACHED = "not reached"
    NOT_RUN = "not run"


EXIT_CODE_OUTCOMES = {0: TrialOutcome.SURVIVED, 1: TrialOutcome.KILLED, -signal.SIGALRM: TrialOutcome.TIMED_OUT}
"""What the exit code of a trial says; every other one is an error of the trial."""
ERROR_EXIT_CODE = 70


@dataclass(frozen=True, slots=True)
class BaselineResult:
    """What a test does without any mistake: whether it passes, its seconds of processor time, the functions it runs."""

    passes: bool
    seconds: float
    function_ids: Sequence[str]


def module_of(file: Path) -> str:
    """The name by which the module in a file is imported: the packages of the client are below a folder of their own."""
    root = CLIENT_ROOT if file.is_relative_to(CLIENT_ROOT) else ROOT
    return ".".join(file.relative_to(root).with_suffix("").parts)


def file_of(module: str) -> Path:
    """The file of a module, by the name by which it is imported."""
    root = CLIENT_ROOT if module.startswith("peeklock_client") else ROOT
    return root.joinpath(*module.split(".")).with_suffix(".py")


def function_id_of(code: CodeType) -> str:
    """The function or method that this code belongs to; an inner function belongs to the one around it."""
    return f"{module_of(Path(code.co_filename))}: {code.co_qualname.partition('.<locals>')[0]}"


def loaded_functions() -> Mapping[str, Sequence[FunctionType]]:
    """Every function that is loaded and may get mistakes, by place."""
    found = defaultdict[str, list[FunctionType]](list)
    for tracked in gc.get_objects():
        if isinstance(tracked, FunctionType) and tracked.__code__.co_filename.startswith(CODE_PREFIXES):
            found[function_id_of(tracked.__code__)].append(tracked)
    return found


def run_baseline(tests: Sequence[pytest.Item]) -> Mapping[str, BaselineResult]:
    """Run each test without any mistake, and note what it runs."""
    with tempfile.TemporaryFile("w+") as results_file:

        def run_and_note() -> int:
            recorder = Recorder()
            json.dump(
                {test.nodeid: recorder.run(test, next_test) for test, next_test in _with_next(tests)}, results_file
            )
            results_file.flush()
            return 0

        if (code := _in_a_fork(run_and_note)) != 0:
            raise RuntimeError(f"the run without mistakes ended with {code}")
        results_file.seek(0)
        return {test: BaselineResult(*fields) for test, fields in json.load(results_file).items()}


def run_trial(mutant: Mutant, functions: Sequence[FunctionType], tests: Sequence[pytest.Item]) -> TrialOutcome:
    """Run tests against a mutant up to the first that fails."""

    def plant_and_run() -> int:
        threading.Thread(target=_end_when_idle, daemon=True).start()
        for function in functions:
            if function.__code__.co_qualname == mutant.code.co_qualname:
                function.__code__ = mutant.code
        for test, next_test in _with_next(tests):
            signal.alarm(TIMEOUT_SECONDS)  # ends the process: no handler of ours could interrupt every loop
            if not _passes(test, next_test):
                return 1
        return 0

    return EXIT_CODE_OUTCOMES.get(_in_a_fork(plant_and_run), TrialOutcome.BROKEN)


def _end_when_idle() -> None:
    """End this process, as its alarm would, once it has been idle for long enough."""
    used = time.process_time()
    while True:
        time.sleep(IDLE_SECONDS)
        before, used = used, time.process_time()
        if used - before < IDLE_SECONDS * IDLE_SHARE:
            os.kill(os.getpid(), signal.SIGALRM)


def _with_next(tests: Sequence[pytest.Item]) -> zip_longest[tuple[pytest.Item, pytest.Item | None]]:
    return zip_longest(tests, tests[1:])


def _passes(test: pytest.Item, next_test: pytest.Item | None) -> bool:
    failed_before = test.session.testsfailed
    test.ihook.pytest_runtest_protocol(item=test, nextitem=next_test)
    return test.session.testsfailed == failed_before


class Recorder:
    """Notes which functions run, in every thread that starts from now on. cProfile does so at twice the time."""

    def __init__(self) -> None:
        self._profiles: list[cProfile.Profile] = []
        self._profile_thread()
        threading.setprofile(self._profile_thread)

    def run(self, test: pytest.Item, next_test: pytest.Item | None) -> tuple[bool, float, list[str]]:
        """Run a test; the fields of `BaselineResult`."""
        for profile in self._profiles:
            profile.clear()
        begun = time.process_time()
        passes = _passes(test, next_test)
        seconds = time.process_time() - begun
        codes = (entry.code for profile in self._profiles for entry in profile.getstats())
        function_ids = {
            function_id_of(code)
            for code in codes
            if isinstance(code, CodeType) and code.co_filename.startswith(CODE_PREFIXES)
        }
        return passes, seconds, sorted(function_ids)

    def _profile_thread(self, *_: Any) -> None:
        self._profiles.append(cProfile.Profile(builtins=False))
        self._profiles[-1].enable()


def _in_a_fork(work: Callable[[], int]) -> int:
    """Do work in a fork and return its exit code, or the signal that ended it, negated. What it started ends with it."""
    child = os.fork()
    if child == 0:
        _run_and_exit(work)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    os.killpg(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _run_and_exit(work: Callable[[], int]) -> None:
    code = ERROR_EXIT_CODE
    try:
        os.setpgid(0, 0)
        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, sys.stdout.fileno())
        os.dup2(silence, sys.stderr.fileno())
        code = work()
    finally:
        os._exit(code)
