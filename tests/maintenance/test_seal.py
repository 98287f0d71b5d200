"""Ended messages gather for some seconds and are then sealed, independently of the retention of their queue."""

from dataclasses import replace
from functools import partial
from itertools import count

from app.broker.administration.ports import AdministrationPorts
from app.broker.settling.outcomes import complete
from app.broker.settling.settle import settle_one
from app.domain.archive import ArchiveBatch, BatchLimits, UnsealedMessage
from app.domain.instant import DAY, HOUR
from app.domain.queue import Queue
from app.maintenance.seal import MIN_DELAY_SECONDS, ArchiveSealer
from tests.bounds import bounded
from tests.brokers import ChangedStore
from tests.maintenance.harness import BrokerHarness

SEAL_SECONDS = 10.0


async def complete_messages(harness: BrokerHarness, queue: Queue, count: int = 1) -> None:
    """Complete this many messages of the queue."""
    for _ in range(count):
        await settle_one(harness.broker.settling, queue, complete(queue, await harness.send_and_lock(queue)))


async def seal_all(sealing: ArchiveSealer) -> float | None:
    """Seal until the end of a scan; return the rest."""
    for _ in bounded("sealing rests"):
        if rest := await sealing.step():
            return rest
    return None


def with_seal(harness: BrokerHarness, seal: object) -> AdministrationPorts:
    """Return the ports of a sealer whose archive seals differently."""
    store = harness.broker.store
    administration: AdministrationPorts = harness.broker.administration
    return replace(administration, store=ChangedStore(store, archive=ChangedStore(store.archive, seal=seal)))


async def batch_sizes(harness: BrokerHarness) -> list[int]:
    """Return the sizes of the sealed batches."""
    return [batch.row_count for batch in await harness.broker.store.archive.list_batches(0, 100)]


async def test_an_empty_archive_is_not_sealed(harness: BrokerHarness) -> None:
    assert await ArchiveSealer(harness.broker.administration, SEAL_SECONDS).step() == SEAL_SECONDS
    assert await batch_sizes(harness) == []


async def test_messages_that_end_within_seconds_become_one_batch(harness: BrokerHarness) -> None:
    queue, sealing = await harness.queue(), ArchiveSealer(harness.broker.administration, SEAL_SECONDS)
    await complete_messages(harness, queue)
    await harness.clock.advance(6)
    await complete_messages(harness, queue, 2)
    assert await seal_all(sealing) == SEAL_SECONDS - 6
    assert await batch_sizes(harness) == []
    await harness.clock.advance(4)
    assert await seal_all(sealing) == SEAL_SECONDS
    assert await batch_sizes(harness) == [3]
    assert harness.counters["messages_sealed"] == 3


async def test_a_busy_queue_does_not_delay_the_sealing_of_others(harness: BrokerHarness) -> None:
    """The first unsealed message is always a young one of the queue with the shortest retention."""
    busy = await harness.queue("busy", archive_retention=HOUR)
    quiet = await harness.queue("quiet", archive_retention=DAY)
    sealing = ArchiveSealer(harness.broker.administration, SEAL_SECONDS)
    await complete_messages(harness, busy)
    await complete_messages(harness, quiet, 2)
    for _ in range(10):
        await harness.clock.advance(1)
        await complete_messages(harness, busy)
        await seal_all(sealing)
    assert sorted(await batch_sizes(harness)) == [2, 11]


async def test_a_scan_shortly_before_the_minimum_age_rests(harness: BrokerHarness) -> None:
    queue, sealing = await harness.queue(), ArchiveSealer(harness.broker.administration, SEAL_SECONDS)
    await complete_messages(harness, queue)
    await harness.clock.advance(9.999)
    assert await seal_all(sealing) == MIN_DELAY_SECONDS


async def test_a_scan_rests_until_the_first_of_several_messages_is_old_enough(harness: BrokerHarness) -> None:
    late = await harness.queue("late", archive_retention=DAY)
    early = await harness.queue("early", archive_retention=HOUR)
    sealing = ArchiveSealer(harness.broker.administration, SEAL_SECONDS)
    await complete_messages(harness, early)
    await harness.clock.advance(4)
    await complete_messages(harness, late)
    assert await seal_all(sealing) == SEAL_SECONDS - 4


async def test_the_rest_of_a_full_batch_is_sealed_in_the_same_scan(harness: BrokerHarness) -> None:
    await complete_messages(harness, await harness.queue(), 5)
    await harness.clock.advance(SEAL_SECONDS)
    seal_pairs = partial(harness.broker.store.archive.seal, limits=BatchLimits(max_messages=2))
    await seal_all(ArchiveSealer(with_seal(harness, seal_pairs), SEAL_SECONDS))
    assert await batch_sizes(harness) == [2, 2, 1]


async def test_messages_that_another_process_is_sealing_are_passed_over(harness: BrokerHarness) -> None:
    queue = await harness.queue()
    await complete_messages(harness, queue)
    await harness.clock.advance(120)
    await complete_messages(harness, queue)
    await harness.clock.advance(SEAL_SECONDS)
    archive, asked = harness.broker.store.archive, count(1)

    async def seal(first: UnsealedMessage) -> ArchiveBatch | None:
        return None if next(asked) == 1 else await archive.seal(first)

    sealing = ArchiveSealer(with_seal(harness, seal), SEAL_SECONDS)
    assert await seal_all(sealing) == SEAL_SECONDS
    assert await batch_sizes(harness) == [1]
    assert harness.counters["messages_sealed"] == 1


async def test_a_backlog_is_sealed_in_one_scan(harness: BrokerHarness) -> None:
    queue, sealing = await harness.queue(), ArchiveSealer(harness.broker.administration, SEAL_SECONDS)
    for _ in range(5):
        await complete_messages(harness, queue, 2)
        await harness.clock.advance(70)
    await seal_all(sealing)
    assert await batch_sizes(harness) == [2] * 5
