"""What the pages of docs/reference list: operations, errors and limits as the code and the OpenAPI document say."""

from __future__ import annotations

import ast
import importlib
import json
import pkgutil
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import app
from app.api.application import FRAMEWORK_CODES
from app.domain.refusals import Refusal
from app.http.problems import RETRYABLE, TITLES, codes_of_status
from app.settings import Settings

ROOT = Path(app.__file__).parents[1]
DOCUMENT: Mapping[str, Any] = json.loads((ROOT / "openapi" / "openapi.json").read_text())
SCHEMAS: Mapping[str, Any] = DOCUMENT["components"]["schemas"]
METHODS = ("get", "put", "post", "patch", "delete")

WHERE_LIMITS_ARE = ("app.api", "app.broker", "app.domain", "app.http", "app.server", "app.sqs", "app.wire")
LIMIT = re.compile(r"(?:MAX|MIN)_|BATCH_SIZE$|SPARE_CONNECTIONS$|[A-Z].*_(?:SECONDS|BYTES|RETENTION|KEEP)$")
"""The names of constants that are limits. One that only its module uses begins with an underscore instead."""
NO_LIMIT_OF_REQUESTS = "It limits no request."
"""What the docstring of a constant that modules share says if no page names it."""
WHERE_RANGES_ARE = ("app.wire", "app.settings", "app.api.openapi")
"""Shapes, settings and parameters. The ranges and defaults that they have are in the tables of several pages."""


def operations() -> list[tuple[str, ...]]:
    """Each call with its operation id, the right that it needs and the statuses of its answers without errors."""
    found: list[tuple[str, ...]] = []
    for path, calls in DOCUMENT["paths"].items():
        for method in METHODS:
            if operation := calls.get(method):
                answers = ", ".join(status for status in operation["responses"] if status.startswith("2"))
                right = operation.get("x-peeklock-right", "none")
                found.append((f"`{method.upper()} {path}`", f"`{operation['operationId']}`", right, answers))
    return found


def errors() -> dict[str, tuple[int, bool]]:
    """Each code with its status, and whether a repeat may help."""
    answered = {code: status for status in TITLES for code in codes_of_status(status)} | {
        code: at for at, code in FRAMEWORK_CODES.items()
    }
    worth_repeating = {kind.code for kind in _below(Refusal) if kind.retryable}
    return {code: (at, at in RETRYABLE or code in worth_repeating) for code, at in answered.items()}


def settings() -> dict[str, tuple[str, str]]:
    """Each setting that is a number, with its default and range."""
    found: dict[str, tuple[str, str]] = {}
    for name, field in Settings.model_fields.items():
        if field.annotation in (int, float):
            rules = [(bound, rule) for rule in field.metadata for bound in ("ge", "gt", "le") if hasattr(rule, bound)]
            bounds = {bound: getattr(rule, bound) for bound, rule in rules}
            found[f"PEEKLOCK_{name.upper()}"] = (f"{field.default:.10g}", _range(bounds))
    return found


def fields() -> dict[tuple[str, str], str]:
    """The range of each member and parameter of a request that has one, with the schemas that it is in."""
    where: dict[tuple[str, str], list[str]] = {}
    for schema in sorted(name for name in _asked() if not _is_value(SCHEMAS[name])):
        for name, range_ in _ranges_of(SCHEMAS[schema], schema.lower()):
            where.setdefault((name, range_), []).append(schema)
    for name, location, range_ in _parameters():
        if location not in where.setdefault((name, range_), []):
            where[name, range_].append(location)
    return {key: ", ".join(_shortened(schemas)) for key, schemas in where.items()}


def constants() -> dict[str, float]:
    """Each limit in the code that a request may meet, by its module's own name and its name."""
    found: dict[str, float] = {}
    for home, statements in _modules(WHERE_LIMITS_ARE):
        for statement, following in pairwise([*statements, ast.Pass()]):
            for name in filter(LIMIT.match, _assigned(statement)):
                value = getattr(home, name)
                if type(value) in (int, float) and NO_LIMIT_OF_REQUESTS not in _text(following):
                    found[f"{_own_name(home.__name__)}.{name}"] = value
    return found


def constants_of_ranges() -> set[str]:
    """The constants that shapes, settings and parameters have or import, named in the same way."""
    found: set[str] = set()
    for home, statements in _modules(WHERE_RANGES_ARE):
        found |= {f"{_own_name(home.__name__)}.{name}" for name in vars(home)}
        for statement in statements:
            if isinstance(statement, ast.ImportFrom):
                found |= {f"{_own_name(statement.module or '')}.{alias.name}" for alias in statement.names}
    return found


