"""Decide whether a batch with `atomic: false` counts as refused: each of its invalid messages must be refused."""

from functools import cache
from typing import Any

from jsonschema_rs import Draft202012Validator

from app.api.openapi.document import openapi_document


def refuses_each_bad_message(batch: Any, results: list[Any]) -> bool:
    """Return whether only messages of a batch violate the document, and each of these is refused.

    False for an atomic batch, for a batch that violates another rule too, and for one without an invalid message.
    """
    if not isinstance(batch, dict) or batch.get("atomic") is not False or not isinstance(batch.get("messages"), list):
        return False
    messages = batch["messages"]
    bad = {index for index, message in enumerate(messages) if not _is_valid("SendMessage", message)}
    rest = {**batch, "messages": [{} if index in bad else message for index, message in enumerate(messages)]}
    refused = {index for index, result in enumerate(results) if result["result"] == "refused"}
    return _is_valid("SendBatch", rest) and bool(bad) and bad <= refused


def _is_valid(schema: str, value: Any) -> bool:
    return _validator(schema).is_valid(value)


@cache
def _validator(schema: str) -> Draft202012Validator:
    """Validate as Schemathesis does: with the same library, formats included."""
    whole = {"$ref": f"#/components/schemas/{schema}", "components": openapi_document()["components"]}
    return Draft202012Validator(whole, validate_formats=True)
