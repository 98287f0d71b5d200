"""A restored database: earlier lock records are invalid for every queue, and numbers are skipped."""

import asyncio
from collections.abc import Mapping

import pytest

from app.broker.administration.restored import UNSHARED_NUMBERS, catch_up, prepare_restored, share_number
from app.broker.ports.store import Store
from app.domain.queue import Queue
from app.store.shared.lock_versions import MAX_LOCK_VERSION
from tests.contract.store_fixture import StoreFixture

SKIPPED = 1000


class Record:
    """Implements `SharedRecord` for the processes of one test."""

    def __init__(self) -> None:
        self.seen: dict[str, int] = {}

    async def raise_to(self, seen: Mapping[str, int]) -> Mapping[str, int]:
        """See `SharedRecord`."""
        self.seen |= {name: max(value, self.seen.get(name, 0)) for name, value in seen.items()}
        return dict(self.seen)

    async def as_of_a_lost_time(self, store_fixture: StoreFixture, lost: int) -> int:
        """Let processes have seen this many numbers more than the database has. Return the highest of them."""
        highest = await store_fixture.store.highest_number() + lost
        self.seen[f"highest_number:{await store_fixture.store.database_id()}"] = highest
        return highest


async def test_a_lock_version_is_new_and_changes_nothing_else(store_fixture: StoreFixture, queue: Queue) -> None:
    queues = store_fixture.store.queues
    await queues.start_lock_version()
    first = await queues.by_name(queue.name)
    await queues.start_lock_version()
    second = await queues.by_name(queue.name)
    assert first is not None
    assert second is not None
    assert len({queue.lock_version, first.lock_version, second.lock_version}) == 3
    assert (second.version, second.settings) == (queue.version, queue.settings)
    assert second.lock_purges < MAX_LOCK_VERSION


@pytest.mark.parametrize("ended", [False, True])
async def test_numbers_that_clients_may_have_seen_are_skipped(
    store_fixture: StoreFixture, queue: Queue, ended: bool
) -> None:
    store = store_fixture.store
    if ended:
        message = await store_fixture.locked(queue)
        (last,) = [message.sequence_number]
    else:
        (last,) = await store_fixture.send(queue, b"before")
    first = await prepare_restored(store, SKIPPED)
    (next_number,) = await store_fixture.send(queue, b"after")
    assert next_number >= first > last + SKIPPED
    assert (await store_fixture.queue()).id > queue.id + SKIPPED


async def test_numbers_are_skipped_in_a_database_without_messages(store_fixture: StoreFixture) -> None:
    first = await prepare_restored(store_fixture.store, SKIPPED)
    queue = await store_fixture.queue()
    (number,) = await store_fixture.send(queue, b"first")
    assert number >= first > SKIPPED


async def test_a_database_that_is_behind_catches_up(store_fixture: StoreFixture, queue: Queue) -> None:
    store, record = store_fixture.store, Record()
    await store_fixture.send(queue, b"before")
    seen = await record.as_of_a_lost_time(store_fixture, lost=1)
    first = await catch_up(store, record)
    (number,) = await store_fixture.send(queue, b"after")
    after = await store.queues.by_name(queue.name)
    assert first is not None
    assert number >= first > seen + UNSHARED_NUMBERS
    assert after is not None
    assert after.lock_version != queue.lock_version
    assert await catch_up(store, record) is None


async def test_processes_that_start_together_skip_the_same_numbers(
    store_fixture: StoreFixture, stores: list[Store], queue: Queue
) -> None:
    seen = await Record().as_of_a_lost_time(store_fixture, lost=SKIPPED)
    caught_up = await asyncio.gather(*(store.continue_after(seen, UNSHARED_NUMBERS) for store in stores))
    assert {*caught_up} - {None} == {seen + UNSHARED_NUMBERS + 1}
    numbers = await store_fixture.send(queue, b"one")
    assert await stores[0].continue_after(seen, UNSHARED_NUMBERS) is None
    assert await store_fixture.send(queue, b"another") > numbers


async def test_an_empty_database_is_not_behind_itself(store_fixture: StoreFixture) -> None:
    record = Record()
    for _ in range(2):
        assert await catch_up(store_fixture.store, record) is None


async def test_a_database_is_not_behind_another_one(store_fixture: StoreFixture) -> None:
    record = Record()
    record.seen["highest_number:of another database"] = SKIPPED
    assert await catch_up(store_fixture.store, record) is None


async def test_a_database_whose_messages_are_gone_is_not_behind(store_fixture: StoreFixture, queue: Queue) -> None:
    store, record = store_fixture.store, Record()
    (number,) = await store_fixture.send(queue, b"gone")
    assert await share_number(store, record) >= number
    await store_fixture.delete_all_rows()
    assert await catch_up(store, record) is None


async def test_a_process_that_started_earlier_does_not_make_the_database_look_behind(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    store, record = store_fixture.store, Record()
    assert await catch_up(store, record) is None
    await store_fixture.send(queue, b"by the earlier one")
    await share_number(store, record)
    await store_fixture.send(queue, b"not shared yet")
    assert await catch_up(store, record) is None


async def test_the_first_process_that_registers_starts_a_lock_version(stores: list[Store], queue: Queue) -> None:
    store, other = stores
    await store.acquire_shared()
    first = await store.queues.by_name(queue.name)
    if store.engine != "sqlite":  # a file has one process
        await other.acquire_shared()
    second = await store.queues.by_name(queue.name)
    assert first is not None
    assert second is not None
    assert first.lock_version != queue.lock_version
    assert second.lock_version == first.lock_version
