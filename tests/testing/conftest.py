"""Runs pytest on the tests of a user in a process of its own, with the plugin installed as pyproject.toml declares it."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

import pytest

ROOT = Path(__file__).parents[2]

OPTIONS = ("-p", "no:cacheprovider", "-W", "error", "-q")
ASYNCIO = "asyncio_default_fixture_loop_scope=function"  # without it, pytest-asyncio warns of its future


@dataclass(frozen=True)
class UserRun:
    """The outcome of a run of pytest."""

    passed: bool
    output: str


RunTests = Callable[..., UserRun]


@pytest.fixture(scope="session")
def installed_plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory for the search path in which pytest finds the plugin."""
    directory = tmp_path_factory.mktemp("installed")
    entry_points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["pytest11"]
    information = directory / "peeklock-0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: peeklock\nVersion: 0\n")
    lines = [f"{name} = {module}\n" for name, module in entry_points.items()]
    (information / "entry_points.txt").write_text("".join(["[pytest11]\n", *lines]))
    return directory


@pytest.fixture
def run_tests(installed_plugin: Path, tmp_path: Path) -> RunTests:
    """Run pytest on this module, with further files and options, in an empty directory."""

    def run(module: str, *options: str, files: Mapping[str, str] = {}, **environment: str) -> UserRun:
        for name, text in {"test_user.py": module, **files}.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(dedent(text))
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *OPTIONS, "-o", ASYNCIO, *options],
            cwd=tmp_path,
            env=_environment(installed_plugin) | environment,
            capture_output=True,
            text=True,
            check=False,
        )
        return UserRun(done.returncode == 0, done.stdout + done.stderr)

    return run


def _environment(installed_plugin: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PEEKLOCK_", "PYTEST_", "COV_"))}
    return kept | {"PYTHONPATH": os.pathsep.join(map(str, (installed_plugin, ROOT, ROOT / "client")))}
