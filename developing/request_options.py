"""Write app/cli/request_options.py from the shapes of requests, or with `--check` tell whether it is as they say.

The options are data, because reading them from the shapes would cost a command an eighth of its start.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any, cast

import msgspec
from msgspec import inspect

from app.cli.field_options import FieldOption, Kind
from app.wire.field_descriptions import FieldDescriptions
from app.wire.queues import QueueSettingsBody
from app.wire.sending import SendMessage
from app.wire.settlements import AbandonLock, CompleteLock, DeadLetterLock, DeferLock, ReleaseLock, RenewLock
from app.wire.topics import PublishMessage, SubscriptionSettingsBody, TopicSettingsBody
from app.wire.type_lookup import choices, members
from developing.paths import BIN, ROOT

FILE = ROOT / "app/cli/request_options.py"
REQUESTS: Sequence[type[msgspec.Struct]] = (
    SendMessage, PublishMessage, CompleteLock, AbandonLock, DeferLock, ReleaseLock, DeadLetterLock, RenewLock,
    QueueSettingsBody, TopicSettingsBody, SubscriptionSettingsBody,
)  # fmt: skip
"""The requests whose fields are options of a command."""

HEAD = '''"""The options for the fields of requests.

Written by `python3 dev.py openapi` from the shapes of requests. Do not edit it.
"""

from app.cli.field_options import FieldOption
'''

DESCRIPTIONS = FieldDescriptions()


def main() -> int:
    """Write the file if it has changed. Return 1 if `--check` finds that it is not as the shapes say."""
    text = module_text()
    if FILE.exists() and FILE.read_text("utf-8") == text:
        return 0
    if sys.argv[1:] == ["--check"]:
        print(f"{FILE.relative_to(ROOT)} differs from the requests: run `python3 dev.py openapi`", flush=True)
        return 1
    FILE.write_text(text, "utf-8")
    return 0


def module_text() -> str:
    """Return the module: a constant with the options of each request."""
    module = "\n".join((HEAD, *map(_constant, REQUESTS)))
    command = (BIN / "ruff", "format", "--quiet", f"--stdin-filename={FILE}", "-")
    return subprocess.run(command, input=module, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def field_options(shape: type[msgspec.Struct]) -> Iterator[FieldOption]:
    """Yield an option for each field of a struct. A field with fields has an option for each of these."""
    for field in cast("inspect.StructType", inspect.type_info(shape)).fields:
        structs = [info for info in members([field.type]) if isinstance(info, inspect.StructType)]
        if structs:
            yield from _inner_options(field.encode_name, structs)
        else:
            yield _option((field.encode_name,), field.type, _help(shape, field))


def _inner_options(outer: str, structs: Sequence[inspect.StructType]) -> list[FieldOption]:
    """Return options for the fields of alternatives that a tag tells apart, and for the tag."""
    found: dict[str, FieldOption] = {}
    tags = [struct for struct in structs if struct.tag_field]
    if tags:
        tag = cast("str", tags[0].tag_field)
        kinds = inspect.LiteralType(tuple(str(struct.tag) for struct in tags))
        found[tag] = _option((outer, tag), kinds, f"The {tag} of {outer}.")
    for struct in structs:
        for field in struct.fields:
            path = (outer, field.encode_name)
            found.setdefault(field.encode_name, _option(path, field.type, _help(struct.cls, field)))
    return list(found.values())


def _option(path: tuple[str, ...], info: inspect.Type, help_text: str) -> FieldOption:
    return FieldOption(path, _kind(info), help_text, tuple(choices([info])))


def _kind(info: inspect.Type) -> Kind:
    """Return the kind of a field: that of its first type that text can give, else JSON."""
    for member in members([info]):
        match member:
            case inspect.BoolType():
                return "bool"
            case inspect.IntType():
                return "int"
            case inspect.FloatType():
                return "float"
            case inspect.ListType():
                return "numbers" if _is_number(member.item_type) else "texts"
            case inspect.StrType() | inspect.DateTimeType() | inspect.EnumType() | inspect.LiteralType():
                return "text"
            case _:
                continue
    return "json"


def _is_number(info: inspect.Type) -> bool:
    return any(isinstance(member, inspect.FloatType | inspect.IntType) for member in members([info]))


def _help(shape: type[Any], field: inspect.Field) -> str:
    text = DESCRIPTIONS.of_field(shape, field.encode_name, _description(field.type))
    return " ".join(text.replace("`", "").split())


def _description(info: inspect.Type) -> str | None:
    """Return what a type says about its values."""
    match info:
        case inspect.Metadata():
            return (info.extra_json_schema or {}).get("description") or _description(info.type)
        case inspect.UnionType():
            return next(filter(None, map(_description, info.types)), None)
        case _:
            return None


def _constant(shape: type[msgspec.Struct]) -> str:
    name = re.sub(r"\B(?=[A-Z])", "_", shape.__name__).upper()
    return f"{name} = ({''.join(f'{_literal(found)}, ' for found in field_options(shape))})"


def _literal(found: FieldOption) -> str:
    possible = f", choices={found.choices}" if found.choices else ""
    return f"FieldOption({found.path}, {found.kind!r}, {found.help!r}{possible})"


if __name__ == "__main__":
    sys.exit(main())
