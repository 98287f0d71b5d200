"""The steps of `check`: format, lint, types, imports, dead code, dependencies, the OpenAPI document and the reference."""

from __future__ import annotations

import time
from collections.abc import Callable

from developing.environment import NODE, node
from developing.paths import BIN, CLIENT, GENERATE, OPENAPI, PIPELINE, PYTHON, REFERENCE, REQUEST_OPTIONS
from developing.processes import Refusal, output, say, status


def openapi_is_exported() -> int:
    """Compare the committed document with the one that the routes describe."""
    routes = output(BIN / "peeklock", "openapi")
    if OPENAPI.exists() and OPENAPI.read_bytes() == routes:
        return 0
    print("openapi/openapi.json differs from the routes: run `python3 dev.py openapi`", flush=True)
    return 1


def redocly() -> int:
    """Check the OpenAPI document against the rules of openapi/redocly.yaml."""
    return status(
        node(), NODE / "node_modules/@redocly/cli/bin/cli.js", "lint", "--config=openapi/redocly.yaml", OPENAPI
    )


def dependencies() -> int:
    """Find dependencies that are missing or unused, in each package."""
    packages = {".": "pyproject.toml", "client": CLIENT, "pipeline": PIPELINE}
    results = [status(BIN / "deptry", folder, "--config", config) for folder, config in packages.items()]
    return max(results)


CHECKS: dict[str, Callable[[], int]] = {
    "format": lambda: status(BIN / "ruff", "format", "--quiet", "--check", "."),
    "lint": lambda: status(BIN / "ruff", "check", "--quiet", "."),
    "types": lambda: status(BIN / "pyright"),
    "imports": lambda: status(BIN / "lint-imports", "--no-logo"),
    "dead code": lambda: status(BIN / "vulture"),
    "dependencies": dependencies,
    "OpenAPI export": openapi_is_exported,
    "request options": lambda: status(PYTHON, "-m", REQUEST_OPTIONS, "--check"),
    "client layer": lambda: status(PYTHON, GENERATE, "--check"),
    "OpenAPI rules": redocly,
    "reference": lambda: status(PYTHON, "-m", REFERENCE, "--check"),
}


def run_check(name: str, step: Callable[[], int]) -> bool:
    """Run one check, and print its name, result and duration."""
    print(f"---- {name}", flush=True)
    started, passed = time.monotonic(), False
    try:
        passed = step() == 0
    except Refusal as refusal:
        say(str(refusal))
    print(f"---- {name}: {'passed' if passed else 'FAILED'} in {time.monotonic() - started:.1f} s\n", flush=True)
    return passed
