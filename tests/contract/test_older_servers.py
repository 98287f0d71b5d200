"""Servers from before `archive_seal` and current ones seal, trim and remove beside each other on one database.

An older server archives with null as `archive.export_batch`, seals by writing the number there, and knows no other place.
"""

from dataclasses import dataclass

import pytest

from app.broker.ports.maintaining import UnlockedRow, Withdrawal
from app.domain.archive import ArchiveBatch, CopiedBatch, DigestVersion, RemovalCause, TrimResult
from app.domain.digest import digest_of_numbers
from app.domain.instant import DAY, SECOND, Duration
from app.domain.message import MessageState
from app.domain.queue import Queue
from app.domain.settlement import Outcome
from tests.contract.store_fixture import StoreFixture


@dataclass(frozen=True, slots=True)
class OlderServer:
    """The statements of an older server, as far as they concern batches."""

    store_fixture: StoreFixture

    async def archive(self, *numbers: int, retention: Duration = DAY) -> None:
        """Archive messages with these numbers."""
        now = await self.store_fixture.store.now()
        for number in numbers:
            await self.store_fixture.execute(
                "INSERT INTO archive (sequence_number, queue_id, queue, outcome, settled_at, remove_at, priority, "
                "enqueued_at, available_at, delivery_count, failure_count, message_id, body_kind, body) "
                f"VALUES ({number}, 1, 'orders', 'completed', {now}, {now + retention}, 4, 1, 1, 1, 0, 'id', 0, '')"
            )

    async def seal(self) -> list[int]:
        """Seal what it sees. Return the numbers of the messages."""
        found = await self.store_fixture.execute("SELECT sequence_number FROM archive WHERE export_batch IS NULL")
        numbers = [number for (number,) in found]
        if numbers:
            ((batch,),) = await self.store_fixture.execute("SELECT COALESCE(MAX(number), 0) + 1 FROM export_batch")
            ((remove_at,),) = await self.store_fixture.execute(
                "SELECT MAX(remove_at) FROM archive WHERE export_batch IS NULL"
            )
            await self.store_fixture.execute(
                f"UPDATE archive SET export_batch = {batch} WHERE sequence_number IN ({', '.join(map(str, numbers))})"
            )
            await self.store_fixture.execute(
                "INSERT INTO export_batch (number, row_count, digest, sealed_at, remove_at, digest_version) VALUES "
                f"({batch}, {len(numbers)}, '{digest_of_numbers(numbers)}', 1, {remove_at}, 1)"
            )
        return sorted(numbers)

    async def messages(self, batch: ArchiveBatch) -> list[int]:
        """Return the messages of a batch that it would digest before a trim, and delete."""
        found = await self.store_fixture.execute(
            f"SELECT sequence_number FROM archive WHERE export_batch = {batch.number}"
        )
        return [number for (number,) in found]

    async def delete_expired(self) -> None:
        """Remove every batch whose retention has passed."""
        now = await self.store_fixture.store.now()
        expired = await self.store_fixture.execute(
            f"SELECT number FROM export_batch WHERE removed_at IS NULL AND remove_at <= {now}"
        )
        for (number,) in expired:
            await self.store_fixture.execute(f"DELETE FROM archive WHERE export_batch = {number}")
            await self.store_fixture.execute(
                f"UPDATE export_batch SET removed_at = {now}, removal = 'expired' WHERE number = {number}"
            )


@pytest.fixture
def older(store_fixture: StoreFixture) -> OlderServer:
    """An older server on the same database."""
    return OlderServer(store_fixture)


async def archive(store_fixture: StoreFixture, queue: Queue, count: int, retention: Duration = DAY) -> list[int]:
    """Archive messages as a current server does. Return their numbers."""
    numbers = await store_fixture.send(queue, *[b"body"] * count)
    await store_fixture.store.withdraw([
        Withdrawal(UnlockedRow(number, queue.id, MessageState.AVAILABLE), queue.name, Outcome.PURGED, retention)
        for number in numbers
    ])  # fmt: skip
    return numbers


async def seal(store_fixture: StoreFixture) -> ArchiveBatch | None:
    """Seal as a current server does, with a digest of numbers: it stays valid when a test moves the times of rows."""
    first = await store_fixture.store.archive.first_unsealed(0)
    return first and await store_fixture.store.archive.seal(first, version=DigestVersion.NUMBERS)


async def batches(store_fixture: StoreFixture) -> list[ArchiveBatch]:
    """Return every batch."""
    return await store_fixture.store.archive.list_batches(0, 100)


