"""Programs with the client pass the strict modes of mypy and pyright as users write them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from developing.paths import BIN, PYTHON, ROOT, VENV

PROGRAM = Path(__file__).parent / "typed_program.py"
GUIDES = ("client/README.md", "docs/start/python.md", "docs/guides/workers.md")
HELP_FOR_CHECKERS = re.compile(r"\bAny\b|\bcast\b|type: ?ignore|pyright: ?ignore")
TIMEOUT_SECONDS = 240

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the program and those of the guides, and the client beside it."""
    directory = tmp_path_factory.mktemp("programs")
    shutil.copy(PROGRAM, directory)
    for guide in GUIDES:
        found = re.findall(r"```python\n(.*?)```", (ROOT / guide).read_text(), re.DOTALL)
        assert found
        for number, program in enumerate(found):
            (directory / f"{Path(guide).stem.lower()}_{number}.py").write_text(program)
    shutil.copytree(ROOT / "client/peeklock_client", directory / "installed/peeklock_client")
    return directory


def errors_of(directory: Path, *command: str | Path, **variables: str) -> str:
    """Return what a type checker prints about the programs of a directory, empty if it finds nothing."""
    done = subprocess.run(
        command,
        cwd=directory,
        env={"PATH": f"{BIN}:/usr/bin:/bin", **variables},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    return "" if done.returncode == 0 else done.stdout + done.stderr


def test_programs_pass_the_strict_mode_of_mypy(programs: Path) -> None:
    options = ("--strict", "--config-file=", "--cache-dir=cache", f"--python-executable={PYTHON}")
    files = sorted(programs.glob("*.py"))
    # The client is as if installed: mypy reads its types, and reports errors of the programs alone.
    mypy = (PYTHON, "-m", "mypy", *options, "--follow-imports=silent", *files)
    assert errors_of(programs, *mypy, MYPYPATH=str(programs / "installed")) == ""


def test_programs_pass_the_strict_mode_of_pyright(programs: Path) -> None:
    settings = {
        "include": ["*.py"],
        "typeCheckingMode": "strict",
        "pythonVersion": "3.11",
        "extraPaths": ["installed"],
        "venvPath": str(VENV.parent),
        "venv": VENV.name,
    }
    (programs / "pyrightconfig.json").write_text(json.dumps(settings))
    assert errors_of(programs, BIN / "pyright") == ""


def test_the_program_does_not_help_the_checkers() -> None:
    assert HELP_FOR_CHECKERS.findall(PROGRAM.read_text()) == []
