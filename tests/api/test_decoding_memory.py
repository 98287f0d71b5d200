"""Decoding a request takes no more memory than docs/deploy.md counts for it."""

from __future__ import annotations

import tracemalloc
from typing import Any

import msgspec
import pytest

from app.domain.refusals import InvalidRequest
from app.http.decoding import body_decoder
from app.http.list_limits import UNCHECKED_COMMAS
from app.wire.keys import CreateKey
from app.wire.queue_patch import QueuePatch
from app.wire.queues import QueueSettingsBody
from app.wire.sending import SendMessage
from tests.memory_bound import MIB, REQUESTS

SIZE = MIB
CHARACTER = "😀"
"""One character of four bytes makes Python store four bytes for each character of a text."""


@pytest.mark.parametrize(
    ("shape", "before", "after"),
    [
        (SendMessage, '{"durability": "', '"}'),
        (SendMessage, '{"message_id": "', '"}'),
        (SendMessage, '{"priority": "', '"}'),
        (SendMessage, '{"', '": 1}'),
        (CreateKey, '{"principal": "a", "rights": ["', '"]}'),
        (CreateKey, '{"principal": "', '"}'),
    ],
)
def test_the_refusal_of_a_long_name_or_value_takes_a_bounded_multiple_of_the_body(
    shape: Any, before: str, after: str
) -> None:
    body = f"{before}{CHARACTER}{'a' * SIZE}{after}".encode()
    decode = body_decoder(shape)
    tracemalloc.start()
    try:
        with pytest.raises(InvalidRequest):
            decode(body)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak / len(body) < REQUESTS


@pytest.mark.parametrize("shape", [QueueSettingsBody, QueuePatch])
def test_the_refusal_of_many_labels_takes_a_bounded_multiple_of_the_body(shape: Any) -> None:
    labels = ",".join(f'"{number:x}":"{chr(0x100)}"' for number in range(SIZE // 10))
    body = f'{{"labels":{{{labels}}}}}'.encode()
    decode = body_decoder(shape)
    tracemalloc.start()
    try:
        with pytest.raises(InvalidRequest) as refused:
            decode(body)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [fault.pointer for fault in refused.value.field_errors] == ["/labels"]
    assert "bytes" in str(refused.value)
    assert peak < len(body)


def test_labels_can_have_many_commas() -> None:
    labels = {f"name-{number}": "," * 250 for number in range(50)}
    body = msgspec.json.encode({"labels": labels})
    assert body.count(b",") > UNCHECKED_COMMAS
    assert body_decoder(QueueSettingsBody)(body).labels == labels
