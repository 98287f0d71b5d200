"""Writes `peeklock_client/generated` from openapi/openapi.json: the types of requests and answers, and a method for each operation.

`datamodel-code-generator` makes the types. Answers are read leniently, so that a client understands a newer server: a
list of allowed values becomes text, and fields that it does not know are ignored. It understands an older server too: a
setting that the answer leaves out has its default, because a server that does not know a setting behaves as its default says.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
DOCUMENT = HERE.parent / "openapi/openapi.json"
GENERATED = HERE / "peeklock_client/generated"
SCHEMAS = "#/components/schemas/"

STATED_DEFAULT = "x-peeklock-default"
"""The member of a schema that has the default of a field."""

CONSTRAINTS = frozenset((
    "example", "examples", "exclusiveMaximum", "exclusiveMinimum", "maxItems", "maxLength", "maxProperties", "maximum",
    "minItems", "minLength", "minimum", "pattern", "propertyNames", "uniqueItems", STATED_DEFAULT,
))  # fmt: skip
"""Members of a schema that only the server checks, and the default that the server sets."""

CODEGEN = (
    "--input-file-type=openapi", "--output-model-type=msgspec.Struct", "--target-python-version=3.11",
    "--use-standard-collections", "--use-union-operator", "--use-schema-description", "--collapse-root-models",
    "--output-datetime-class=datetime", "--disable-timestamp", "--formatters=ruff-format", "--enum-field-as-literal=all",
    "--use-default",
)  # fmt: skip

NOT_OF_OLDER_SERVERS = {
    "QueueStatusView": frozenset(("undeliverable",)),
    "QueueView": frozenset(("undeliverable",)),
    "ReceivedMessage": frozenset(("lock_token", "locked_until", "lock_remaining_ms")),
    "StoreCapabilities": frozenset(("accepts_durable_messages", "replicated")),
    "TopicView": frozenset(("undeliverable",)),
}
"""Required fields without a default that answers of older servers may leave out."""

JSON_TYPES = frozenset(("application/json", "application/merge-patch+json"))

Schema = Mapping[str, Any]


def main() -> int:
    """Write the generated files, or with `--check` tell whether they are as the document says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; exit with 1 if a file would change")
    check = parser.parse_args().check
    written = generate(json.loads(DOCUMENT.read_text()))
    stale = [name for name, text in written.items() if not _holds(GENERATED / name, text)]
    for name in () if check else stale:
        (GENERATED / name).write_text(written[name])
    if check and stale:
        print(f"generated/{', '.join(stale)} differ from the document: run `python3 dev.py openapi`", flush=True)
    return 1 if check and stale else 0


def generate(document: Schema) -> dict[str, str]:
    """Return the text of each generated file."""
    operations = list(_operations(document))
    requests, answers = set[str](), set[str]()
    for _, _, operation in operations:
        _collect(document, operation.get("requestBody", {}), requests)
        _collect(document, operation["responses"], answers)
    return {
        "requests.py": _types(document, _schemas(document, requests, lenient=False), "The bodies of requests"),
        "answers.py": _types(document, _answers(document, operations, answers | {"Problem"}), "The bodies of answers"),
        "operations.py": _formatted(_operations_module(operations)),
    }


