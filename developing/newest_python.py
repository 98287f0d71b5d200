"""Finds the newest other Python of this machine that Peeklock supports, and installs what its tests need."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from developing.environment import digest, environment_lock, make_venv, read_installed, write_installed
from developing.paths import BIN, CLIENT, REQUIREMENTS, ROOT
from developing.processes import Refusal, call, say

VARIABLE = "PEEKLOCK_TEST_PYTHON"
"""The path of an interpreter to use instead; `none` for no second one."""
VENV = ROOT / ".venv-newest"
GROUPS = ("run", "test", "client")
TESTS = (
    *(f"tests/{name}" for name in ("domain", "wire", "runtime", "server")),
    *(f"tests/api/test_{name}.py" for name in ("json_depth", "logs", "problems", "sending", "receiving", "settling")),
    "tests/main/test_logs.py",
)
"""What runs there, on SQLite: rules, JSON, batching, connections, servers of their own, and the first endpoints."""

PROGRAM_NAME = re.compile(r"python3\.\d+")
RELEASE = "import sys, venv; print(*sys.version_info[:2], sys.version_info.releaselevel)"
PROBE_SECONDS = 30
"""Longest start of an interpreter on a busy machine."""


class OtherPython(NamedTuple):
    """An interpreter beside the one of `.venv`."""

    version: tuple[int, int]
    program: Path

    def __str__(self) -> str:
        return "Python {}.{}".format(*self.version)


def find_newest() -> OtherPython | None:
    """Return the newest interpreter that is newer than this one and supported, None without one.

    Raises `Refusal` if the variable names one that is not.
    """
    named = os.environ.get(VARIABLE, "")
    if named == "none":
        return None
    found = newest_of([Path(named)] if named else _programs(), supported_versions())
    if found is None and named:
        raise Refusal(f"{VARIABLE}={named} is no newer Python that pyproject.toml names")
    if found is None:
        say(f"found no newer Python that is supported: the tests run on {sys.version.split()[0]} alone")
    return found


def newest_of(programs: Iterable[Path], supported: Iterable[tuple[int, int]]) -> OtherPython | None:
    """Return the newest of these interpreters among the supported versions that is newer than this one."""
    usable = {version for version in supported if version > sys.version_info[:2]}
    found = [(version, program) for program in programs if (version := _version_of(program)) in usable]
    return OtherPython(*max(found)) if found else None


def supported_versions() -> list[tuple[int, int]]:
    """Return the versions that pyproject.toml names."""
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    found = [re.fullmatch(r"Programming Language :: Python :: (\d+)\.(\d+)", line) for line in classifiers]
    return [(int(match[1]), int(match[2])) for match in found if match]


def prepare_newest(python: OtherPython) -> Path:
    """Install what requirements/ pins for the tests into `.venv-newest`, and return its interpreter."""
    files = [REQUIREMENTS / f"{name}.txt" for name in GROUPS]
    projects = digest(ROOT / "pyproject.toml", ROOT / CLIENT)
    wanted = {"python": f"{python} {python.program}", "groups": digest(*files), "projects": f"{projects} in {ROOT}"}
    interpreter = VENV / "bin/python"
    with environment_lock():
        if not (BIN / "uv").exists():
            make_venv()
        if read_installed(VENV) >= wanted.items():
            return interpreter
        say(f"making {VENV.name} for {python}")
        call(python.program, "-m", "venv", "--clear", "--without-pip", VENV)
        install = (BIN / "uv", "pip", "install", "--quiet", f"--python={interpreter}")
        call(*install, "--require-hashes", *[part for file in files for part in ("--requirement", file)])
        call(*install, "--no-deps", "--editable", ".", "--editable", "client")
        write_installed(wanted, VENV)
    return interpreter


def _programs() -> Iterator[Path]:
    """Yield programs named for a version of Python, on the path and among the versions of pyenv."""
    folders = [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    versions = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    for folder in [*folders, *versions.glob("*/bin")]:
        yield from (program for program in folder.glob("python3.*") if PROGRAM_NAME.fullmatch(program.name))


def _version_of(program: Path) -> tuple[int, int] | None:
    """Return the version of an interpreter, None for one that does not work or is not a release."""
    try:
        done = subprocess.run(
            [program, "-c", RELEASE], capture_output=True, text=True, timeout=PROBE_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.fullmatch(r"(\d+) (\d+) final\n", done.stdout)
    return (int(found[1]), int(found[2])) if found else None