def _modules(names: Iterable[str]) -> Iterator[tuple[ModuleType, list[ast.stmt]]]:
    """Yield these modules and those in them, each with its statements."""
    for home in map(importlib.import_module, names):
        yield home, ast.parse((ROOT / str(home.__file__)).read_text()).body
        for inside in pkgutil.iter_modules(getattr(home, "__path__", ()), f"{home.__name__}."):
            yield from _modules([inside.name])


def _own_name(module: str) -> str:
    return module.rpartition(".")[2]


def _assigned(statement: ast.stmt) -> list[str]:
    """The names of the variables to which a statement assigns."""
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _text(statement: ast.stmt) -> str:
    """The text of a statement that is a docstring, on one line, else nothing."""
    value = statement.value if isinstance(statement, ast.Expr) else None
    return " ".join(str(value.value).split()) if isinstance(value, ast.Constant) else ""


def _below(kind: type[Refusal]) -> list[type[Refusal]]:
    return [found for below in kind.__subclasses__() for found in (below, *_below(below))]


def _range(bounds: Mapping[str, float]) -> str:
    least, most = bounds.get("ge", bounds.get("gt")), bounds.get("le")
    text = f"from {least:.10g}" if most is None else f"{least:.10g}–{most:.10g}"
    return f"above {text}" if "gt" in bounds else text


def _asked() -> set[str]:
    """The schemas of request bodies and what they refer to."""
    bodies = [
        calls[method]["requestBody"]
        for calls in DOCUMENT["paths"].values()
        for method in METHODS
        if "requestBody" in calls.get(method, {})
    ]
    found: set[str] = set()
    open_ = set(_references(bodies))
    while open_:
        name = open_.pop()
        found.add(name)
        open_ |= set(_references(SCHEMAS[name])) - found
    return found


def _references(part: Any) -> Iterator[str]:
    yield from re.findall(r'"#/components/schemas/(\w+)"', json.dumps(part))


def _ranges_of(schema: Mapping[str, Any], name: str) -> Iterator[tuple[str, str]]:
    """What is bounded in a schema, each with its range."""
    if range_ := bounds(schema):
        yield name, range_
    for member, inside in schema.get("properties", {}).items():
        yield from _ranges_of(inside, member)
    for choice in schema.get("anyOf", []):
        yield from _ranges_of(choice, name)
    if "items" in schema:
        item = schema["items"]
        named = SCHEMAS[item["$ref"].rpartition("/")[2]] if "$ref" in item else item
        yield from _ranges_of(named if _is_value(named) else item, f"{name}[]")
    if "propertyNames" in schema:
        yield from _ranges_of(schema["propertyNames"], f"{name} (names)")


def _is_value(schema: Mapping[str, Any]) -> bool:
    """Return whether a named type is a text or a number with a range, which the fields that have it are listed for."""
    return schema.get("type") in ("string", "number", "integer") and "enum" not in schema


def bounds(schema: Mapping[str, Any]) -> str:
    for least, most, unit in (
        ("minimum", "maximum", ""),
        ("minLength", "maxLength", " characters"),
        ("minItems", "maxItems", " entries"),
        ("minProperties", "maxProperties", " members"),
    ):
        if most in schema and least in schema:
            return f"{schema[least]:.16g}–{schema[most]:.16g}{unit}"
        if most in schema:
            return f"at most {schema[most]:.16g}{unit}"
        if least in schema:
            return f"from {schema[least]:.16g}{_counted(unit, schema[least])}"
    return ""


def _counted(unit: str, number: float) -> str:
    singular = {" characters": " character", " entries": " entry", " members": " member"}
    return singular.get(unit, unit) if number == 1 else unit


def _parameters() -> Iterator[tuple[str, str, str]]:
    """Each bounded parameter; those of a raw send give the members of a message."""
    for calls in DOCUMENT["paths"].values():
        for method in METHODS:
            for parameter in calls.get(method, {}).get("parameters", ()):
                name, location, range_ = parameter["name"], parameter["in"], bounds(parameter["schema"])
                gives_member = name.startswith("Peeklock-")
                if range_ and not gives_member and not (location == "path" and range_.startswith("from")):
                    yield name, f"{location} parameter", range_


def _shortened(schemas: list[str]) -> list[str]:
    """Without the schemas of settlements, patches and entries, where the same member stands in another one."""
    others = [name for name in schemas if not name.endswith(("Settlement", "Patch", "Entry"))]
    return others or schemas