def _operations(document: Schema) -> Iterator[tuple[str, str, Schema]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def _holds(path: Path, text: str) -> bool:
    return path.exists() and path.read_text() == text


# ---- types -----------------------------------------------------------------------------------------------------------


def _collect(document: Schema, part: Any, found: set[str]) -> None:
    """Add the names of all schemas that this part of the document leads to."""
    if isinstance(part, list):
        for entry in part:
            _collect(document, entry, found)
    elif isinstance(part, dict):
        for key, value in part.items():
            if key == "$ref" and value.startswith(SCHEMAS):
                name = value.removeprefix(SCHEMAS)
                if name not in found:
                    found.add(name)
                    _collect(document, document["components"]["schemas"][name], found)
            elif key == "$ref":
                group, name = value.removeprefix("#/components/").split("/")
                _collect(document, document["components"][group][name], found)
            else:
                _collect(document, value, found)


def _schemas(document: Schema, names: set[str], *, lenient: bool) -> dict[str, Any]:
    return {name: _bare(document["components"]["schemas"][name], lenient) for name in sorted(names)}


def _answers(document: Schema, operations: list[tuple[str, str, Schema]], names: set[str]) -> dict[str, Any]:
    """Return the schemas of answers, in which an older server may leave out settings and newer members."""
    schemas = _schemas(document, names, lenient=True)
    for name, fields in NOT_OF_OLDER_SERVERS.items():
        schemas[name]["required"] = [field for field in schemas[name]["required"] if field not in fields]
    for name, defaults in _setting_defaults(document, operations):
        for field in defaults.keys() & schemas[name].get("required", ()):
            schemas[name]["properties"][field]["default"] = defaults[field]
    return schemas


def _setting_defaults(
    document: Schema, operations: list[tuple[str, str, Schema]]
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the schema of each answer on a path to which settings can be put, with the defaults of the settings."""
    schemas = document["components"]["schemas"]
    settings = {path: _body_name(operation) for method, path, operation in operations if method == "PUT"}
    for _, path, operation in operations:
        if name := settings.get(path):
            members = schemas[name]["properties"].items()
            defaults = {field: member[STATED_DEFAULT] for field, member in members if STATED_DEFAULT in member}
            for answer in _answer_names(operation):
                yield answer, defaults


def _types(document: Schema, schemas: Mapping[str, Any], title: str) -> str:
    reduced = {"openapi": "3.1.0", "info": document["info"], "paths": {}, "components": {"schemas": schemas}}
    with tempfile.TemporaryDirectory() as directory:
        source, target = Path(directory, "document.json"), Path(directory, "types.py")
        source.write_text(json.dumps(reduced))
        header = f'--custom-file-header="""{title}, generated by `python3 dev.py openapi`."""'
        command = [sys.executable, "-m", "datamodel_code_generator", *CODEGEN, header]
        subprocess.run([*command, f"--input={source}", f"--output={target}"], check=True)
        return _formatted(_with_typed_defaults(target.read_text()))


def _with_typed_defaults(text: str) -> str:
    """Return a module whose empty defaults have the type of their field for a type checker. msgspec copies them."""
    return text.replace("field(default_factory=dict)", "{}").replace("field(default_factory=list)", "[]")


def _bare(schema: Schema, lenient: bool) -> dict[str, Any]:
    """Return a schema without its constraints, and without the descriptions of its fields, which docs/http has."""
    bare = _without(schema, CONSTRAINTS | ({"enum"} if lenient else set()))
    for name, field in bare.get("properties", {}).items():
        field.pop("description", None)
        if "const" in field:
            field.pop("default", None)
        if lenient and name not in ("result", "kind"):
            field.pop("const", None)
    return bare


def _without(part: Any, members: frozenset[str]) -> Any:
    if isinstance(part, list):
        return [_without(entry, members) for entry in part]
    if not isinstance(part, dict):
        return part
    return {
        key: {name: _without(field, members) for name, field in value.items()}
        if key == "properties"
        else _without(value, members)
        for key, value in part.items()
        if key not in members
    }


# ---- operations ------------------------------------------------------------------------------------------------------


def _operations_module(operations: list[tuple[str, str, Schema]]) -> str:
    methods = "\n".join(_method(*operation) for operation in operations if _is_json(operation[2]))
    return f'''"""A method for each operation, generated by `python3 dev.py openapi`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any
from urllib.parse import quote

from peeklock_client.generated import answers, requests


class Operations(ABC):
    """The operations of a server. A method returns the body of a successful answer, and raises for any other."""

    @abstractmethod
    async def call(
        self,
        method: str,
        path: str,
        types: dict[int, Any],
        *,
        body: Any = None,
        query: dict[str, Any] | None = None,
        headers: dict[str, str | None] | None = None,
    ) -> Any:
        """Send one request, and decode the body of its answer as the type for its status."""

{methods}'''


def _is_json(operation: Schema) -> bool:
    """Return whether the answers of an operation are JSON. Raw operations are written by hand."""
    contents = [
        content
        for part in (operation.get("requestBody", {}), *_successes(operation).values())
        for content in part.get("content", {})
    ]
    return JSON_TYPES.issuperset(contents)


def _successes(operation: Schema) -> dict[str, Any]:
    return {status: answer for status, answer in operation["responses"].items() if status.startswith("2")}


def _method(method: str, path: str, operation: Schema) -> str:
    parameters = operation.get("parameters", [])
    by_place = {place: [one for one in parameters if one["in"] == place] for place in ("path", "query", "header")}
    body = _body_type(operation)
    arguments = [
        "self",
        *(
            f"{one['name']}: str | int" if "sequence" in one["name"] else f"{one['name']}: str"
            for one in by_place["path"]
        ),
    ]
    arguments += [f"body: {body}"] if body else []
    named = [
        f"{_argument(one['name'])}: {_query_type(one)} | None = None" for one in by_place["query"] + by_place["header"]
    ]
    arguments += ["*", *named] if named else []
    passed = [f'"{method}"', _path_text(path), _types_text(operation)]
    passed += ["body=body"] if body else []
    passed += [_mapping("query", by_place["query"])] if by_place["query"] else []
    passed += [_mapping("headers", by_place["header"])] if by_place["header"] else []
    return (
        f"    async def {operation['operationId']}({', '.join(arguments)}) -> {_answer_type(operation)}:\n"
        f'        """{operation["summary"].rstrip(".")}."""\n'
        f"        return await self.call({', '.join(passed)})\n"
    )


def _argument(name: str) -> str:
    return name.lower().replace("-", "_")


def _path_text(path: str) -> str:
    return 'f"' + re.sub(r"{(\w+)}", r"{quote(str(\1), safe='')}", path) + '"' if "{" in path else f'"{path}"'


def _query_type(parameter: Schema) -> str:
    names = {"integer": "int", "boolean": "bool", "number": "float", "string": "str", "array": "list[str]"}
    return "str" if parameter["in"] == "header" else names.get(parameter["schema"].get("type", "string"), "str")


def _mapping(name: str, parameters: list[Schema]) -> str:
    pairs = [f"{json.dumps(one['name'])}: {_argument(one['name'])}" for one in parameters]
    return f"{name}={{{', '.join(pairs)}}}"


def _reference(content: Schema, module: str) -> str:
    name = _name(content)
    return f"{module}.{name}" if name else "Any"


def _name(content: Schema) -> str:
    """Return the name of the schema of a body in JSON, or nothing if it has none."""
    schema = next((content[kind]["schema"] for kind in content if kind in JSON_TYPES), {})
    return schema.get("$ref", "").removeprefix(SCHEMAS)


def _body_name(operation: Schema) -> str:
    return _name(operation.get("requestBody", {}).get("content", {}))


def _answer_names(operation: Schema) -> set[str]:
    return {_name(answer.get("content", {})) for answer in _successes(operation).values()} - {""}


def _body_type(operation: Schema) -> str:
    body = operation.get("requestBody")
    return _reference(body["content"], "requests") if body else ""


def _answer_types(operation: Schema) -> dict[str, str]:
    return {
        status: _reference(answer["content"], "answers") if answer.get("content") else "None"
        for status, answer in _successes(operation).items()
    }


def _types_text(operation: Schema) -> str:
    return "{" + ", ".join(f"{status}: {kind}" for status, kind in _answer_types(operation).items()) + "}"


def _answer_type(operation: Schema) -> str:
    return " | ".join(dict.fromkeys(_answer_types(operation).values()))


def _formatted(text: str) -> str:
    fixed = _ruff(text, "check", "--select=I,F401", "--fix")
    return _ruff(fixed, "format")


def _ruff(text: str, command: str, *options: str) -> str:
    common = (
        "--isolated",
        "--quiet",
        "--line-length=120",
        "--target-version=py311",
        "--stdin-filename=generated.py",
        "-",
    )
    done = subprocess.run(
        [sys.executable, "-m", "ruff", command, *options, *common],
        input=text,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
