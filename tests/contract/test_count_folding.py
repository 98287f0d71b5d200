"""One pass folds all changes of counts, however many exist, and delays no settlement."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import pytest

from app.domain.queue import Queue, QueueSettings
from app.store.mysql import store as mysql_store
from app.store.open import open_store
from app.store.postgresql import store
from tests.contract.store_fixture import MariadbFixture, ServerFixture, completion
from tests.faults.polling import wait_until
from tests.faults.proxies import FaultyProxy

MAX_FOLD_ROWS = {"postgresql": store.MAX_FOLD_ROWS, "mariadb": mysql_store.MAX_FOLD_ROWS}
SENDS = 3

DIGIT = f"({' UNION ALL '.join(f'SELECT {digit} AS digit' for digit in range(10))})"
PLACES = ("ones", "tens", "hundreds", "thousands", "ten_thousands")
NUMBER = " + ".join(f"{10**power} * {place}.digit" for power, place in enumerate(PLACES))
NUMBERS = f"SELECT {NUMBER} AS number FROM {' CROSS JOIN '.join(f'{DIGIT} AS {place}' for place in PLACES)}"


def numbers(most: int) -> str:
    """A table of the numbers below `most`, on every server."""
    return f"(SELECT number FROM ({NUMBERS}) AS numbered WHERE number < {most}) AS numbers"


@pytest.mark.parametrize(
    ("store_fixture", "most"), MAX_FOLD_ROWS.items(), indirect=["store_fixture"], ids=list(MAX_FOLD_ROWS)
)
async def test_one_pass_folds_all_changes_of_accepted_counts(
    store_fixture: ServerFixture, queue: Queue, most: int
) -> None:
    await store_fixture.execute(
        "INSERT INTO accepted_count (first_number, queue_id, day, queue, accepted) "
        f"SELECT number + 1, {queue.id}, 0, '{queue.name}', 1 FROM {numbers(most + 1)}"
    )
    await store_fixture.store.delete_expired(10)
    assert await store_fixture.execute("SELECT accepted, first_number FROM accepted_count") == [(most + 1, 0)]


@pytest.mark.parametrize("store_fixture", ["postgresql"], indirect=True)
async def test_one_pass_folds_all_changes_of_depths(store_fixture: ServerFixture, queue: Queue) -> None:
    other = await store_fixture.queue()
    for counted in (queue, other):
        await store_fixture.send(counted, *[b"body"] * SENDS)
        await store_fixture.execute(
            f"INSERT INTO depth (queue_id, total) SELECT {counted.id}, 0 FROM {numbers(store.MAX_FOLD_ROWS + 1)}"
        )
    await store_fixture.store.delete_expired(10)
    assert await store_fixture.execute("SELECT total FROM depth") == [(SENDS,), (SENDS,)]


@pytest.fixture
async def mariadb_fixture(mariadb_url: str) -> AsyncIterator[MariadbFixture]:
    """An empty store on MariaDB."""
    mariadb_fixture = MariadbFixture(mariadb_url)
    await mariadb_fixture.open()
    yield mariadb_fixture
    await mariadb_fixture.close()


async def test_a_process_that_stops_during_a_fold_delays_no_settlement(
    mariadb_fixture: MariadbFixture, mariadb_url: str
) -> None:
    """A message that leaves without a row in the archive may change the count that its send has made."""
    queue = await mariadb_fixture.queue(QueueSettings(archive_retention=0))
    message = await mariadb_fixture.locked(queue)
    address = urlsplit(mariadb_url)
    async with FaultyProxy(address.port or 3306).open() as proxy:
        netloc = address.netloc.replace(f":{address.port}", f":{proxy.port}")
        stopping = await open_store(address._replace(netloc=netloc).geturl(), mariadb_fixture.clock)
        proxy.delay_answer_to(lambda piece: b"FROM accepted_count" in piece)
        folding = asyncio.create_task(stopping.delete_expired(10))
        await wait_until(lambda: proxy.has_delayed, "the process hears nothing of its fold")
        # The fold goes on only afterwards, so a removal that waited for its rows would fail.
        assert await mariadb_fixture.store.remove([completion(queue, message)]) == [True]
        proxy.resume()
        await folding
        await stopping.close()
