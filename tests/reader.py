"""The environments of a reader: each holds what the commands of a page have installed, and nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from developing.paths import BIN, ROOT
from tests.databases import RunResources
from tests.peeklock_process import Installation, environment

NOT_IN_A_CLONE = shutil.ignore_patterns(".*", "*.egg-info", "__pycache__", "build", "data", "node_modules")
"""What a checkout may hold and a fresh clone does not, and hidden files, which no page uses."""

PIP = """#!/bin/sh
# Installs from the cache of the machine if that has everything, because a test should not need the network.
UV_OFFLINE=1 "{uv}" pip "$@" 2>/dev/null || exec "{uv}" pip "$@"
"""
NO_PORT = 65536
"""A port that does not exist: `dev.py run` then installs what it needs, and starts no server."""


def fresh_clone(run_resources: RunResources) -> Path:
    """Return a copy of the checkout without an environment. The run makes it once."""
    return run_resources.made_once("clone", _copy_checkout)


def clone_that_runs(run_resources: RunResources) -> Installation:
    """Return a copy of the checkout in which `python3 dev.py run` has installed what it installs. The run makes it once."""
    clone = run_resources.made_once("clone-that-runs", _copy_and_install)
    return Installation((sys.executable, clone / "dev.py", "run"), clone / ".venv/bin")


def environment_of(commands: str, run_resources: RunResources, directory: Path) -> Path:
    """Make a virtual environment, run the `pip install` commands of a page in a fresh clone, and return its programs."""
    programs = _make_venv(directory / "venv")
    pip = programs / "pip"
    pip.write_text(PIP.format(uv=BIN / "uv"))
    pip.chmod(0o755)
    subprocess.run(
        ["bash", "-euc", commands],
        cwd=fresh_clone(run_resources),
        env=reader_environment(programs)
        | {"VIRTUAL_ENV": str(programs.parent), "UV_CONSTRAINT": str(ROOT / "requirements/test.txt")},
        check=True,
    )
    return programs


def reader_environment(*programs: Path, **settings: object) -> dict[str, str]:
    """Return the environment of a reader's shell. Its path begins with these programs, and lacks those of the tests."""
    path = [part for part in os.environ["PATH"].split(os.pathsep) if Path(part) != BIN]
    # An empty path of modules counts as none.
    return environment(**settings) | {"PATH": os.pathsep.join([*map(str, programs), *path]), "PYTHONPATH": ""}


def _copy_checkout(directory: Path) -> None:
    shutil.copytree(ROOT, directory, dirs_exist_ok=True, ignore=NOT_IN_A_CLONE)


def _copy_and_install(directory: Path) -> None:
    _copy_checkout(directory)
    # `dev.py` downloads this program alone by pip, which has no cache that works without a network.
    shutil.copy(BIN / "uv", _make_venv(directory / ".venv"))
    for offline in ({"UV_OFFLINE": "1"}, {}):
        subprocess.run(
            [sys.executable, directory / "dev.py", "run"],
            env=reader_environment(port=NO_PORT) | offline,
            check=False,
        )
        if (directory / ".venv/installed.json").exists():
            return
    raise AssertionError("`python3 dev.py run` has not installed what it needs")


def _make_venv(directory: Path) -> Path:
    """Make a virtual environment without pip, and return the directory of its programs."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", directory], check=True)
    return directory / "bin"
