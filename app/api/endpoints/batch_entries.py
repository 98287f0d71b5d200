"""The messages of a batch, each of which may be valid or invalid."""

from collections.abc import Sequence

import msgspec

from app.domain.message import Durability
from app.domain.refusals import FieldError, InvalidRequest, invalid_at
from app.domain.sending import NewMessage
from app.http.decoding import entry_decoder
from app.wire.message_fields import MessageToSend

_decode_message = entry_decoder(MessageToSend)


def read_entries(messages: Sequence[msgspec.Raw], traceparent: str | None) -> list[NewMessage | InvalidRequest]:
    """Return the message of each entry, or its refusal."""
    return [_read_entry(bytes(raw), traceparent) for raw in messages]


def all_messages(entries: Sequence[NewMessage | InvalidRequest]) -> list[NewMessage]:
    """Return the messages. Refuses with `InvalidRequest` if an entry is invalid, with the faults of the first one."""
    new_messages: list[NewMessage] = []
    for index, entry in enumerate(entries):
        if isinstance(entry, InvalidRequest):
            raise InvalidRequest(
                field_errors=[
                    FieldError(f"/messages/{index}{fault.pointer}", fault.detail) for fault in entry.field_errors
                ]
            )
        new_messages.append(entry)
    return new_messages


def _read_entry(raw: bytes, traceparent: str | None) -> NewMessage | InvalidRequest:
    try:
        message: MessageToSend = _decode_message(raw)
        new_message = message.new_message(traceparent)
    except InvalidRequest as refusal:
        return refusal.as_result()
    return (
        new_message
        if new_message.durability is Durability.DURABLE
        else invalid_at("/durability", "A batch is always durable.")
    )
