"""Digests of messages and of sealed rows: every engine takes the same, and so does a reader who knows only the columns."""

import secrets
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import pytest

from app.broker.ports import Redrive, Unlocked
from app.domain.archive import ArchiveBatch, Copy, DigestVersion, TrimResult
from app.domain.instant import HOUR, MINUTE
from app.domain.message import BodyKind, Draft, Envelope, MessageState
from app.domain.queue import Queue, QueueSettings
from app.store.documents import write_headers
from tests.contract.subject import Subject, abandonment, completion, draft

MEBIBYTE = 1 << 20
COLUMNS = (
    "sequence_number", "queue", "outcome", "settled_at", "enqueued_at", "available_at", "expires_at",
    "first_delivered_at", "last_delivered_at", "delivery_count", "failure_count", "last_failure", "priority",
    "message_id", "group_id", "receiver_id", "lock_token", "headers", "properties", "body_kind", "body",
    "dead_letter_reason", "dead_letter_description", "content_digest",
)  # fmt: skip
"""What the digest of a row covers, in its order, written down here by hand."""


def framed(octets: bytes | None) -> bytes:
    """A field as it stands in a digest."""
    return b"-" if octets is None else str(len(octets)).encode() + b":" + octets


def octets_of(name: str, value: Any) -> bytes | None:
    """The value of a column as it stands in the digest of its row."""
    if value is None:
        return None
    if name == "body":
        return sha256(value or b"").hexdigest().encode()
    if isinstance(value, bytes):
        return value.hex().encode()
    return str(value).encode()


def digest_of_row(row: Mapping[str, Any]) -> str:
    """As a reader of a copy calculates it."""
    return sha256(b"".join(framed(octets_of(name, row[name])) for name in COLUMNS)).hexdigest()


def digest_of_batch(rows: list[Mapping[str, Any]]) -> str:
    """As a reader of a copy calculates it."""
    ascending = sorted(rows, key=lambda row: row["sequence_number"])
    return sha256("".join(f"{digest_of_row(row)}\n" for row in ascending).encode()).hexdigest()


async def sealed(subject: Subject) -> ArchiveBatch:
    """Seal what there is to seal first, with a digest of rows."""
    first = await subject.store.archive.first_unsealed(0)
    assert first is not None
    batch = await subject.store.archive.seal(first, version=DigestVersion.ROWS)
    assert batch is not None
    return batch


async def rows_of(subject: Subject, batch: ArchiveBatch) -> list[Mapping[str, Any]]:
    """The rows of a batch, as a copy has them."""
    found = await subject.execute(f"SELECT {', '.join(COLUMNS)} FROM archive WHERE export_batch = {batch.number}")
    return [dict(zip(COLUMNS, row, strict=True)) for row in found]


async def content_digests(subject: Subject, table: str) -> list[bytes]:
    """What is kept in a table, by sequence number."""
    found = await subject.execute(f"SELECT content_digest FROM {table} ORDER BY sequence_number")
    return [bytes(digest) for (digest,) in found]


# ---- contents --------------------------------------------------------------------------------------------------------

FULL = Envelope("id 😀", "text/plain", "c", "s\x01'\"\\", "r", "t", "grüppe", "00-trace", b'{"p":1}')
LETTERS = [
    (Envelope("plain"), b"", BodyKind.NONE),
    (FULL, b'{"a":"\\u0000"}', BodyKind.JSON),
    (Envelope("-", group_id=""), b"\x00\xff'\\%s", BodyKind.BYTES),
]


def expected(envelope: Envelope, body: bytes, kind: BodyKind) -> bytes:
    """The digest of a message's content, written down here by hand."""
    headers, group = write_headers(envelope), envelope.group_id
    fields = (
        envelope.message_id.encode(),
        None if group is None else group.encode(),
        None if headers is None else headers.encode(),
        str(int(kind)).encode(),
        body,
    )
    return sha256(b"".join(framed(field) for field in fields)).digest()[:16]


@pytest.mark.parametrize("window", [0, MINUTE])
async def test_an_accepted_message_has_the_digest_of_its_content(subject: Subject, queue: Queue, window: int) -> None:
    await subject.store.send([
        Draft(queue.id, envelope, body, kind, duplicate_window=window) for envelope, body, kind in LETTERS
    ])  # fmt: skip
    assert await content_digests(subject, "message") == [expected(*letter) for letter in LETTERS]


async def test_the_digest_goes_with_a_message_to_the_archive(subject: Subject, queue: Queue) -> None:
    other = await subject.queue()
    (number,) = await subject.send(queue, b"body")
    (before,) = await content_digests(subject, "message")
    (message,) = await subject.claim(queue)
    dead = abandonment(message, state=MessageState.DEAD_LETTERED)
    assert await subject.store.move([dead]) == [True]
    row = Unlocked(number, queue.id, MessageState.DEAD_LETTERED)
    assert await subject.store.redrive([Redrive(row, other.id)]) == [True]
    (again,) = await subject.claim(other)
    assert await content_digests(subject, "message") == [before]
    assert await subject.store.remove([completion(other, again)]) == [True]
    assert await content_digests(subject, "archive") == [before]


async def test_the_digest_goes_with_a_message_that_is_withdrawn(subject: Subject, queue: Queue) -> None:
    (number,) = await subject.send(queue, b"body")
    (before,) = await content_digests(subject, "message")
    message = await subject.store.read(queue.id, number)
    assert message is not None
    assert await subject.store.cancel(message, queue)
    assert await content_digests(subject, "archive") == [before]


# ---- batches ---------------------------------------------------------------------------------------------------------


async def end_hostile_messages(subject: Subject) -> Queue:
    """Archive messages with every kind of value: absent, empty, long, and of every kind of character."""
    settings = QueueSettings(max_message_bytes=2 * MEBIBYTE, archive_retention=2 * HOUR)
    queue, _ = await subject.store.queues.create("orders", settings)
    bodies = [b"", b"\x00", b"body\x00'\\\xff" * 9, bytes(range(256)) * (MEBIBYTE // 256)]
    for place, body in enumerate(bodies):
        await subject.store.send([draft(queue, body, message_id=f"-'\\{place} ", ttl=(place and HOUR) or None)])
    for envelope, body, kind in LETTERS:
        await subject.store.send([Draft(queue.id, envelope, body, kind, priority=9)])
    (worst, *others) = await subject.claim(queue, 5, receiver_id="receiver 😀 ")
    failure = abandonment(worst, last_failure='fa"il\t\n😀', dead_letter_reason="", dead_letter_description="ü" * 4096)
    assert await subject.store.move([failure]) == [True]
    assert all(await subject.store.remove([completion(queue, message) for message in others]))
    for message in await subject.store.browse(queue.id, list(MessageState), 0, 100):
        assert await subject.store.cancel(message, queue)
    return queue


async def test_the_digest_of_a_batch_is_that_of_its_rows(subject: Subject) -> None:
    await end_hostile_messages(subject)
    batch = await sealed(subject)
    rows = await rows_of(subject, batch)
    assert (batch.digest_version, batch.row_count, len(rows)) == (2, 7, 7)
    for name in COLUMNS:  # or the rows would prove nothing about it
        assert any(row[name] is not None for row in rows), name
    assert batch.digest == digest_of_batch(rows)
    assert await subject.store.archive.batches(0, 10) == [batch]


FIXED = "710ab355cfa890d1cc6991d56d141416d6dcbb878aeea66a17486f49f29cce8c"


async def test_a_fixed_row_has_the_same_digest_on_every_engine(subject: Subject) -> None:
    values = {
        "sequence_number": "9007199254740993", "queue_id": "1", "queue": "'queue \N{GRINNING FACE} '",
        "outcome": "'completed'", "settled_at": "1", "remove_at": "2", "receiver_id": "''", "priority": "0",
        "enqueued_at": "0", "available_at": "-1", "expires_at": "9223372036854775807", "delivery_count": "2147483647",
        "failure_count": "0", "last_failure": "'null'", "message_id": "'a:-1:'", "group_id": "'-'",
        "properties": "'{\"ä\":\"\N{GRINNING FACE}\"}'", "body_kind": "2", "body": "''", "dead_letter_reason": "' '",
    }  # fmt: skip
    await subject.execute(f"INSERT INTO archive ({', '.join(values)}) VALUES ({', '.join(values.values())})")
    batch = await sealed(subject)
    assert batch.digest == digest_of_batch(await rows_of(subject, batch)) == FIXED


@pytest.mark.behaviour("S4.18")
async def test_a_batch_with_a_digest_of_rows_is_trimmed_on_proof(subject: Subject) -> None:
    await end_hostile_messages(subject)
    batch = await sealed(subject)
    copy = Copy(batch.number, batch.row_count, digest_of_batch(await rows_of(subject, batch)))
    numbers = "".join(f"{row['sequence_number']}\n" for row in await rows_of(subject, batch))
    assert await subject.store.archive.trim(copy) is TrimResult.TOO_YOUNG
    await subject.pass_time(3700)
    changed = Copy(batch.number, batch.row_count, sha256(numbers.encode()).hexdigest())
    assert await subject.store.archive.trim(changed) is TrimResult.DIFFERS
    assert len(await rows_of(subject, batch)) == 7


CHANGES = {
    "sequence_number": "sequence_number + 1000", "queue": "'other'", "outcome": "'expired'", "lock_token": "NULL",
    "receiver_id": "NULL", "group_id": "NULL", "last_failure": "'other'", "headers": "NULL", "properties": "NULL",
    "message_id": "'other'", "body": "''", "dead_letter_reason": "NULL", "dead_letter_description": "NULL",
    "content_digest": "NULL",
} | {name: f"COALESCE({name}, 0) + 1" for name in COLUMNS if name.endswith(("_at", "_count", "priority", "_kind"))}  # fmt: skip


async def test_a_batch_of_which_any_column_was_changed_is_not_trimmed(subject: Subject) -> None:
    """The copy is unchanged, so the trim must not remove the archived rows that differ from it."""
    assert set(CHANGES) == set(COLUMNS)
    await end_hostile_messages(subject)
    batch = await sealed(subject)
    await subject.execute("UPDATE archive SET settled_at = settled_at - 7200000000, remove_at = remove_at")
    rows = await rows_of(subject, batch)
    digest = digest_of_batch(rows)
    await subject.execute(f"UPDATE export_batch SET digest = '{digest}'")
    copy = Copy(batch.number, batch.row_count, digest)
    for name, change in CHANGES.items():
        number = next(row["sequence_number"] for row in rows if row[name] not in (None, b""))
        here = f"WHERE sequence_number = {number}"
        spare = secrets.token_hex(4)
        await subject.execute(f"CREATE TABLE spare_{spare} AS SELECT * FROM archive {here}")
        await subject.execute(f"UPDATE archive SET {name} = {change} {here}")
        assert await subject.store.archive.trim(copy) is TrimResult.DIFFERS, name
        await subject.execute(f"DELETE FROM archive WHERE sequence_number IN ({number}, {number} + 1000)")
        await subject.execute(f"INSERT INTO archive SELECT * FROM spare_{spare}")
        await subject.execute(f"DROP TABLE spare_{spare}")
    assert await subject.store.archive.trim(copy) is TrimResult.TRIMMED


async def test_a_batch_is_not_trimmed_where_copy_and_rows_were_changed_after_the_seal(
    subject: Subject, queue: Queue
) -> None:
    message = await subject.locked(queue)
    await subject.store.remove([completion(queue, message)])
    batch = await sealed(subject)
    await subject.pass_time(3700)
    await subject.execute("UPDATE archive SET outcome = 'expired'")
    copy = Copy(batch.number, 1, digest_of_batch(await rows_of(subject, batch)))
    assert await subject.store.archive.trim(copy) is TrimResult.DIFFERS


async def test_a_batch_that_a_newer_server_sealed_stays(subject: Subject, queue: Queue) -> None:
    message = await subject.locked(queue)
    await subject.store.remove([completion(queue, message)])
    batch = await sealed(subject)
    await subject.execute("UPDATE export_batch SET digest_version = 3")
    await subject.pass_time(3700)
    assert await subject.store.archive.trim(Copy(batch.number, 1, batch.digest)) is TrimResult.DIFFERS
