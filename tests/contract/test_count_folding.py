"""One pass folds all changes of counts, however many exist."""

import pytest

from app.domain.queue import Queue
from app.store.mysql import accepted_counts
from app.store.postgresql import store
from tests.contract.store_fixture import PostgresqlFixture, StoreFixture

CHANGES = 7


@pytest.fixture(autouse=True)
def fold_two_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (accepted_counts, store):
        monkeypatch.setattr(module, "MAX_FOLD_ROWS", 2)


async def test_one_pass_folds_all_changes_of_accepted_counts(store_fixture: StoreFixture, queue: Queue) -> None:
    for _ in range(CHANGES):
        await store_fixture.send(queue, b"body")
    await store_fixture.store.delete_expired(10)
    assert await store_fixture.execute("SELECT accepted, first_number FROM accepted_count") == [(CHANGES, 0)]


async def test_one_pass_folds_all_changes_of_depths(store_fixture: StoreFixture, queue: Queue) -> None:
    other = await store_fixture.queue()
    for _ in range(CHANGES):
        await store_fixture.send(queue, b"body")
        await store_fixture.send(other, b"body")
    await store_fixture.store.delete_expired(10)
    assert [await store_fixture.store.queues.total(one.id) for one in (queue, other)] == [CHANGES, CHANGES]
    if isinstance(store_fixture, PostgresqlFixture):
        assert await store_fixture.execute("SELECT total FROM depth") == [(CHANGES,), (CHANGES,)]
