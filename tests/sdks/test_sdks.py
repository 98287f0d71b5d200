"""SDKs are made without a warning that matters, compile, and lose nothing of a message on its way through a server."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from app.http.problems import make_problem, problem_headers
from app.http.response import PROBLEM
from developing.environment import SDK_NODE, node
from developing.machine import JAVA_ANNOTATIONS
from developing.paths import OPENAPI, PYTHON, ROOT, SDK_VENV
from developing.sdk import GENERATOR_ARCHIVE, GENERATORS
from tests.peeklock_process import services
from tests.sdks.made import finished, printed, report, sdk

PROGRAMS = Path(__file__).parent
PYTHONS = ("python", "openapi-python-client", "datamodel-codegen")
TYPESCRIPTS = ("typescript-fetch", "hey-api", "openapi-typescript", "orval")
WITH_TOOLCHAINS = ("java", "go", "csharp")
"""Languages whose compilers are not among the packages of Python and npm. C# has none in Debian, so it is only made."""

UNCHECKED = {
    "hey-api": ("exactOptionalPropertyTypes",),
    "typescript-fetch": (
        "exactOptionalPropertyTypes",
        "noImplicitOverride",
        "noUncheckedIndexedAccess",
        "noUnusedLocals",
        "noUnusedParameters",
    ),
}
"""Checks of the compiler that the sources of an SDK do not pass. Programs pass all of them."""

GUIDE = ROOT / "docs/sdks.md"
SHOWN = re.DOTALL | re.MULTILINE
CASTS = {
    ".ts": re.compile(r"(?<!\* )\bas (?!const\b)|\w!(?!=)|\)!|@ts-|\bany\b|<\w+>\w"),
    ".java": re.compile(r"\((?:final )?[A-Z][\w.]*(?:<[^()]*>)?(?:\[\])*\) ?[\w(]|@SuppressWarnings"),
    ".go": re.compile(r"\.\((?!type\))"),
    ".py": re.compile(r"# ?type: ?ignore|# ?pyright|\bcast\(|\bAny\b"),
}
"""What a program may not contain: assertions that a type checker has to believe."""

PROPERTIES = {
    "text": "007",
    "letters": "grün ☕",
    "time": "2026-11-24T03:48:19.123456Z",
    "small": 17,
    "beyond_double": 2**53 + 1,
    "greatest": 2**63 - 1,
    "least": -(2**63),
    "fraction": 0.1,
    "large": 1e300,
    "yes": True,
    "no": False,
    "nothing": None,
}
EXPECTED = {
    "same_message": True,
    "properties": PROPERTIES,
    "body": {"order": 17, "lines": [{"article": "007", "count": 2**53 + 1}], "note": None},
    "renewed": True,
    "completed": "completed",
    "problem": [409, "already-settled", False],
    "results": [
        ["settled", "completed"],
        ["settled", "abandoned"],
        ["settled", "dead_lettered"],
        ["renewed"],
        ["refused", "already-settled"],
    ],
    "none": 0,
    "woken": "wake",
    "dead_lettered": "dead_lettered",
    "browsed": [[2, "no-such-article"], ["wake", "unreadable"]],
    "deferred": ["deferred", "later"],
    "transaction": [True, "uncommitted", "committed", "paid"],
    "newer": [503, "unknown_default_open_api", "Service unavailable", "The moon is full.", True, 7],
}
SAFE = {**PROPERTIES, "greatest": 2**53 - 1, "least": -(2**53) + 1}
EXPECTED_OF_JAVASCRIPT = {
    **EXPECTED,
    # Its numbers hold integers up to 2^53.
    "properties": {name: value for name, value in SAFE.items() if name != "beyond_double"},
    "body": {"order": 17, "lines": [{"article": "007", "count": 2}], "note": None},
    # A code is a text there, and stays what it is.
    "newer": [503, "full-moon", "Service unavailable", "The moon is full.", True, 7],
}


