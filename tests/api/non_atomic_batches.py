"""When a batch with `atomic: false` counts as refused: each of its messages that breaks the document is, by itself."""

from functools import cache
from typing import Any

from jsonschema_rs import Draft202012Validator

from app.api.openapi.document import openapi_document


def refuses_each_bad_message(batch: Any, results: list[Any]) -> bool:
    """Whether a batch breaks the document in nothing but some of its messages, and each of these is refused.

    False for an atomic batch, where another rule is broken too, and where no message is bad.
    """
    if not isinstance(batch, dict) or batch.get("atomic") is not False or not isinstance(batch.get("messages"), list):
        return False
    messages = batch["messages"]
    bad = {place for place, message in enumerate(messages) if not _is_valid("SendMessage", message)}
    rest = {**batch, "messages": [{} if place in bad else message for place, message in enumerate(messages)]}
    refused = {place for place, result in enumerate(results) if result["result"] == "refused"}
    return _is_valid("SendBatch", rest) and bool(bad) and bad <= refused


def _is_valid(schema: str, value: Any) -> bool:
    return _validator(schema).is_valid(value)


@cache
def _validator(schema: str) -> Draft202012Validator:
    """Schemathesis judges what it made up with this library too, formats included."""
    whole = {"$ref": f"#/components/schemas/{schema}", "components": openapi_document()["components"]}
    return Draft202012Validator(whole, validate_formats=True)
