"""Changes of counts are added up until none is left, however many there are."""

import pytest

from app.domain.queue import Queue
from app.store import mysql_counts, postgresql
from tests.contract.subject import PostgresSubject, Subject

CHANGES = 7


@pytest.fixture(autouse=True)
def two_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    for store in (mysql_counts, postgresql):
        monkeypatch.setattr(store, "LARGEST_FOLD", 2)


async def test_one_pass_adds_up_all_changes_of_accepted_messages(subject: Subject, queue: Queue) -> None:
    for _ in range(CHANGES):
        await subject.send(queue, b"body")
    await subject.store.forget(10)
    assert await subject.execute("SELECT accepted, first_number FROM accepted_count") == [(CHANGES, 0)]


async def test_one_pass_adds_up_all_changes_of_depths(subject: Subject, queue: Queue) -> None:
    other = await subject.queue()
    for _ in range(CHANGES):
        await subject.send(queue, b"body")
        await subject.send(other, b"body")
    await subject.store.forget(10)
    assert [await subject.store.queues.total(one.id) for one in (queue, other)] == [CHANGES, CHANGES]
    if isinstance(subject, PostgresSubject):
        assert await subject.execute("SELECT total FROM depth") == [(CHANGES,), (CHANGES,)]