async def archived(store_fixture: StoreFixture) -> list[int]:
    """Return every message that is archived."""
    found = await store_fixture.execute("SELECT sequence_number FROM archive ORDER BY sequence_number")
    return [number for (number,) in found]


async def trim(store_fixture: StoreFixture, batch: ArchiveBatch) -> TrimResult:
    """Trim a batch as the owner of an honest copy does."""
    return await store_fixture.store.archive.trim(CopiedBatch(batch.number, batch.row_count, batch.digest))


async def test_a_message_that_an_older_server_archived_is_sealed_once(
    store_fixture: StoreFixture, queue: Queue, older: OlderServer
) -> None:
    await older.archive(1001, 1003)
    numbers = await archive(store_fixture, queue, 2)
    await older.archive(1002)
    batch = await seal(store_fixture)
    assert batch is not None
    assert (batch.number, batch.row_count) == (1, 5)
    assert batch.digest == digest_of_numbers([*numbers, 1001, 1002, 1003])
    assert await older.seal() == []
    assert await seal(store_fixture) is None
    await store_fixture.advance_time(3700)
    assert await trim(store_fixture, batch) is TrimResult.TRIMMED
    assert await archived(store_fixture) == []


async def test_an_older_server_seals_no_message_that_another_sealed_or_will_seal(
    store_fixture: StoreFixture, queue: Queue, older: OlderServer
) -> None:
    sealed_before = await archive(store_fixture, queue, 2)
    await seal(store_fixture)
    unsealed = await archive(store_fixture, queue, 3)
    await older.archive(1001, 1002)
    assert await older.seal() == [1001, 1002]
    assert await older.seal() == []
    await seal(store_fixture)
    assert await seal(store_fixture) is None
    digests = [digest_of_numbers(numbers) for numbers in (sealed_before, [1001, 1002], unsealed)]
    assert [(batch.number, batch.digest) for batch in await batches(store_fixture)] == [*enumerate(digests, 1)]


async def test_a_batch_that_an_older_server_sealed_is_trimmed(store_fixture: StoreFixture, older: OlderServer) -> None:
    await older.archive(1001, 1002)
    await older.seal()
    (batch,) = await batches(store_fixture)
    assert await trim(store_fixture, batch) is TrimResult.TOO_YOUNG
    await store_fixture.advance_time(3700)
    assert await trim(store_fixture, batch) is TrimResult.TRIMMED
    assert await archived(store_fixture) == []


async def test_a_batch_that_an_older_server_sealed_expires(store_fixture: StoreFixture, older: OlderServer) -> None:
    await older.archive(1001, 1002, retention=SECOND)
    await older.seal()
    assert await store_fixture.store.archive.delete_expired(100) == 0
    await store_fixture.advance_time(60)
    assert await store_fixture.store.archive.delete_expired(100) == 2
    assert await archived(store_fixture) == []
    assert [batch.removal for batch in await batches(store_fixture)] == [RemovalCause.EXPIRED]


async def test_an_older_server_finds_no_message_of_a_batch_and_so_trims_none(
    store_fixture: StoreFixture, queue: Queue, older: OlderServer
) -> None:
    await archive(store_fixture, queue, 2)
    batch = await seal(store_fixture)
    assert batch is not None
    assert await older.messages(batch) == []


async def test_what_an_older_server_only_recorded_as_removed_is_removed(
    store_fixture: StoreFixture, queue: Queue, older: OlderServer
) -> None:
    soon = await archive(store_fixture, queue, 2, retention=SECOND)
    late = await archive(store_fixture, queue, 1)
    assert await seal(store_fixture) is not None
    assert await seal(store_fixture) is not None
    await store_fixture.advance_time(60)
    await older.delete_expired()
    assert await archived(store_fixture) == [*soon, *late]
    assert await store_fixture.store.archive.delete_expired(100) == 2
    assert await archived(store_fixture) == late
    assert [batch.removal for batch in await batches(store_fixture)] == [RemovalCause.EXPIRED, None]
    assert await store_fixture.store.archive.delete_expired(100) == 0


async def test_an_older_server_removes_what_it_sealed(store_fixture: StoreFixture, older: OlderServer) -> None:
    await older.archive(1001, retention=SECOND)
    await older.seal()
    await older.archive(1002, retention=SECOND)
    await seal(store_fixture)
    await store_fixture.advance_time(60)
    await older.delete_expired()
    assert await archived(store_fixture) == []
    assert await store_fixture.store.archive.delete_expired(100) == 0
    assert [batch.removal for batch in await batches(store_fixture)] == [RemovalCause.EXPIRED] * 2
