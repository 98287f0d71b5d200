"""A restored database: earlier lock records count for no queue, and numbers are left out."""

import pytest

from app.broker.restored import MAX_LOCK_VERSION, prepare_restored, start_lock_version
from app.domain.queue import Queue
from tests.contract.store_fixture import StoreFixture

SKIPPED = 1000


async def test_a_lock_version_is_new_and_changes_nothing_else(store_fixture: StoreFixture, queue: Queue) -> None:
    queues = store_fixture.store.queues
    await start_lock_version(queues)
    first = await queues.by_name(queue.name)
    await start_lock_version(queues)
    second = await queues.by_name(queue.name)
    assert first is not None
    assert second is not None
    assert len({queue.lock_version, first.lock_version, second.lock_version}) == 3
    assert (second.version, second.settings) == (queue.version, queue.settings)
    assert second.lock_purges < MAX_LOCK_VERSION


@pytest.mark.parametrize("ended", [False, True])
async def test_numbers_that_clients_may_have_seen_are_left_out(
    store_fixture: StoreFixture, queue: Queue, ended: bool
) -> None:
    store = store_fixture.store
    if ended:
        message = await store_fixture.locked(queue)
        (last,) = [message.sequence_number]
    else:
        (last,) = await store_fixture.send(queue, b"before")
    first = await prepare_restored(store.queues, store, SKIPPED)
    (next_number,) = await store_fixture.send(queue, b"after")
    assert next_number >= first > last + SKIPPED
    assert (await store_fixture.queue()).id > queue.id + SKIPPED
