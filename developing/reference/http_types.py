"""The page of the types that requests and answers have."""

from __future__ import annotations

from developing.reference import markdown, schemas
from developing.reference.contract import SCHEMAS

INTRODUCTION = """
The types of requests and answers, as the OpenAPI document names them. [The HTTP reference](http-api.md) says which
operation has which. A field is always present in answers if it is required. Answers may get further fields.
"""


def page() -> str:
    """Return the page: a section for each type, by name."""
    return markdown.page("HTTP types", INTRODUCTION, *(_section(name) for name in sorted(SCHEMAS)))


def _section(name: str) -> str:
    schema = SCHEMAS[name]
    fields = schemas.fields_table(schema)
    parts = [f"## {name}", schema.get("description", ""), fields or f"Type: {schemas.kind_of(schema)}"]
    if discriminator := schema.get("discriminator"):
        parts.append(f"`{discriminator['propertyName']}` says which of them it is.")
    return "\n\n".join(part for part in parts if part)