def _examples() -> Iterator[tuple[str, Any]]:
    """Yield each example of a request or an answer, with the name of its schema."""
    operations = [
        operation for methods in json.loads(OPENAPI.read_text())["paths"].values() for operation in methods.values()
    ]
    for operation in operations:
        for part in (operation.get("requestBody", {}), *operation["responses"].values()):
            for content in part.get("content", {}).values():
                if "example" in content:
                    yield content["schema"]["$ref"].rsplit("/", 1)[1], content["example"]


EXAMPLES = list(_examples())


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with services(tmp_path_factory.mktemp("sdks")) as start:
        yield start().url


class NewerServer(BaseHTTPRequestHandler):
    """Answers every request with a problem whose code this version does not know."""

    def do_POST(self) -> None:
        problem = replace(make_problem(503, "full-moon", "The moon is full.", "req-17"), retry_after=7)
        content = msgspec.json.encode(problem)
        self.send_response(problem.status)
        for name, value in problem_headers(problem):
            self.send_header(name.decode(), value.decode())
        self.send_header("Content-Type", PROBLEM.decode())
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any, **__: Any) -> None:
        """Print nothing."""


@pytest.fixture(scope="module")
def newer_url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), NewerServer) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def same(output: str, expected: Any) -> None:
    """Compare as JSON texts, in which 1, 1.0 and true differ."""
    assert json.dumps(json.loads(output), sort_keys=True, indent=1) == json.dumps(expected, sort_keys=True, indent=1)


@pytest.mark.parametrize(
    "language",
    [pytest.param(name, marks=[pytest.mark.sdks] * (name in WITH_TOOLCHAINS)) for name in GENERATORS],
)
def test_an_sdk_is_made_without_a_warning_that_matters(
    language: str, record_property: Callable[[str, object], None]
) -> None:
    made = report(language)
    tolerated = "; ".join(f"{count} × {reason}" for reason, count in made.tolerated.items()) or "none"
    row = f"{language:<22}{made.generator} {made.version}: {len(made.warnings)} that matter; tolerated: {tolerated}"
    record_property("warnings of generators", row)
    assert any(sdk(language).iterdir())
    assert made.warnings == []


def test_no_program_helps_the_type_checker() -> None:
    helped = [
        f"{file.relative_to(PROGRAMS)}: {line.strip()}"
        for file in PROGRAMS.glob("*/**/*")
        if (forbidden := CASTS.get(file.suffix))
        for line in file.read_text().splitlines()
        if forbidden.search(line)
    ]
    assert helped == []


