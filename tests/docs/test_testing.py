"""docs/testing.md: its tests pass as they stand."""

from __future__ import annotations

import re
from pathlib import Path

from tests.testing.conftest import RunTests, installed_plugin, run_tests

__all__ = ["installed_plugin", "run_tests"]

PAGE = (Path(__file__).parents[2] / "docs/testing.md").read_text()
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_the_tests_of_the_guide_pass(run_tests: RunTests) -> None:
    first, *others = PROGRAMS
    run = run_tests(first, files={f"test_{number}.py": text for number, text in enumerate(others)})
    assert run.passed, run.output
    assert "3 passed" in run.output
