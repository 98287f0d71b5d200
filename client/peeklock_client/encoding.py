"""Encodes the JSON of requests."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from peeklock_client.errors import NotSerializable


def encoded(value: Any, order: Literal["deterministic"] | None = None) -> bytes:
    """Return a value as JSON. Pydantic models are encoded as the values of their fields. Raises `NotSerializable`."""
    try:
        return msgspec.json.encode(value, enc_hook=_fields, order=order)
    except (TypeError, ValueError, RecursionError) as error:
        raise NotSerializable(f"A value cannot be encoded as JSON: {error}") from error


def _fields(value: Any) -> Any:
    """Return a value that msgspec cannot encode in a form that it can."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    raise TypeError(f"type {type(value).__name__} is not supported")
