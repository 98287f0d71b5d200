"""Generates SDKs from openapi/openapi.json, each with its configuration in openapi/sdk/."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from developing.environment import SDK_NODE, node
from developing.paths import ENVIRONMENT, OPENAPI, REQUIREMENTS, ROOT, SDK_VENV
from developing.processes import Refusal

CONFIGURATIONS = ROOT / "openapi/sdk"
BY_OPENAPI_GENERATOR = ("java", "go", "csharp", "typescript-fetch", "python")
BUILD_FILES = ".github/**,.gitlab-ci.yml,.travis.yml,appveyor.yml,git_push.sh"
ONLY_SOURCES = "apiTests=false,modelTests=false,apiDocs=false,modelDocs=false"

GO_CONSTANT = re.compile(r'var (?P<name>action|kind) string = (?P<value>"\w+")\n')
"""How a constructor of Go with defaults sets a discriminator."""

GENERATOR_ARCHIVE = "lib/python*/site-packages/openapi_generator_cli/openapi-generator.jar"
"""It also has Jackson, which the SDK for Java needs."""

TOLERATED = {
    "OpenAPI 3.1 support is still in beta": "said of every document of this version",
    "Failed to get the schema name: null": "properties of messages are a map of values of any type",
    "Codegen property is null (e.g. map/dict of undefined type)": "properties of messages are a map of values of any type",
    "Ignoring complex example on request body": "the documentation of the SDK shows no example there",
    "(reserved word) cannot be used as model name. Renamed to": "no other type has the new name",
    "with suffix (reserved word) cannot be used as filename. Renamed to": "no other file has the new name",
}
"""Parts of warnings that do no harm, each with the reason."""


@dataclass(frozen=True, slots=True)
class Made:
    """An SDK that was made: the generator with its version, its warnings that matter, and the number of others by reason."""

    generator: str
    version: str
    warnings: list[str]
    tolerated: dict[str, int]


def make_sdk(language: str, directory: Path) -> Made:
    """Generate the SDK of a language in a directory.

    Raises `Refusal` if the directory has files, or if the generator fails.
    """
    if directory.exists() and any(directory.iterdir()):
        raise Refusal(f"{directory} is not empty: remove it, or name another directory")
    directory.mkdir(parents=True, exist_ok=True)
    generator = GENERATORS[language]
    written = generator.run(language, directory.resolve())
    warnings = [line.strip() for line in written.splitlines() if _is_warning(line)]
    reasons = [_reason_to_tolerate(line) for line in warnings]
    return Made(
        generator.package,
        version_of(generator.package),
        [line for line, reason in zip(warnings, reasons, strict=True) if reason is None],
        dict(Counter(reason for reason in reasons if reason is not None)),
    )


def version_of(package: str) -> str:
    """Return the version of a generator, as openapi/sdk/package.json or requirements/sdk.txt pins it."""
    from_npm = json.loads((CONFIGURATIONS / "package.json").read_text())["dependencies"]
    if package in from_npm:
        return from_npm[package]
    pinned = re.search(rf"^{re.escape(package)}==(\S+)", (REQUIREMENTS / "sdk.txt").read_text(), re.MULTILINE)
    assert pinned is not None, package
    return pinned[1]


def _openapi_generator(language: str, directory: Path) -> str:
    # The program from PyPI needs no path to its Java archive.
    program = SDK_VENV / "bin/openapi-generator-cli"
    configuration = CONFIGURATIONS / f"{language}.yaml"
    without = ("--openapi-generator-ignore-list", BUILD_FILES)
    with tempfile.TemporaryDirectory() as temporary:
        document = Path(temporary, OPENAPI.name)
        document.write_text(json.dumps(_adapted(json.loads(OPENAPI.read_text()), language)))
        options = ("--input-spec", document, "--output", directory, "--global-property", ONLY_SOURCES)
        written = _generate(program, "generate", "--config", configuration, *options, *without)
    if language == "go":
        _decode_exact_numbers(directory)
        _set_discriminators(directory)
    return written


def _adapted(document: dict[str, Any], language: str) -> dict[str, Any]:
    """Return the document as the templates of a language in openapi-generator understand it."""
    for schema in document["components"]["schemas"].values():
        if language in ("go", "csharp") and schema.get("additionalProperties") is False:
            # The templates give some of these closed types a field `AdditionalProperties`, and none to types that do not say.
            del schema["additionalProperties"]
    return document


def _openapi_python_client(_: str, directory: Path) -> str:
    program, configuration = SDK_VENV / "bin/openapi-python-client", CONFIGURATIONS / "openapi-python-client.yaml"
    templates = CONFIGURATIONS / "templates/openapi-python-client"
    options = ("--path", OPENAPI, "--config", configuration, "--custom-template-path", templates)
    return _generate(program, "generate", *options, "--output-path", directory, "--overwrite")


def _hey_api(_: str, directory: Path) -> str:
    program = SDK_NODE / "node_modules/@hey-api/openapi-ts/bin/run.js"
    # The directory is an environment variable: the option `--output` would replace all output settings of the configuration.
    options = ("--file", CONFIGURATIONS / "hey-api.mjs", "--no-log-file")
    return _generate(node(SDK_VENV), program, *options, SDK_DIRECTORY=str(directory))


def _openapi_typescript(_: str, directory: Path) -> str:
    program = SDK_NODE / "node_modules/openapi-typescript/bin/cli.js"
    return _generate(node(SDK_VENV), program, OPENAPI, "--output", directory / "peeklock.d.ts")


def _orval(_: str, directory: Path) -> str:
    program = SDK_NODE / "node_modules/orval/dist/bin/orval.mjs"
    options = ("--config", CONFIGURATIONS / "orval.mjs")
    return _generate(node(SDK_VENV), program, *options, SDK_DIRECTORY=str(directory))


def _datamodel_codegen(_: str, directory: Path) -> str:
    program, models = SDK_VENV / "bin/datamodel-codegen", directory / "peeklock_models.py"
    # It reads its configuration, pyproject.toml, in the directory in which it runs.
    return _generate(program, "--input", OPENAPI, "--output", models, directory=CONFIGURATIONS)


@dataclass(frozen=True, slots=True)
class Generator:
    """The package of a generator, and the function that generates the SDK of a language in a directory.

    The function returns the output of the generator.
    """

    package: str
    run: Callable[[str, Path], str]


GENERATORS: dict[str, Generator] = {
    "typescript": Generator("@hey-api/openapi-ts", _hey_api),
    **dict.fromkeys(BY_OPENAPI_GENERATOR, Generator("openapi-generator-cli", _openapi_generator)),
    "hey-api": Generator("@hey-api/openapi-ts", _hey_api),
    "openapi-typescript": Generator("openapi-typescript", _openapi_typescript),
    "orval": Generator("orval", _orval),
    "openapi-python-client": Generator("openapi-python-client", _openapi_python_client),
    "datamodel-codegen": Generator("datamodel-code-generator", _datamodel_codegen),
}
"""The generator for each language. `typescript` is the one that docs/sdks.md recommends."""


def _decode_exact_numbers(directory: Path) -> None:
    """Make the SDK for Go decode the numbers of bodies and properties exactly. float64 is exact up to 2^53."""
    decoder = "decoder := json.NewDecoder(bytes.NewReader(data))\n"
    sources = [file for file in directory.glob("model_*.go") if decoder in file.read_text()]
    if not sources:
        raise Refusal("the generator for Go has changed how it decodes numbers: adapt developing/sdk.py")
    for file in sources:
        file.write_text(file.read_text().replace(decoder, f"{decoder}\tdecoder.UseNumber()\n"))


def _set_discriminators(directory: Path) -> None:
    """Make the constructors of the SDK for Go set the constant that says which type of a union an object is.

    They take every required field as an argument, also one that has a default.
    """
    sources = [(file, GO_CONSTANT.search(file.read_text())) for file in directory.glob("model_*.go")]
    found = [(file, constant) for file, constant in sources if constant]
    if not found:
        raise Refusal("the generator for Go has changed its constructors: adapt developing/sdk.py")
    for file, constant in found:
        name, value = constant["name"], constant["value"]
        text = re.sub(rf"(?m)^(func New\w+\(.*?){name} string(?:, )?", r"\1", file.read_text(), count=1)
        file.write_text(re.sub(rf"(this\.\w+ = ){name}\n", rf"\g<1>{value}\n", text, count=1))


def _generate(*command: str | Path, directory: Path = ROOT, **variables: str) -> str:
    path = f"{SDK_VENV / 'bin'}{os.pathsep}{ENVIRONMENT.get('PATH', '')}"
    done = subprocess.run(
        [str(part) for part in command],
        cwd=directory,
        env={**ENVIRONMENT, "PATH": path, "NO_COLOR": "1", "RUFF_NO_CACHE": "true", **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise Refusal(f"this failed with code {done.returncode}: {' '.join(map(str, command))}\n{done.stdout}")
    return done.stdout


def _is_warning(line: str) -> bool:
    """Return whether a line of output is a warning or an error."""
    return any(word in line.upper() for word in ("WARN", "ERROR")) and " INFO " not in line


def _reason_to_tolerate(line: str) -> str | None:
    """Return why a warning does no harm, None if it matters."""
    return next((reason for known, reason in TOLERATED.items() if known in line), None)
