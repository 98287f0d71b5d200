"""What has ended gathers for some seconds and is then sealed, whatever the retention of its queue."""

from app.broker.complete import complete
from app.broker.settling import settle_one
from app.domain.instant import DAY, HOUR
from app.domain.queue import Queue
from app.maintenance.seal import SHORTEST_REST_SECONDS, Sealing
from tests.bounds import bounded
from tests.maintenance.house import House

GATHER_SECONDS = 10.0


async def end(house: House, queue: Queue, count: int = 1) -> None:
    """Let so many messages of the queue be completed."""
    for _ in range(count):
        await settle_one(house.broker, queue, complete(queue, await house.locked(queue)))


async def walk(sealing: Sealing) -> float | None:
    """Go from one end to the other; the rest."""
    for _ in bounded("sealing rests"):
        if rest := await sealing.step():
            return rest
    return None


async def sealed(house: House) -> list[int]:
    """The sizes of the batches there are."""
    return [batch.row_count for batch in await house.broker.store.archive.batches(0, 100)]


async def test_nothing_is_sealed_where_nothing_has_ended(house: House) -> None:
    assert await Sealing(house.broker, GATHER_SECONDS).step() == GATHER_SECONDS
    assert await sealed(house) == []


async def test_what_ends_within_some_seconds_becomes_one_batch(house: House) -> None:
    queue, sealing = await house.queue(), Sealing(house.broker, GATHER_SECONDS)
    await end(house, queue)
    await house.clock.advance(6)
    await end(house, queue, 2)
    assert await walk(sealing) == GATHER_SECONDS - 6
    assert await sealed(house) == []
    await house.clock.advance(4)
    assert await walk(sealing) == GATHER_SECONDS
    assert await sealed(house) == [3]
    assert house.tally["messages_sealed"] == 3


async def test_a_queue_that_is_never_quiet_keeps_no_other_waiting(house: House) -> None:
    """The first of all unsealed messages is always a young one of the queue whose archive is kept shortest."""
    busy = await house.queue("busy", archive_retention=HOUR)
    quiet = await house.queue("quiet", archive_retention=DAY)
    sealing = Sealing(house.broker, GATHER_SECONDS)
    await end(house, busy)
    await end(house, quiet, 2)
    for _ in range(10):
        await house.clock.advance(1)
        await end(house, busy)
        await walk(sealing)
    assert sorted(await sealed(house)) == [2, 11]


async def test_a_walk_that_comes_a_moment_early_does_not_come_again_and_again(house: House) -> None:
    queue, sealing = await house.queue(), Sealing(house.broker, GATHER_SECONDS)
    await end(house, queue)
    await house.clock.advance(9.999)
    assert await walk(sealing) == SHORTEST_REST_SECONDS


async def test_a_backlog_is_sealed_in_one_walk(house: House) -> None:
    queue, sealing = await house.queue(), Sealing(house.broker, GATHER_SECONDS)
    for _ in range(5):
        await end(house, queue, 2)
        await house.clock.advance(70)
    await walk(sealing)
    assert await sealed(house) == [2] * 5
