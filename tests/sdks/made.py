"""The SDKs that the tests use. Each is made once, and again only if something changed of which it is made."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from developing.environment import digest, environment_lock
from developing.paths import OPENAPI, REQUIREMENTS, ROOT, SDK_VENV
from developing.sdk import CONFIGURATIONS, Made, make_sdk

MADE = SDK_VENV / "made"
REPORT = "report.json"
TIMEOUT_SECONDS = 240


def sdk(language: str) -> Path:
    """Return the directory of an SDK."""
    return _made(language) / "sdk"


def report(language: str) -> Made:
    """Return the generator of an SDK, and what it has warned of."""
    return Made(**json.loads((_made(language) / REPORT).read_text()))


def installed(directory: Path) -> Path:
    """Return the directory of an environment. The test fails with what to do if it is not installed."""
    assert directory.exists(), "the generators are missing: run `python3 dev.py test tests/sdks`"
    return directory


def _made(language: str) -> Path:
    installed(SDK_VENV)
    configurations = sorted(file for file in CONFIGURATIONS.rglob("*") if file.is_file())
    pins = (REQUIREMENTS / "sdk.txt", *configurations)
    made = MADE / f"{language}-{digest(OPENAPI, ROOT / 'developing/sdk.py', Path(__file__), *pins)[:16]}"
    with environment_lock():  # or two workers would make it at the same time
        if not made.exists():
            MADE.mkdir(exist_ok=True)
            directory = Path(tempfile.mkdtemp(dir=MADE))
            done = make_sdk(language, directory / "sdk")
            (directory / REPORT).write_text(json.dumps(dataclasses.asdict(done)))
            for older in MADE.glob(f"{language}-????????????????"):
                shutil.rmtree(older)
            directory.rename(made)
    return made


def finished(*command: str | Path, directory: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a program to its end. All that it has printed is the output."""
    return subprocess.run(
        command,
        cwd=directory,
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        timeout=TIMEOUT_SECONDS,
        check=False,
    )


def printed(*command: str | Path, directory: Path, **variables: str) -> str:
    """Run a program, and return what it has printed. The test fails with all its output if the program fails."""
    done = finished(*command, directory=directory, **variables)
    assert done.returncode == 0, done.stdout
    return done.stdout
