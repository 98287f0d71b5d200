"""The copies of a published message share one stored body, until the last of them is removed."""

import pytest

from app.domain.archive import BatchLimits
from app.domain.instant import DAY, to_seconds
from app.domain.shared_body import MIN_SHARED_BYTES
from app.store.sqlite.store import SqliteStore
from tests.api.api_server import ApiServer
from tests.api.topic_requests import publish, received, subscribe

MIB = 1 << 20
BODY = "x" * (MIB - 1000)
QUEUES = [f"orders.s{number}" for number in range(10)]


@pytest.fixture(autouse=True)
async def topic(api: ApiServer) -> None:
    """The topic `orders` with ten subscriptions."""
    await api.request_json("PUT", "/topics/orders", {})
    for number in range(len(QUEUES)):
        await subscribe(api, f"s{number}")


async def database_bytes(api: ApiServer) -> int:
    """Return the bytes of the database in use."""
    assert isinstance(api.broker.store, SqliteStore)
    query = "SELECT (page_count - freelist_count) * page_size FROM pragma_page_count(), pragma_freelist_count(), pragma_page_size()"
    ((size,),) = await api.broker.store.database.call_on_writer(lambda connection: connection.execute(query).fetchall())
    return size


async def remove_ended(api: ApiServer) -> None:
    """Seal the ended messages, and remove them and their body after their retention."""
    archive = api.broker.store.archive
    await api.advance_time(60)
    while first := await archive.first_unsealed(0):
        await archive.seal(first, BatchLimits())
    await api.advance_time(to_seconds(31 * DAY))
    await archive.delete_expired(100)
    await api.broker.store.delete_expired(100)


@pytest.mark.behaviour("S1.6", "S1.17")
async def test_a_large_body_is_stored_once_and_removed_with_its_last_copy(api: ApiServer) -> None:
    empty = await database_bytes(api)
    assert (await publish(api, body=BODY))["matched"] == len(QUEUES)
    assert len(BODY) <= await database_bytes(api) - empty < 1.5 * MIB
    for queue in QUEUES:
        (message,) = await api.receive(queue)
        assert message["body"] == BODY
        assert (await api.settle(message, "complete", queue)).status_code == 200
    assert len(BODY) <= await database_bytes(api) - empty < 1.5 * MIB
    await remove_ended(api)
    assert await database_bytes(api) - empty < MIB / 2


async def test_copies_with_properties_of_their_own_share_the_body(api: ApiServer) -> None:
    await subscribe(api, "s0", set_properties={"from": "orders"})
    empty = await database_bytes(api)
    await publish(api, body=BODY)
    assert await database_bytes(api) - empty < 1.5 * MIB
    (copy,) = await api.receive("orders.s0")
    assert (copy["properties"], len(copy["body"])) == ({"from": "orders"}, len(BODY))


async def test_each_message_of_a_publish_has_a_body_of_its_own(api: ApiServer) -> None:
    bodies = [letter * MIN_SHARED_BYTES for letter in "abc"] + ["small"]
    await api.request_json("POST", "/topics/orders/messages/batch", {"messages": [{"body": body} for body in bodies]})
    for queue in QUEUES:
        assert await received(api, queue) == bodies


async def test_a_publish_within_a_transaction_shares_the_body(api: ApiServer) -> None:
    empty = await database_bytes(api)
    await api.request_json("POST", "/transactions/execute", {"publishes": [{"topic": "orders", "body": BODY}]})
    assert await database_bytes(api) - empty < 1.5 * MIB
    assert await received(api, "orders.s9") == [BODY]


async def test_a_copy_that_is_forwarded_beyond_the_targets_has_a_body_of_its_own(api: ApiServer) -> None:
    await api.request_json("PUT", "/queues/other", {})
    await api.request_json("PATCH", "/queues/orders.s0", {"forward_to": "other"})
    body = "x" * MIN_SHARED_BYTES
    await publish(api, body=body)
    assert isinstance(api.broker.store, SqliteStore)
    query = "SELECT shared_body_id FROM message JOIN queue ON queue.id = queue_id WHERE queue.name = 'other'"
    stored = await api.broker.store.database.call_on_writer(lambda connection: connection.execute(query).fetchall())
    assert stored == [(None,)]
    assert [await received(api, queue) for queue in ("other", "orders.s1")] == [[body], [body]]
