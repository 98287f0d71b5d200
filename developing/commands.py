"""The commands of `dev.py`, one function each."""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from benchmarks.jdbc_driver import jdbc_driver
from benchmarks.options import option_parser
from developing.checks import CHECKS, run_check
from developing.environment import (
    make_venv,
    prepare,
    prepare_azurite,
    prepare_brokers,
    prepare_node,
    prepare_receivers,
    prepare_sdk,
    prepare_sqs_clients,
)
from developing.guide_site import build_site
from developing.machine import (
    apt_install,
    install_browser,
    install_compilers,
    install_java,
    install_proxies,
    install_rabbitmq,
    install_servers,
)
from developing.newest_python import TESTS, find_newest, prepare_newest
from developing.parallel import run_parallel
from developing.paths import (
    BIN,
    CLIENT,
    ENVIRONMENT,
    GENERATE,
    OPENAPI,
    PIPELINE,
    PIPELINE_TESTS,
    PYTHON,
    REFERENCE,
    REQUEST_OPTIONS,
    ROOT,
)
from developing.processes import call, output, say, status
from developing.sdk import BY_OPENAPI_GENERATOR, make_sdk
from developing.test_costs import RESULTS, exceeds_budget, result_file, slowest, table

REQUIREMENT_SETS = (
    "uv",
    "run",
    "test",
    "sdk",
    "brokers",
    "helm",
    "docs",
    "build",
)  # in this order: the versions of earlier files constrain the later ones
GUIDE_DIR = "PEEKLOCK_GUIDE_DIR"
PACKAGES = {"client": CLIENT, "pipeline": PIPELINE}
"""The packages besides the server, each with the file that names its dependencies."""

SDK_TESTS = ["tests/sdks", "tests/docs/test_pages.py", "tests/sqs_clients/test_go.py"]

JDBC_PACKAGE = "libpostgresql-jdbc-java"


def run(arguments: argparse.Namespace) -> int:
    """Serve in the foreground with the settings of the environment; by default on 127.0.0.1:8080 with SQLite.

    The server shows the documentation of this checkout, unless PEEKLOCK_GUIDE_DIR says otherwise.
    """
    prepare("run", "docs", "client")  # the pages of the documentation use the client from this environment
    guide = {} if GUIDE_DIR in ENVIRONMENT else {GUIDE_DIR: str(build_site())}
    os.chdir(ROOT)
    os.execve(BIN / "peeklock", ["peeklock", "serve", *arguments.rest], ENVIRONMENT | guide)


def test(arguments: argparse.Namespace) -> int:
    """Run the checks and the quick tests; --full for all that must pass before a change lands; arguments select tests."""
    if arguments.mutants:
        prepare("run", "test", *PACKAGES)
        return status(PYTHON, "-m", "tests.mutants", *arguments.rest)
    prepare("run", "test", "helm", "docs", *PACKAGES)
    install_java()
    without = [f"--without={kind}" for kind in arguments.without]
    if arguments.sdks:
        prepare_sdk()
        install_compilers()
        return run_selection(["--sdks", *without], arguments.rest or SDK_TESTS)
    install_servers(arguments.without)
    prepare_node()
    if arguments.tier == "quick" and not arguments.rest:
        return run_tests("quick", without)
    prepare_sdk()
    install_browser()
    install_proxies()
    prepare_brokers()
    prepare_sqs_clients()
    if arguments.tier == "nightly":
        install_rabbitmq()
        prepare_azurite()
        prepare_receivers()
    if arguments.rest:  # in any tier, because a selection names what it wants
        tier = "nightly" if arguments.tier == "nightly" else "full"
        return run_selection([f"--tier={tier}", *without], arguments.rest)
    return run_tests(arguments.tier, without)


def run_selection(choices: list[str], selection: list[str]) -> int:
    """Run the selected tests in two processes, unless the selection says how many."""
    processes = () if any(word.startswith("-n") for word in selection) else ("-n2", "--dist=worksteal")
    return status(PYTHON, "-m", "pytest", *choices, *processes, *selection)


def run_tests(tier: str, without: list[str]) -> int:
    """Run the checks and all tests of a tier at the same time, and say which took the most processor time.

    Fails too if the tier exceeds its budget of processor time.
    """
    parts = test_commands(tier, without)
    shutil.rmtree(RESULTS, ignore_errors=True)
    pytest = {name: (*command, f"--junitxml={result_file(name)}") for name, command in parts.items()}
    code, seconds = run_parallel({"checks": (PYTHON, ROOT / "dev.py", "check"), **pytest})
    print(f"---- processor time of the slowest tests\n{table(slowest(map(result_file, pytest)))}", end="", flush=True)
    if excess := exceeds_budget(tier, seconds):
        say(excess)
        return code or 1
    return code


