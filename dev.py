"""Everything a developer types: makes the environment by itself, then runs, tests, checks and measures Peeklock."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
VENV = HERE / ".venv"
BIN = VENV / "bin"
PYTHON = BIN / "python"
REQUIREMENTS = HERE / "requirements"
LOCKED = ("uv", "run", "test", "helm", "build")  # in this order: each is compiled within the bounds of those before it
ENVIRONMENT = {**os.environ, "UV_PYTHON_DOWNLOADS": "never", "VIRTUAL_ENV": str(VENV)}


class Refusal(Exception):
    """What cannot be done, in a sentence for the one who typed the command."""


# ---- the environment -------------------------------------------------------------------------------------------------


def prepare(*groups: str) -> None:
    """Make `.venv` hold exactly what requirements/ pins for these groups; costs nothing when it already does."""
    record = VENV / "installed.json"
    with one_at_a_time():
        installed: dict[str, str] = json.loads(record.read_text()) if record.exists() else {}
        wanted = {name: digest(REQUIREMENTS / f"{name}.txt") for name in ("uv", *groups)}
        wanted["peeklock"] = digest(HERE / "pyproject.toml")
        if wanted.items() <= installed.items():
            return
        if installed.get("uv") != wanted["uv"]:
            make_venv()
        files = [part for name in groups for part in ("--requirement", f"requirements/{name}.txt")]
        call(BIN / "uv", "pip", "install", "--quiet", "--require-hashes", *files)
        call(BIN / "uv", "pip", "install", "--quiet", "--no-deps", "--editable", ".")
        record.write_text(json.dumps(installed | wanted, indent=2))


def make_venv() -> None:
    """Create the virtual environment with its own uv, which installs everything else."""
    if importlib.util.find_spec("ensurepip") is None:  # Debian ships venv without it
        apt_install(f"python{sys.version_info.major}.{sys.version_info.minor}-venv")
    say(f"making {VENV.name}")
    call(sys.executable, "-m", "venv", VENV)
    call(PYTHON, "-m", "pip", "install", "--quiet", "--require-hashes", "--requirement", REQUIREMENTS / "uv.txt")


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    """Hold the checkout's lock, so that two commands started together do not install into each other."""
    checkout = os.open(HERE, os.O_RDONLY)
    try:
        fcntl.flock(checkout, fcntl.LOCK_EX)
        yield
    finally:
        os.close(checkout)


def digest(file: Path) -> str:
    """Return the SHA-256 of a file's content, in hex."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


# ---- the machine -----------------------------------------------------------------------------------------------------


def apt_install(*packages: str) -> None:
    """Install Debian packages as root or through sudo; refuse, naming them, where neither works."""
    names = " ".join(packages)
    if shutil.which("apt-get") is None:
        raise Refusal(f"please install {names} with your system's package manager: there is no apt-get here")
    if os.geteuid() != 0 and shutil.which("sudo") is None:
        raise Refusal(f"please install {names} as root: apt-get install {names}")
    say(f"installing {names}")
    root = () if os.geteuid() == 0 else ("sudo",)
    apt = (*root, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q", "-y")
    call(*apt, "update", quiet=True)
    call(*apt, "install", "--no-install-recommends", *packages, quiet=True)


# ---- commands --------------------------------------------------------------------------------------------------------


def lock(_: argparse.Namespace, extra: list[str]) -> int:
    """Compile requirements/*.in to pinned versions with hashes; `--upgrade` takes the newest that are allowed."""
    if not (BIN / "uv").exists():
        make_venv()
    for name in LOCKED:
        source, target = f"requirements/{name}.in", f"requirements/{name}.txt"
        style = ("--quiet", "--generate-hashes", "--no-header", "--no-annotate")
        aim = ("--universal", "--python-version", "3.11")
        call(BIN / "uv", "pip", "compile", *style, *aim, *extra, source, "--output-file", target)
    return 0


def run(_: argparse.Namespace, extra: list[str]) -> int:
    """Serve in the foreground with the environment as it is; with none, on 127.0.0.1:8080 with SQLite."""
    prepare("run")
    os.chdir(HERE)
    os.execve(BIN / "peeklock", ["peeklock", "serve", *extra], ENVIRONMENT)


# ---- small tools -----------------------------------------------------------------------------------------------------


def call(*command: str | Path, quiet: bool = False) -> None:
    """Run a command in the checkout and refuse to go on when it fails."""
    output = subprocess.DEVNULL if quiet else None
    done = subprocess.run([str(part) for part in command], cwd=HERE, env=ENVIRONMENT, stdout=output, check=False)
    if done.returncode != 0:
        raise Refusal(f"this failed with code {done.returncode}: {' '.join(str(part) for part in command)}")


def say(sentence: str) -> None:
    """Tell on stderr what is happening, so that stdout stays the command's own."""
    print(f"dev.py: {sentence}", file=sys.stderr, flush=True)


COMMANDS = {command.__name__: command for command in (run, lock)}


def main() -> int:
    """Read the command line and do what it says."""
    if sys.version_info < (3, 11):
        raise Refusal(f"Peeklock needs Python 3.11 or newer; this is {sys.version.split()[0]}")
    parser = argparse.ArgumentParser(prog="dev.py", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, command in COMMANDS.items():
        commands.add_parser(name, help=command.__doc__, description=command.__doc__)
    arguments, extra = parser.parse_known_args()
    return COMMANDS[arguments.command](arguments, extra)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Refusal as refusal:
        say(str(refusal))
        sys.exit(2)