@pytest.mark.parametrize("language", PYTHONS)
def test_a_program_passes_the_strict_mode_of_pyright(language: str, tmp_path: Path) -> None:
    shutil.copy(PROGRAMS / language / "program.py", tmp_path)
    interpreter = SDK_VENV / "bin/python"
    printed(interpreter, "-m", "compileall", "-q", ".", directory=sdk(language))
    settings = {"include": ["program.py"], "typeCheckingMode": "strict", "extraPaths": [str(sdk(language))]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    path = f"{SDK_VENV / 'bin'}{os.pathsep}{os.environ['PATH']}"
    pyright = (SDK_VENV / "bin/pyright", f"--pythonpath={interpreter}")
    assert printed(*pyright, directory=tmp_path, PATH=path).startswith("0 errors")


@pytest.mark.parametrize("language", PYTHONS)
def test_a_program_passes_the_strict_mode_of_mypy(language: str, tmp_path: Path) -> None:
    # The SDK is as if installed: mypy reads its types, and reports errors of the program alone.
    options = ("--strict", "--config-file=", f"--cache-dir={tmp_path}", "--follow-imports=silent")
    mypy = (PYTHON, "-m", "mypy", *options, f"--python-executable={SDK_VENV / 'bin/python'}")
    program = PROGRAMS / language / "program.py"
    assert printed(*mypy, program, directory=tmp_path, MYPYPATH=str(sdk(language))).startswith("Success")


@pytest.mark.parametrize("language", PYTHONS)
def test_an_sdk_for_python_keeps_every_value(language: str, url: str, newer_url: str) -> None:
    program = (SDK_VENV / "bin/python", PROGRAMS / language / "program.py", url, language, newer_url)
    same(printed(*program, directory=PROGRAMS, PYTHONPATH=str(sdk(language))), EXPECTED)


@pytest.mark.parametrize("language", TYPESCRIPTS)
def test_an_sdk_for_typescript_keeps_every_value(language: str, url: str, newer_url: str, tmp_path: Path) -> None:
    program = compiled_typescript(language, (PROGRAMS / language / "program.ts").read_text(), tmp_path)
    same(printed(node(SDK_VENV), program, url, language, newer_url, directory=tmp_path), EXPECTED_OF_JAVASCRIPT)


def compiled_typescript(language: str, program: str, directory: Path) -> Path:
    """Compile a program with the SDK of a language in a directory. The test fails if the compiler finds an error."""
    for name in ("tsconfig.json", "values.ts"):
        shutil.copy(PROGRAMS / name, directory)
    (directory / "program.ts").write_text(program)
    (directory / "package.json").write_text('{"type": "module"}')
    (directory / "node_modules").symlink_to(SDK_NODE / "node_modules")
    shutil.copytree(sdk(language), directory / "sdk")
    compiler = (node(SDK_VENV), directory / "node_modules/typescript/bin/tsc", "--project", directory)
    unchecked = [part for option in UNCHECKED.get(language, ()) for part in (f"--{option}", "false")]
    printed(*compiler, *unchecked, directory=directory)
    if unchecked:
        errors = finished(*compiler, "--noEmit", directory=directory).stdout.splitlines()
        assert [error for error in errors if not error.startswith(("sdk/", " "))] == []
    return directory / "out/program.js"


def test_the_guide_makes_an_sdk_and_runs_a_program(url: str, tmp_path: Path) -> None:
    guide = GUIDE.read_text()
    [directory] = re.findall(r"^python3 dev\.py sdk typescript (\S+)$", guide, re.MULTILINE)
    [(program, shown)] = re.findall(
        r"`shop\.ts`:\n\n```ts\n(.*?)```.*?^node shop\.ts\n```\n```text\n(.*?)```", guide, SHOWN
    )
    printed(sys.executable, "dev.py", "sdk", "typescript", tmp_path / directory, directory=ROOT)
    (tmp_path / "shop.ts").write_text(program.replace("http://localhost:8080", url))
    assert printed(node(SDK_VENV), "shop.ts", directory=tmp_path) == shown


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """The command that runs the classes of the SDK for Java and of its programs, without the name of a class.

    Its HTTP client is that of the Java library. The archive of the generator has the Jackson that it needs.
    """
    directory = tmp_path_factory.mktemp("java")
    libraries = os.pathsep.join(str(file) for file in (*SDK_VENV.glob(GENERATOR_ARCHIVE), JAVA_ANNOTATIONS))
    options = ("-encoding", "UTF-8", "-d", directory)
    printed(
        "javac", "-nowarn", *options, "-cp", libraries, *sdk("java").glob("src/main/**/*.java"), directory=directory
    )
    strict = ("-Xlint:all", "-Werror", "-proc:none")
    classes = f"{directory}{os.pathsep}{libraries}"
    printed("javac", *strict, *options, "-cp", classes, *(PROGRAMS / "java").iterdir(), directory=directory)
    return ("java", "-Dfile.encoding=UTF-8", "-cp", classes)


@pytest.fixture(scope="module")
def go(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the programs of the SDK for Go."""
    directory, module = tmp_path_factory.mktemp("go"), "example.com/peeklock/peeklock"
    requirement = f"require {module} v0.0.0\nreplace {module} => ./sdk\n"
    shutil.copytree(PROGRAMS / "go", directory, dirs_exist_ok=True)
    shutil.copytree(sdk("go"), directory / "sdk")
    (directory / "go.mod").write_text(f"module example.com/peeklock/programs\ngo 1.19\n{requirement}")
    constructors = "".join(
        f'\t"{name}": func() interface{{}} {{ return new(peeklock.{name}) }},\n'
        for name in sorted({name for name, _ in EXAMPLES})
    )
    types = f'import peeklock "{module}"\n\nvar types = map[string]func() interface{{}}{{\n{constructors}}}\n'
    (directory / "examples/types.go").write_text(f"package main\n\n{types}")
    offline = {"GOPROXY": "off", "GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local"}
    printed("go", "vet", "./...", directory=directory / "sdk", **offline)
    printed("go", "vet", "./...", directory=directory, **offline)
    assert printed("gofmt", "-l", "program", "examples", directory=directory).strip() in ("", "examples/types.go")
    for name in ("program", "examples"):
        printed("go", "build", "-o", f"bin/{name}", f"./{name}", directory=directory, **offline)
    return directory / "bin"


@pytest.mark.sdks
def test_the_sdk_for_java_keeps_every_value(url: str, newer_url: str, java: tuple[str, ...]) -> None:
    same(printed(*java, "Program", url, "java", newer_url, directory=PROGRAMS), EXPECTED)


@pytest.mark.sdks
def test_the_sdk_for_go_keeps_every_value(url: str, newer_url: str, go: Path) -> None:
    same(printed(go / "program", url, "go", newer_url, directory=go), EXPECTED)


# ---- every example of the document -----------------------------------------------------------------------------------


def test_an_sdk_for_python_understands_every_example(examples: Path) -> None:
    program = (SDK_VENV / "bin/python", PROGRAMS / "python/examples.py", examples)
    all_kept(printed(*program, directory=PROGRAMS, PYTHONPATH=str(sdk("python"))))


@pytest.mark.parametrize(
    ("language", "imported", "schema"),
    [
        ("hey-api", 'import type * as sdk from "./sdk/index.js"', "sdk.{}"),
        (
            "openapi-typescript",
            'import type { components } from "./sdk/peeklock.js"',
            'components["schemas"]["{}"]',
        ),
    ],
)
def test_every_example_has_its_type_in_typescript(language: str, imported: str, schema: str, tmp_path: Path) -> None:
    values = [
        f"export const example{place}: {schema.format(name)} = {json.dumps(example)};"
        for place, (name, example) in enumerate(EXAMPLES)
    ]
    assert compiled_typescript(language, "\n".join([imported, *values]), tmp_path).exists()


@pytest.mark.sdks
def test_the_sdk_for_java_understands_every_example(examples: Path, java: tuple[str, ...]) -> None:
    all_kept(printed(*java, "Examples", examples, directory=PROGRAMS))


@pytest.mark.sdks
def test_the_sdk_for_go_understands_every_example(examples: Path, go: Path) -> None:
    all_kept(printed(go / "examples", examples, directory=go))


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("examples") / "examples.json"
    file.write_text(json.dumps([{"schema": name, "example": example} for name, example in EXAMPLES]))
    return file


def all_kept(output: str) -> None:
    """Compare what a program has decoded and encoded with the examples. Python and Java do not keep what is null."""
    kept = [json.loads(line) for line in output.splitlines()]
    for (name, example), back in zip(EXAMPLES, kept, strict=True):
        assert comparable(back) == comparable(example), name


def comparable(part: Any) -> Any:
    """Return a value without nulls, and with times as numbers, because 12:30:00Z and 12:30:00.000000Z are the same."""
    if isinstance(part, dict):
        return {name: comparable(value) for name, value in part.items() if value is not None}
    if isinstance(part, list):
        return [comparable(value) for value in part]
    is_time = isinstance(part, str) and re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z", part)
    return datetime.fromisoformat(part).timestamp() if is_time else part
