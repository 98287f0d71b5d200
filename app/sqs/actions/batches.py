"""Batches of up to ten messages: each entry has a result of its own, so a wrong entry does not refuse the others."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from app.broker.sending.send import send_each
from app.domain.message import Receipt
from app.domain.queue import Queue
from app.domain.refusals import InvalidRequest, Refusal
from app.domain.sending import NewMessage
from app.domain.settlement import LockToken
from app.http.decoding import entry_decoder
from app.http.settling import BatchEntry, BatchResult
from app.sqs.actions.messages import completion, new_visibility, sent_message, settle_handles
from app.sqs.call import Call
from app.sqs.errors import (
    AwsError,
    BatchEntryIdsNotDistinct,
    BatchRequestTooLong,
    EmptyBatchRequest,
    InvalidBatchEntryId,
    TooManyEntriesInBatchRequest,
    aws_error,
)
from app.sqs.new_message import fifo_rules, new_message
from app.sqs.shapes import messages as shapes
from app.sqs.shapes.members import MAX_BATCH_ENTRIES, FailedEntry
from app.sqs.shapes.topics import PublishEntry

MAX_BATCH_BYTES = 1 << 20
"""Bytes of the bodies and attributes of a batch together, as in SQS."""
SAME_HANDLE = "An earlier entry of the batch has the same ReceiptHandle and asks for something else."
ENTRY_ID = re.compile(r"[A-Za-z0-9_-]{1,80}")

Entry = TypeVar("Entry", shapes.SendEntry, shapes.DeleteEntry, shapes.ChangeVisibilityEntry, PublishEntry)


class _WithId(msgspec.Struct, rename="pascal"):
    """The member that every entry has, with which its result is found."""

    id: shapes.EntryId


async def send_message_batch(call: Call[shapes.SendMessageBatch]) -> shapes.SentBatch:
    """Store each message that is accepted. Refuses as `read_entries` does, and with `BatchRequestTooLong`."""
    queue = await call.queue()
    entries = read_entries(call.body.entries, shapes.SendEntry)
    rules = fifo_rules(queue)
    messages = [message_of(entry, partial(new_message, fifo=rules)) for entry in entries.values()]
    check_size(messages)
    outcomes = dict(zip(entries, await send_each(call.broker.sending, queue.name, messages), strict=True))
    return shapes.SentBatch(
        successful=tuple(
            _sent(entry_id, sent_message(queue, entry, receipt))
            for entry_id, entry in entries.items()
            if isinstance(entry, shapes.SendEntry) and isinstance(receipt := outcomes[entry_id], Receipt)
        ),
        failed=_failures(outcomes),
    )


async def delete_message_batch(call: Call[shapes.DeleteMessageBatch]) -> shapes.DeletedBatch:
    """Complete each message whose receipt handle still holds it. Refuses as `read_entries` does."""
    entries = read_entries(call.body.entries, shapes.DeleteEntry)
    outcomes = await _settle_each(call, entries, lambda queue, entry: completion(queue, entry.receipt_handle))
    return shapes.DeletedBatch(successful=_done(outcomes), failed=_failures(outcomes))


async def change_message_visibility_batch(call: Call[shapes.ChangeMessageVisibilityBatch]) -> shapes.ChangedBatch:
    """Change each lock whose receipt handle still holds the message. Refuses as `read_entries` does."""
    entries = read_entries(call.body.entries, shapes.ChangeVisibilityEntry)
    outcomes = await _settle_each(call, entries, new_visibility)
    return shapes.ChangedBatch(successful=_done(outcomes), failed=_failures(outcomes))


def read_entries(raw_entries: Sequence[msgspec.Raw], shape: type[Entry]) -> dict[str, Entry | Refusal]:
    """Return the entries by their ids; a malformed one is its own refusal.

    Refuses a batch without entries, or with more than ten, and ids that are malformed or repeated, because results are
    found by them.
    """
    if not raw_entries:
        raise EmptyBatchRequest
    if len(raw_entries) > MAX_BATCH_ENTRIES:
        raise TooManyEntriesInBatchRequest
    entries: dict[str, Entry | Refusal] = {}
    for raw in raw_entries:
        entry = _read_entry(raw, shape)
        entry_id = entry_decoder(_WithId)(raw).id if isinstance(entry, Refusal) else entry.id
        if ENTRY_ID.fullmatch(entry_id) is None:
            raise InvalidBatchEntryId
        if entry_id in entries:
            raise BatchEntryIdsNotDistinct
        entries[entry_id] = entry
    return entries


def _read_entry(raw: msgspec.Raw, shape: type[Entry]) -> Entry | Refusal:
    try:
        entry: Entry = entry_decoder(shape)(raw)
        return entry
    except Refusal as refusal:
        return refusal.as_result()


def message_of(entry: Entry | Refusal, build: Callable[[Entry], NewMessage]) -> NewMessage | Refusal:
    """Return the message that `build` makes of an entry, or its refusal."""
    try:
        return entry if isinstance(entry, Refusal) else build(entry)
    except Refusal as refusal:
        return refusal.as_result()


def _sent(entry_id: str, sent: shapes.SentMessage) -> shapes.SentEntry:
    return shapes.SentEntry(
        id=entry_id,
        message_id=sent.message_id,
        md5_of_message_body=sent.md5_of_message_body,
        md5_of_message_attributes=sent.md5_of_message_attributes,
        md5_of_message_system_attributes=sent.md5_of_message_system_attributes,
        sequence_number=sent.sequence_number,
    )


def check_size(messages: Iterable[NewMessage | Refusal]) -> None:
    """Refuse with `BatchRequestTooLong` messages with too many bytes together."""
    sizes = (len(one.body) + len(one.envelope.properties) for one in messages if isinstance(one, NewMessage))
    if sum(sizes) > MAX_BATCH_BYTES:
        raise BatchRequestTooLong


async def _settle_each(
    call: Call[Any], entries: Mapping[str, Entry | Refusal], request_of: Callable[[Queue, Entry], BatchEntry]
) -> dict[str, BatchResult]:
    """Carry out each entry. An entry that repeats an earlier one has its result: a repeated delete succeeds."""
    queue = await call.queue()
    asked = [entry if isinstance(entry, Refusal) else replace(entry, id="") for entry in entries.values()]
    requests = [one if isinstance(one, Refusal) else request_of(queue, one) for one in asked]
    results = await settle_handles(call, queue, _without_repeated_handles(requests))
    return {name: results[asked.index(one)] for name, one in zip(entries, asked, strict=True)}


def _without_repeated_handles(requests: Iterable[BatchEntry]) -> list[BatchEntry]:
    """Return the requests, with a refusal instead of each that has the receipt handle of an earlier one."""
    tokens: set[LockToken] = set()
    checked: list[BatchEntry] = []
    for request in requests:
        if isinstance(request, Refusal):
            checked.append(request)
            continue
        checked.append(InvalidRequest(SAME_HANDLE) if request.token in tokens else request)
        tokens.add(request.token)
    return checked


def _done(outcomes: Mapping[str, BatchResult]) -> tuple[shapes.DoneEntry, ...]:
    return tuple(shapes.DoneEntry(id=name) for name, outcome in outcomes.items() if not isinstance(outcome, Exception))


def _failures(outcomes: Mapping[str, object]) -> tuple[FailedEntry, ...]:
    """Return the entries that failed."""
    failed = ((name, outcome) for name, outcome in outcomes.items() if isinstance(outcome, Exception))
    return tuple(failed_entry(name, outcome, aws_error(outcome)) for name, outcome in failed)


def failed_entry(entry_id: str, outcome: Exception, error: AwsError) -> FailedEntry:
    """Return what a client is told of an entry that failed with this error."""
    return FailedEntry(id=entry_id, code=error.code, sender_fault=error.is_of_sender, message=str(outcome))
