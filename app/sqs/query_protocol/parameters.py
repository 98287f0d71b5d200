"""Translates the parameters of a form into the JSON that the JSON protocol has for the same request."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import NamedTuple, TypeAlias

import msgspec
from msgspec import inspect

from app.domain.refusals import InvalidRequest
from app.domain.suggestions import did_you_mean
from app.http.decoding import INTEGER
from app.sqs.errors import MissingParameter
from app.sqs.query_protocol.form import Form
from app.sqs.query_protocol.members import Member, Shape, members
from app.wire.decode_errors import shortened

MAX_NUMBER = 1000
"""The largest number of an entry, as in `AttributeName.1000`. A form has no more fields."""
_MAX_DIGITS = 19
"""Digits of an integer of 64 bits."""

_Texts: TypeAlias = Mapping[str | None, str]
"""The values of all fields of one name, by what follows the name and its dot. None is the field of the name alone."""
_Reader: TypeAlias = Callable[[str, _Texts], object]
"""What returns the JSON value of all fields of the name that is its first argument."""


class _Parameter(NamedTuple):
    json_name: str
    read: _Reader


def json_of(form: Form, shape: Shape) -> bytes:
    """Return the parameters of a form as the JSON of a struct, which its decoder then checks.

    Text that is not an integer or a boolean where the struct has one stays text, so that the decoder refuses it. Entries of lists
    and maps are in the order of their numbers. Numbers may be left out, because only their order means something. A single entry
    needs none, as in `AttributeName=All`, and a list whose name has an empty value is empty, as SDKs send it.

    Refuses with `InvalidRequest` a name that the struct does not have, a number that is not from 1 to `MAX_NUMBER`, and a map that
    has a key twice. Refuses with `MissingParameter` an entry of a map without key or value.
    """
    texts: _Texts = {**form.parameters}
    return msgspec.json.encode(_struct_reader(shape)("", texts))


# ---- names -----------------------------------------------------------------------------------------------------------


def _joined(path: str, part: str) -> str:
    return f"{path}.{part}" if path else part


def _unknown(path: str, part: str, known: Iterable[str] = ()) -> InvalidRequest:
    """Return the refusal of a name, which may mean one of the known names at the same place."""
    prefix = _joined(path, "")
    name = prefix + part
    suggestion = did_you_mean(name, [prefix + other for other in known], prefix)
    return InvalidRequest(f"The action has no parameter `{shortened(name)}`.{suggestion}")


def _by_part(path: str, texts: _Texts) -> Mapping[str, _Texts]:
    """Group fields by the next part of their names. Refuses a value where parts are expected."""
    groups: dict[str, dict[str | None, str]] = {}
    for name, text in texts.items():
        if name is None:
            raise InvalidRequest(f"The parameter `{shortened(path)}` has no value of its own, only parts.")
        part, dot, rest = name.partition(".")
        groups.setdefault(part, {})[rest if dot else None] = text
    return groups


def _entries(path: str, texts: _Texts) -> Sequence[tuple[str, _Texts]]:
    """Return the entries of a list or map with their names, in the order of their numbers."""
    if texts == {None: ""}:
        return []
    if all(name is None or not _is_number(path, name.partition(".")[0]) for name in texts):
        return [(path, texts)]
    groups = _by_part(path, texts)
    if without := [part for part in groups if not _is_number(path, part)]:
        raise _unknown(path, without[0])
    return [(_joined(path, part), groups[part]) for part in sorted(groups, key=int)]


def _is_number(path: str, part: str) -> bool:
    """Return whether a part is the number of an entry. Refuses digits that are no such number."""
    if not (part.isascii() and part.isdigit()):
        return False
    if len(part) > len(str(MAX_NUMBER)) or part.startswith("0") or int(part) > MAX_NUMBER:
        name = shortened(_joined(path, part))
        raise InvalidRequest(f"An entry has a number from 1 to {MAX_NUMBER}, without leading zeros, and not `{name}`.")
    return True


# ---- values ----------------------------------------------------------------------------------------------------------


def _text(path: str, texts: _Texts) -> str:
    for name in texts:
        if name is not None:
            raise _unknown(path, name)
    return texts[None]


def _integer(path: str, texts: _Texts) -> int | str:
    text = _text(path, texts)
    return int(text) if len(text) <= _MAX_DIGITS and INTEGER.fullmatch(text) else text


def _boolean(path: str, texts: _Texts) -> bool | str:
    text = _text(path, texts)
    return {"true": True, "false": False}.get(text, text)


@cache
def _struct_reader(shape: Shape) -> _Reader:
    parameters = _parameters(shape)

    def read(path: str, texts: _Texts) -> object:
        values: dict[str, object] = {}
        for part, inner in _by_part(path, texts).items():
            if part not in parameters:
                raise _unknown(path, part, parameters)
            parameter = parameters[part]
            if parameter.json_name in values:
                raise InvalidRequest(f"The parameter `{_joined(path, part)}` is also given under another name.")
            values[parameter.json_name] = parameter.read(_joined(path, part), inner)
        return values

    return read


def _parameters(shape: Shape) -> Mapping[str, _Parameter]:
    """Return the parameters of a struct by their names.

    A list that is repeated also has its name of JSON, under which it is empty: botocore sends an empty list as
    `AttributeNames=`, and entries as `AttributeName.1=All`.
    """
    named: dict[str, _Parameter] = {}
    for member in members(shape):
        named[member.query_name] = _Parameter(member.json_name, _reader(member.type, member))
        if isinstance(member.type, inspect.VarTupleType) and member.element is None:
            named[member.json_name] = _Parameter(member.json_name, _empty_list(member.query_name))
    return named


def _reader(kind: inspect.Type, member: Member) -> _Reader:
    match kind:
        case inspect.UnionType():
            (present,) = [one for one in kind.types if not isinstance(one, inspect.NoneType)]
            return _reader(present, member)
        case inspect.StructType():
            return _struct_reader(kind.cls)
        case inspect.DictType():
            return _map_reader(member, _reader(kind.value_type, member))
        case inspect.VarTupleType():
            read_entry = _struct_reader(member.entry) if member.entry else _reader(kind.item_type, member)
            return _list_reader(member, read_entry)
        case inspect.IntType():
            return _integer
        case inspect.BoolType():
            return _boolean
        case _:
            return _text


def _list_reader(member: Member, read_entry: _Reader) -> _Reader:
    return lambda path, texts: [read_entry(name, entry) for name, entry in _entries_of(member, path, texts)]


def _entries_of(member: Member, path: str, texts: _Texts) -> Sequence[tuple[str, _Texts]]:
    """Return the entries of a list or map, which are within an element of their own or not."""
    if member.element is None or texts == {None: ""}:
        return _entries(path, texts)
    parts = _by_part(path, texts)
    _check_parts(path, parts, (member.element,))
    return _entries(_joined(path, member.element), parts[member.element])


def _empty_list(name: str) -> _Reader:
    def read(path: str, texts: _Texts) -> object:
        if texts != {None: ""}:
            raise InvalidRequest(f"The entries of `{path}` are named `{name}.1`, `{name}.2` and so on.")
        return []

    return read


def _map_reader(member: Member, read_value: _Reader) -> _Reader:
    key, value = member.key, member.value

    def read(path: str, texts: _Texts) -> object:
        values: dict[str, object] = {}
        for name, entry in _entries_of(member, path, texts):
            parts = _by_part(name, entry)
            _check_parts(name, parts, (key, value))
            found = _text(f"{name}.{key}", parts[key])
            if found in values:
                raise InvalidRequest(f"`{shortened(found)}` is given more than once in `{path}`.")
            values[found] = read_value(f"{name}.{value}", parts[value])
        return values

    return read


def _check_parts(path: str, parts: Iterable[str], needed: Sequence[str]) -> None:
    for part in parts:
        if part not in needed:
            raise _unknown(path, part, needed)
    for part in needed:
        if part not in parts:
            raise MissingParameter(f"The parameter `{path}.{part}` is missing.")
