"""Translates a filter policy into the filter of a subscription: every field of the policy must match, in one of its ways."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast

from app.broker.topics.subscription_filter import compiled
from app.domain.filter_expression import MAX_SYMBOLS
from app.domain.message import MAX_FILTER_BYTES
from app.domain.refusals import InvalidRequest
from app.sqs.errors import FilterPolicyLimitExceeded
from app.sqs.filter_policy.conditions import Alternatives, Field, alternatives_of, text_literal
from app.sqs.xml_text import quoted

ATTRIBUTES = "MessageAttributes"
"""The scope of a policy on message attributes, which are properties."""
BODY = "MessageBody"
"""The scope of a policy on the members of a body of JSON."""
SCOPES = (ATTRIBUTES, BODY)

_OR = "$or"
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RESERVED = frozenset(
    [
        "as",
        "break",
        "const",
        "continue",
        "else",
        "false",
        "for",
        "function",
        "if",
        "import",
        "in",
        "let",
        "loop",
        "namespace",
        "null",
        "package",
        "return",
        "true",
        "var",
        "void",
        "while",
    ]
)
"""Words that CEL does not take as the name of a field."""

Path: TypeAlias = tuple[str, ...]
FieldOf: TypeAlias = Callable[[Path], Field]


def filter_of(policy: Mapping[str, Any], scope: str) -> str | None:
    """Return the filter of a policy in one of the `SCOPES`; None for an empty policy, which matches every message.

    Refuses with `InvalidRequest` what this server does not support, and with `FilterPolicyLimitExceeded` a policy whose
    filter is longer than a filter can be, or has more parts.
    """
    if not policy:
        return None
    field_of = _property if scope == ATTRIBUTES else _member
    text = " && ".join(_clauses(policy, (), field_of))
    if len(text.encode()) > MAX_FILTER_BYTES:
        raise FilterPolicyLimitExceeded(
            f"The filter of this FilterPolicy has {len(text.encode())} bytes, and a filter has at most {MAX_FILTER_BYTES}."
        )
    try:
        compiled(text)
    except ValueError as error:
        raise FilterPolicyLimitExceeded(
            f"This FilterPolicy has too many parts: a filter has at most {MAX_SYMBOLS} operators, brackets and commas."
        ) from error
    return text


def _clauses(policy: Mapping[str, Any], path: Path, field_of: FieldOf) -> Sequence[str]:
    """Return what all must match. Refuses an object without members: SNS does not say what it would match."""
    if not policy:
        raise InvalidRequest(f"In a FilterPolicy, {quoted('.'.join(path))} has at least one member.")
    clauses: list[str] = []
    for name, value in policy.items():
        if name == _OR:
            clauses.append(_joined(_choices(value, path, field_of)))
        elif isinstance(value, dict):
            if field_of is _property:
                raise InvalidRequest(
                    f"In a FilterPolicy on message attributes, {quoted(name)} has a list. Only FilterPolicyScope {BODY} has objects."
                )
            clauses += _clauses(cast("Mapping[str, Any]", value), (*path, name), field_of)
        else:
            clauses.append(_joined(alternatives_of(name, field_of((*path, name)), value)))
    return clauses


def _choices(value: object, path: Path, field_of: FieldOf) -> Alternatives:
    choices = cast("list[object]", value) if isinstance(value, list) else []
    if len(choices) < len(("one", "other")) or not all(isinstance(one, dict) for one in choices):
        raise InvalidRequest(f"In a FilterPolicy, {_OR} has a list of at least two objects.")
    return [" && ".join(_clauses(cast("Mapping[str, Any]", one), path, field_of)) for one in choices]


def _joined(alternatives: Alternatives) -> str:
    return alternatives[0] if len(alternatives) == 1 else f"({' || '.join(alternatives)})"


def _property(path: Path) -> Field:
    (name,) = path
    exists = f"{text_literal(name)} in message.properties"
    return Field(_read("message.properties", name, text_literal), exists, is_array=False)


def _member(path: Path) -> Field:
    """Return a member of the body.

    `has` tests for a plain name, also in an object that is missing, and `in` for any name, but not in an object that is.
    """
    *outer, name = path
    whole = "message.body"
    for one in outer:
        whole = _read(whole, one, _member_literal)
    value = _read(whole, name, _member_literal)
    exists = f"has({value})"
    if not value.endswith(f".{name}"):
        exists = "" if outer else f"{_member_literal(name)} in {whole}"
    return Field(value, exists, is_array=True)


def _read(whole: str, name: str, literal: Callable[[str], str]) -> str:
    is_plain = NAME.fullmatch(name) is not None and name not in _RESERVED
    return f"{whole}.{name}" if is_plain else f"{whole}[{literal(name)}]"


def _member_literal(name: str) -> str:
    """Return the name of a member of the body as a filter writes it, which is without escapes."""
    if not name.isprintable() or ("\\" in name and "'" in name) or ('"' in name and "'" in name):
        raise InvalidRequest(f"In a FilterPolicy on the body, this server cannot read a member named {quoted(name)}.")
    if "\\" in name or '"' in name:
        return f"r'{name}'"
    return f'"{name}"'
