"""Generates SDKs from openapi/openapi.json, each with its configuration in openapi/sdk/."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

from developing.environment import SDK_NODE, node
from developing.paths import ENVIRONMENT, OPENAPI, ROOT, SDK_VENV
from developing.processes import Refusal

CONFIGURATIONS = ROOT / "openapi/sdk"
BY_OPENAPI_GENERATOR = ("java", "go", "csharp", "typescript-fetch", "python")
BUILD_FILES = ".github/**,.gitlab-ci.yml,.travis.yml,appveyor.yml,git_push.sh"
ONLY_SOURCES = "apiTests=false,modelTests=false,apiDocs=false,modelDocs=false"

GENERATOR_ARCHIVE = "lib/python*/site-packages/openapi_generator_cli/openapi-generator.jar"
"""It also has Jackson, which the SDK for Java needs."""

HARMLESS_WARNINGS = (
    "OpenAPI 3.1 support is still in beta",  # about every document of this version
    "Failed to get the schema name: null",  # about the properties of messages: a map of values of any type, as wanted
    "Codegen property is null (e.g. map/dict of undefined type)",  # the same
    "Ignoring complex example on request body",  # an example in the documentation of the SDK
    "(reserved word) cannot be used as model name. Renamed to",  # no other type has the new name
    "with suffix (reserved word) cannot be used as filename. Renamed to",
)


def make_sdk(language: str, directory: Path) -> list[str]:
    """Generate the SDK of a language in a directory. Return the warnings of the generator, without harmless ones.

    Raises `Refusal` if the directory has files, or if the generator fails.
    """
    if directory.exists() and any(directory.iterdir()):
        raise Refusal(f"{directory} is not empty: remove it, or name another directory")
    directory.mkdir(parents=True, exist_ok=True)
    written = GENERATORS[language](language, directory.resolve())
    return [line.strip() for line in written.splitlines() if _matters(line)]


def _openapi_generator(language: str, directory: Path) -> str:
    # The program from PyPI needs no path to its Java archive.
    program = SDK_VENV / "bin/openapi-generator-cli"
    configuration = CONFIGURATIONS / f"{language}.yaml"
    options = ("--input-spec", OPENAPI, "--output", directory, "--global-property", ONLY_SOURCES)
    without = ("--openapi-generator-ignore-list", BUILD_FILES)
    written = _generate(program, "generate", "--config", configuration, *options, *without)
    if language == "go":
        _decode_exact_numbers(directory)
    return written


def _openapi_python_client(_: str, directory: Path) -> str:
    program, configuration = SDK_VENV / "bin/openapi-python-client", CONFIGURATIONS / "openapi-python-client.yaml"
    options = ("--path", OPENAPI, "--config", configuration, "--output-path", directory, "--overwrite")
    return _generate(program, "generate", *options)


def _hey_api(_: str, directory: Path) -> str:
    program = SDK_NODE / "node_modules/@hey-api/openapi-ts/bin/run.js"
    # The directory is an environment variable: the option `--output` would replace all output settings of the configuration.
    configuration, variables = CONFIGURATIONS / "hey-api.mjs", {"SDK_DIRECTORY": str(directory)}
    return _generate(node(SDK_VENV), program, "--file", configuration, "--no-log-file", **variables)


def _openapi_typescript(_: str, directory: Path) -> str:
    program = SDK_NODE / "node_modules/openapi-typescript/bin/cli.js"
    return _generate(node(SDK_VENV), program, OPENAPI, "--output", directory / "peeklock.d.ts")


GENERATORS: dict[str, Callable[[str, Path], str]] = {
    **dict.fromkeys(BY_OPENAPI_GENERATOR, _openapi_generator),
    "hey-api": _hey_api,
    "openapi-typescript": _openapi_typescript,
    "openapi-python-client": _openapi_python_client,
}
"""The function for each language. It generates the SDK in a directory, and returns the output of the generator."""


def _decode_exact_numbers(directory: Path) -> None:
    """Make the SDK for Go decode the numbers of bodies and properties exactly. float64 is exact up to 2^53."""
    decoder = "decoder := json.NewDecoder(bytes.NewReader(data))\n"
    sources = [file for file in directory.glob("model_*.go") if decoder in file.read_text()]
    if not sources:
        raise Refusal("the generator for Go has changed how it decodes numbers: adapt developing/sdk.py")
    for file in sources:
        file.write_text(file.read_text().replace(decoder, f"{decoder}\tdecoder.UseNumber()\n"))


def _generate(*command: str | Path, **variables: str) -> str:
    path = f"{SDK_VENV / 'bin'}{os.pathsep}{ENVIRONMENT.get('PATH', '')}"
    done = subprocess.run(
        [str(part) for part in command],
        cwd=ROOT,
        env={**ENVIRONMENT, "PATH": path, "NO_COLOR": "1", "RUFF_NO_CACHE": "true", **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise Refusal(f"this failed with code {done.returncode}: {' '.join(map(str, command))}\n{done.stdout}")
    return done.stdout


def _matters(line: str) -> bool:
    """Return whether a line of output is a warning or an error, other than a harmless one."""
    is_warning = any(word in line.upper() for word in ("WARN", "ERROR")) and " INFO " not in line
    return is_warning and not any(known in line for known in HARMLESS_WARNINGS)
