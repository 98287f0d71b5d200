"""What the fields of requests and answers mean, in sentences for readers of the document and of forms."""

import tomllib
from collections.abc import Mapping
from inspect import cleandoc
from pathlib import Path
from typing import Any, get_type_hints

import msgspec

from app.domain.message import HEADER_TEXTS, MessageHeaders

FILE = Path(__file__).with_suffix(".toml")


class FieldDescriptions:
    """The sentences of `field_descriptions.toml`, and those of `MessageHeaders`."""

    def __init__(self) -> None:
        texts = tomllib.loads(FILE.read_text())
        self._fields: Mapping[str, str] = {**_meanings_of_headers(), **texts["fields"]}
        self._structs: Mapping[str, Mapping[str, str]] = texts["structs"]

    def of_field(self, shape: type[msgspec.Struct], name: str, of_type: str | None) -> str:
        """Return what a field of a struct means. Raises `KeyError` if neither the file nor its type says it.

        What its struct says comes first, then what the type of the field says, then the meaning of the name.
        """
        for base in shape.__mro__:
            if text := self._structs.get(base.__name__, {}).get(name):
                return text
        return of_type or self._fields[name]

    def of_struct(self, shape: type[msgspec.Struct]) -> Mapping[str, str]:
        """Return what each field of a struct means, as `of_field` does."""
        _, definitions = msgspec.json.schema_components([shape])
        members: Mapping[str, Mapping[str, Any]] = definitions[shape.__name__].get("properties", {})
        return {name: cleandoc(self.of_field(shape, name, meaning_of_type(schema))) for name, schema in members.items()}


def meaning_of_type(schema: Mapping[str, Any]) -> str | None:
    """Return what the type of a field says of itself in its JSON schema, None if it says nothing."""
    schemas = [schema, *schema.get("anyOf", [])]
    return next((found["description"] for found in schemas if "description" in found), None)


def _meanings_of_headers() -> Mapping[str, str]:
    """Return what each text of a message's headers means."""
    declared = get_type_hints(MessageHeaders, include_extras=True)
    return {name: declared[name].__metadata__[0].description for name in HEADER_TEXTS}