def test_commands(tier: str, without: list[str]) -> dict[str, tuple[str | Path, ...]]:
    """Return the commands that run the tests of a tier side by side, by their names."""
    choices = (f"--tier={tier}", *without)
    pytest, shared = (PYTHON, "-m", "pytest", *choices), "--dist=worksteal"
    if tier == "quick":
        return {"tests": (*pytest, "-n2", shared)}
    # The pipeline has one worker, because all its tests share one Spark session, and a test that hangs ends only its
    # worker. It would end last, so the other tests get a lower priority. These have a worker more than a machine of two
    # cores has, because many of them wait for processes and for locks to end.
    servers = ("nice", "-n5", *pytest, "-n3", shared, f"--ignore={PIPELINE_TESTS}")
    return {"servers": servers, "pipeline": (*pytest, "-n1", PIPELINE_TESTS), **newest_python(choices)}


def newest_python(choices: Iterable[str]) -> dict[str, tuple[str | Path, ...]]:
    """Return the command that runs some tests under the newest other Python, by its name; empty without one."""
    python = find_newest()
    if python is None:
        return {}
    pytest = (prepare_newest(python), "-m", "pytest", "-p", "no:cacheprovider", "-n1", *choices)
    return {str(python): ("nice", "-n5", *pytest, *TESTS)}


def check(_: argparse.Namespace) -> int:
    """Check format, lint, types, imports, dead code, dependencies and the OpenAPI document; name all that fail."""
    prepare("run", "test", "docs", *PACKAGES)
    prepare_node()
    failed = [name for name, step in CHECKS.items() if not run_check(name, step)]
    print(f"failed: {', '.join(failed)}" if failed else "all checks passed", flush=True)
    return 1 if failed else 0


def bench(arguments: argparse.Namespace) -> int:
    """Measure throughput and latency beside their references; further arguments go to the benchmark."""
    if not {"-h", "--help"}.isdisjoint(arguments.rest):
        option_parser().print_help()
        return 0
    if not arguments.pipeline:
        prepare("run", "test", "client")
        return status(PYTHON, "-m", "benchmarks", *arguments.rest)
    prepare("run", "test", "pipeline")
    install_java()
    if jdbc_driver() is None:
        apt_install(JDBC_PACKAGE)
    return status(PYTHON, "-m", "benchmarks", "--pipeline", *arguments.rest)


def pipeline_demo(arguments: argparse.Namespace) -> int:
    """Make real traffic, export it into a lake under `--out DIR`, audit it and write DIR/report.html.

    `--keep` leaves the server running until Ctrl-C.
    """
    prepare("run", "test", "pipeline")
    install_java()
    os.chdir(ROOT)
    os.execve(PYTHON, [str(PYTHON), "pipeline/demo.py", *arguments.rest], ENVIRONMENT)


def openapi(_: argparse.Namespace) -> int:
    """Write openapi/openapi.json from the routes, the client's typed layer from it, and the options of requests."""
    prepare("run", "test", "client")
    OPENAPI.write_bytes(output(BIN / "peeklock", "openapi"))
    call(PYTHON, "-m", REQUEST_OPTIONS)
    return status(PYTHON, GENERATE)


def docs(arguments: argparse.Namespace) -> int:
    """Build the site of the documentation into build/site; `--serve` shows it, `--generate` writes docs/reference."""
    prepare("run", "test", "docs", "client")
    if arguments.generate:
        return status(PYTHON, "-m", REFERENCE)
    if arguments.serve:
        return status(BIN / "mkdocs", "serve")
    return status(BIN / "mkdocs", "build", "--strict", "--quiet")


def sdk(arguments: argparse.Namespace) -> int:
    """Generate an SDK for a language from openapi/openapi.json. docs/sdks.md is the guide."""
    prepare_sdk()
    if arguments.language in BY_OPENAPI_GENERATOR:
        install_java()
    directory = arguments.directory or ROOT / "build/sdk" / arguments.language
    made = make_sdk(arguments.language, directory)
    print("\n".join([*made.warnings, str(directory)]), flush=True)
    return 1 if made.warnings else 0


def lock(arguments: argparse.Namespace) -> int:
    """Compile requirements/*.in to pinned versions with hashes; `--upgrade` takes the newest that are allowed."""
    if not (BIN / "uv").exists():
        make_venv()
    style = ("--quiet", "--generate-hashes", "--no-header", "--no-annotate")
    aim = ("--universal", "--python-version", "3.11")
    for name in REQUIREMENT_SETS:
        source, target = f"requirements/{name}.in", f"requirements/{name}.txt"
        call(BIN / "uv", "pip", "compile", *style, *aim, *arguments.rest, source, "--output-file", target)
    for name, source in PACKAGES.items():
        bounds = ("--all-extras", "--constraint", "requirements/test.txt", "--output-file", f"requirements/{name}.txt")
        call(BIN / "uv", "pip", "compile", *style, *aim, *bounds, *arguments.rest, source)
    return 0


COMMANDS = (run, test, check, bench, pipeline_demo, openapi, docs, sdk, lock)
