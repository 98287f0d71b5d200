"""A test that hangs is a failure, and the tests after it still run."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

HANGING_TESTS = """
import asyncio
import threading


async def test_a_coroutine_that_waits_for_ever():
    await asyncio.Event().wait()


async def test_a_loop_that_never_ends():
    while True:
        await asyncio.sleep(0)


async def test_a_thread_that_is_waited_for():
    await asyncio.to_thread(threading.Event().wait)


def test_something_else():
    pass
"""
NAMES = ("coroutine_that_waits_for_ever", "loop_that_never_ends", "thread_that_is_waited_for")


@pytest.mark.nightly
def test_a_test_that_hangs_fails_and_the_next_one_runs(tmp_path: Path) -> None:
    (tmp_path / "test_hanging.py").write_text(HANGING_TESTS)
    quick = ["--timeout=4", "--override-ini=faulthandler_timeout=2", "-n1", "--dist=worksteal"]
    quiet = ["-p", "no:cacheprovider", "-p", "no:schemathesis", f"--config-file={ROOT / 'pyproject.toml'}"]
    command = [sys.executable, "-m", "pytest", *quick, *quiet, str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=240)
    assert "3 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    for name in NAMES:
        assert f"crashed while running 'test_hanging.py::test_a_{name}'" in done.stdout
    assert done.stderr.count("Timeout (0:00:02)!") == len(NAMES)  # the stacks of all threads follow
