"""docs/testing.md: its tests pass as they stand, with nothing installed but what the page installs."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.databases import RunResources
from tests.reader import environment_of, fresh_clone, reader_environment

PAGE = (Path(__file__).parents[2] / "docs/testing.md").read_text()
[INSTALL] = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_the_tests_of_the_guide_pass(run_resources: RunResources, tmp_path: Path) -> None:
    clone = str(fresh_clone(run_resources))
    programs = environment_of(INSTALL.replace("/path/to/peeklock", clone), run_resources, tmp_path)
    for number, program in enumerate(PROGRAMS):
        (tmp_path / f"test_{number}.py").write_text(program)
    pytest = [programs / "pytest", "-q", "-W", "error", "-p", "no:cacheprovider"]
    done = subprocess.run(
        pytest, cwd=tmp_path, env=reader_environment(programs), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout
