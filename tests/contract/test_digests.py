"""Every engine computes the same digests of messages and rows, and so does a reader who knows only the columns."""

import secrets
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import pytest

from app.broker.ports.maintaining import Redrive, UnlockedRow
from app.domain.archive import ArchiveBatch, CopiedBatch, DigestVersion, TrimResult
from app.domain.instant import HOUR, MINUTE
from app.domain.message import BodyKind, Draft, Envelope, MessageHeaders, MessageState
from app.domain.queue import Queue, QueueSettings
from app.store.shared.json_columns import write_headers
from tests.contract.store_fixture import StoreFixture, abandonment, completion, draft

MEBIBYTE = 1 << 20
COLUMNS = (
    "sequence_number", "queue", "outcome", "settled_at", "enqueued_at", "available_at", "expires_at",
    "first_delivered_at", "last_delivered_at", "delivery_count", "failure_count", "last_failure", "priority",
    "message_id", "group_id", "receiver_id", "lock_token", "headers", "properties", "body_kind", "body",
    "dead_letter_reason", "dead_letter_description", "content_digest",
)  # fmt: skip
"""The columns that the digest of a row covers, in order, written down here by hand."""


def framed(octets: bytes | None) -> bytes:
    """Return a field as it is encoded in a digest."""
    return b"-" if octets is None else str(len(octets)).encode() + b":" + octets


def digest_bytes(name: str, value: Any) -> bytes | None:
    """Return the value of a column as it is encoded in the digest of its row."""
    if value is None:
        return None
    if name == "body":
        return sha256(value or b"").hexdigest().encode()
    if isinstance(value, bytes):
        return value.hex().encode()
    return str(value).encode()


def digest_of_row(row: Mapping[str, Any]) -> str:
    """Compute the digest as the reader of a copy does."""
    return sha256(b"".join(framed(digest_bytes(name, row[name])) for name in COLUMNS)).hexdigest()


def digest_of_batch(rows: list[Mapping[str, Any]]) -> str:
    """Compute the digest as the reader of a copy does."""
    ascending = sorted(rows, key=lambda row: row["sequence_number"])
    return sha256("".join(f"{digest_of_row(row)}\n" for row in ascending).encode()).hexdigest()


async def sealed(store_fixture: StoreFixture) -> ArchiveBatch:
    """Seal the first batch, with a digest of rows."""
    first = await store_fixture.store.archive.first_unsealed(0)
    assert first is not None
    batch = await store_fixture.store.archive.seal(first, version=DigestVersion.ROWS)
    assert batch is not None
    return batch


async def rows_of(store_fixture: StoreFixture, batch: ArchiveBatch) -> list[Mapping[str, Any]]:
    """Return the rows of a batch, as a copy has them."""
    found = await store_fixture.execute(
        f"SELECT {', '.join(COLUMNS)} FROM archive WHERE sequence_number IN "
        f"(SELECT sequence_number FROM archive_seal WHERE export_batch = {batch.number})"
    )
    return [dict(zip(COLUMNS, row, strict=True)) for row in found]


async def content_digests(store_fixture: StoreFixture, table: str) -> list[bytes]:
    """Return the content digests in a table, by sequence number."""
    found = await store_fixture.execute(f"SELECT content_digest FROM {table} ORDER BY sequence_number")
    return [bytes(digest) for (digest,) in found]


# ---- contents --------------------------------------------------------------------------------------------------------

FULL = Envelope("id 😀", MessageHeaders("text/plain", "c", "s\x01'\"\\", "r", "t", "00-trace"), "grüppe", b'{"p":1}')
MESSAGES = [
    (Envelope("plain"), b"", BodyKind.NONE),
    (FULL, b'{"a":"\\u0000"}', BodyKind.JSON),
    (Envelope("-", group_id=""), b"\x00\xff'\\%s", BodyKind.BYTES),
]


def expected(envelope: Envelope, body: bytes, kind: BodyKind) -> bytes:
    """The digest of a message's content, written down here by hand."""
    headers, group = write_headers(envelope.headers), envelope.group_id
    fields = (
        envelope.message_id.encode(),
        None if group is None else group.encode(),
        None if headers is None else headers.encode(),
        str(int(kind)).encode(),
        body,
    )
    return sha256(b"".join(framed(field) for field in fields)).digest()[:16]


@pytest.mark.parametrize("window", [0, MINUTE])
async def test_an_accepted_message_has_the_digest_of_its_content(
    store_fixture: StoreFixture, queue: Queue, window: int
) -> None:
    await store_fixture.store.send([
        Draft(queue.id, envelope, body, kind, duplicate_window=window) for envelope, body, kind in MESSAGES
    ])  # fmt: skip
    assert await content_digests(store_fixture, "message") == [expected(*new_message) for new_message in MESSAGES]


async def test_the_digest_of_a_message_is_copied_to_the_archive(store_fixture: StoreFixture, queue: Queue) -> None:
    other = await store_fixture.queue()
    (number,) = await store_fixture.send(queue, b"body")
    (before,) = await content_digests(store_fixture, "message")
    (message,) = await store_fixture.claim(queue)
    dead = abandonment(message, state=MessageState.DEAD_LETTERED)
    assert await store_fixture.store.move([dead]) == [True]
    row = UnlockedRow(number, queue.id, MessageState.DEAD_LETTERED)
    assert await store_fixture.store.redrive([Redrive(row, other.id)]) == [True]
    (again,) = await store_fixture.claim(other)
    assert await content_digests(store_fixture, "message") == [before]
    assert await store_fixture.store.remove([completion(other, again)]) == [True]
    assert await content_digests(store_fixture, "archive") == [before]


async def test_the_digest_of_a_withdrawn_message_is_copied_to_the_archive(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    (number,) = await store_fixture.send(queue, b"body")
    (before,) = await content_digests(store_fixture, "message")
    message = await store_fixture.store.read(queue.id, number)
    assert message is not None
    assert await store_fixture.store.cancel(message, queue)
    assert await content_digests(store_fixture, "archive") == [before]


# ---- batches ---------------------------------------------------------------------------------------------------------


async def archive_hostile_messages(store_fixture: StoreFixture) -> Queue:
    """Archive messages with every kind of value: absent, empty, long, and of every kind of character."""
    settings = QueueSettings(max_message_bytes=2 * MEBIBYTE, archive_retention=2 * HOUR)
    queue, _ = await store_fixture.store.queues.create("orders", settings)
    bodies = [b"", b"\x00", b"body\x00'\\\xff" * 9, bytes(range(256)) * (MEBIBYTE // 256)]
    for index, body in enumerate(bodies):
        await store_fixture.store.send([draft(queue, body, message_id=f"-'\\{index} ", ttl=(index and HOUR) or None)])
    for envelope, body, kind in MESSAGES:
        await store_fixture.store.send([Draft(queue.id, envelope, body, kind, priority=9)])
    (worst, *others) = await store_fixture.claim(queue, 5, receiver_id="receiver 😀 ")
    failure = abandonment(worst, last_failure='fa"il\t\n😀', dead_letter_reason="", dead_letter_description="ü" * 4096)
    assert await store_fixture.store.move([failure]) == [True]
    assert all(await store_fixture.store.remove([completion(queue, message) for message in others]))
    for message in await store_fixture.store.browse(queue.id, list(MessageState), 0, 100):
        assert await store_fixture.store.cancel(message, queue)
    return queue


async def test_the_digest_of_a_batch_is_computed_from_its_rows(store_fixture: StoreFixture) -> None:
    await archive_hostile_messages(store_fixture)
    batch = await sealed(store_fixture)
    rows = await rows_of(store_fixture, batch)
    assert (batch.digest_version, batch.row_count, len(rows)) == (2, 7, 7)
    for name in COLUMNS:  # or the rows would prove nothing about the column
        assert any(row[name] is not None for row in rows), name
    assert batch.digest == digest_of_batch(rows)
    assert await store_fixture.store.archive.list_batches(0, 10) == [batch]


FIXED = "710ab355cfa890d1cc6991d56d141416d6dcbb878aeea66a17486f49f29cce8c"


async def test_a_fixed_row_has_the_same_digest_on_every_engine(store_fixture: StoreFixture) -> None:
    values = {
        "sequence_number": "9007199254740993", "queue_id": "1", "queue": "'queue \N{GRINNING FACE} '",
        "outcome": "'completed'", "settled_at": "1", "remove_at": "2", "receiver_id": "''", "priority": "0",
        "enqueued_at": "0", "available_at": "-1", "expires_at": "9223372036854775807", "delivery_count": "2147483647",
        "failure_count": "0", "last_failure": "'null'", "message_id": "'a:-1:'", "group_id": "'-'",
        "properties": "'{\"ä\":\"\N{GRINNING FACE}\"}'", "body_kind": "2", "body": "''", "dead_letter_reason": "' '",
        "export_batch": "0",
    }  # fmt: skip
    await store_fixture.execute(f"INSERT INTO archive ({', '.join(values)}) VALUES ({', '.join(values.values())})")
    await store_fixture.execute("INSERT INTO archive_seal SELECT sequence_number, remove_at, NULL FROM archive")
    batch = await sealed(store_fixture)
    assert batch.digest == digest_of_batch(await rows_of(store_fixture, batch)) == FIXED


@pytest.mark.behaviour("S4.18")
async def test_a_batch_with_a_digest_of_rows_is_trimmed_on_proof(store_fixture: StoreFixture) -> None:
    await archive_hostile_messages(store_fixture)
    batch = await sealed(store_fixture)
    copy = CopiedBatch(batch.number, batch.row_count, digest_of_batch(await rows_of(store_fixture, batch)))
    numbers = "".join(f"{row['sequence_number']}\n" for row in await rows_of(store_fixture, batch))
    assert await store_fixture.store.archive.trim(copy) is TrimResult.TOO_YOUNG
    await store_fixture.advance_time(3700)
    changed = CopiedBatch(batch.number, batch.row_count, sha256(numbers.encode()).hexdigest())
    assert await store_fixture.store.archive.trim(changed) is TrimResult.DIFFERS
    assert len(await rows_of(store_fixture, batch)) == 7


CHANGES = {
    "sequence_number": "sequence_number + 1000", "queue": "'other'", "outcome": "'expired'", "lock_token": "NULL",
    "receiver_id": "NULL", "group_id": "NULL", "last_failure": "'other'", "headers": "NULL", "properties": "NULL",
    "message_id": "'other'", "body": "''", "dead_letter_reason": "NULL", "dead_letter_description": "NULL",
    "content_digest": "NULL",
} | {name: f"COALESCE({name}, 0) + 1" for name in COLUMNS if name.endswith(("_at", "_count", "priority", "_kind"))}  # fmt: skip


async def test_a_batch_with_any_changed_column_is_not_trimmed(store_fixture: StoreFixture) -> None:
    """The copy is unchanged, so the trim must not remove the archived rows that differ from it."""
    assert set(CHANGES) == set(COLUMNS)
    await archive_hostile_messages(store_fixture)
    batch = await sealed(store_fixture)
    await store_fixture.execute("UPDATE archive SET settled_at = settled_at - 7200000000, remove_at = remove_at")
    rows = await rows_of(store_fixture, batch)
    digest = digest_of_batch(rows)
    await store_fixture.execute(f"UPDATE export_batch SET digest = '{digest}'")
    copy = CopiedBatch(batch.number, batch.row_count, digest)
    for name, change in CHANGES.items():
        number = next(row["sequence_number"] for row in rows if row[name] not in (None, b""))
        here = f"WHERE sequence_number = {number}"
        spare = secrets.token_hex(4)
        await store_fixture.execute(f"CREATE TABLE spare_{spare} AS SELECT * FROM archive {here}")
        await store_fixture.execute(f"UPDATE archive SET {name} = {change} {here}")
        assert await store_fixture.store.archive.trim(copy) is TrimResult.DIFFERS, name
        await store_fixture.execute(f"DELETE FROM archive WHERE sequence_number IN ({number}, {number} + 1000)")
        await store_fixture.execute(f"INSERT INTO archive SELECT * FROM spare_{spare}")
        await store_fixture.execute(f"DROP TABLE spare_{spare}")
    assert await store_fixture.store.archive.trim(copy) is TrimResult.TRIMMED


async def test_a_batch_is_not_trimmed_if_copy_and_rows_changed_after_the_seal(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    message = await store_fixture.locked(queue)
    await store_fixture.store.remove([completion(queue, message)])
    batch = await sealed(store_fixture)
    await store_fixture.advance_time(3700)
    await store_fixture.execute("UPDATE archive SET outcome = 'expired'")
    copy = CopiedBatch(batch.number, 1, digest_of_batch(await rows_of(store_fixture, batch)))
    assert await store_fixture.store.archive.trim(copy) is TrimResult.DIFFERS


async def test_a_batch_that_a_newer_server_sealed_stays(store_fixture: StoreFixture, queue: Queue) -> None:
    message = await store_fixture.locked(queue)
    await store_fixture.store.remove([completion(queue, message)])
    batch = await sealed(store_fixture)
    await store_fixture.execute("UPDATE export_batch SET digest_version = 4")
    await store_fixture.advance_time(3700)
    assert await store_fixture.store.archive.trim(CopiedBatch(batch.number, 1, batch.digest)) is TrimResult.DIFFERS
