"""The highest values that the processes of a broker have seen: each process learns them."""

from app.locks.connect import connect
from app.locks.redis_connection import RedisConnection
from app.locks.redis_keys import RedisKeys
from app.locks.shared_record import SEEN_SECONDS, MemorySharedRecord, RedisSharedRecord
from app.runtime.clock import SystemClock
from tests.locks.lock_records import TIMEOUT_SECONDS, unique_keys
from tests.servers import free_port


async def test_each_process_learns_of_the_highest_values(redis_url: str) -> None:
    connection, keys = connection_to(redis_url), unique_keys()
    one, other = RedisSharedRecord(connection, keys), RedisSharedRecord(connection, keys)
    assert await one.raise_to({"timeline:1": 2, "number": 9_000_000_000_000_000_001}) == {
        "timeline:1": 2,
        "number": 9_000_000_000_000_000_001,
    }
    assert await other.raise_to({"timeline:1": 10, "number": 9_000_000_000_000_000_000}) == {
        "timeline:1": 10,
        "number": 9_000_000_000_000_000_001,
    }
    assert await one.raise_to({"timeline:1": 9}) == {"timeline:1": 10, "number": 9_000_000_000_000_000_001}
    await connection.close()


async def test_the_record_lasts_for_a_month(redis_url: str) -> None:
    connection, keys = connection_to(redis_url), unique_keys()
    await RedisSharedRecord(connection, keys).raise_to({"timeline:1": 2})
    (seconds,) = await connection.client.execute([("TTL", keys.seen())])
    assert SEEN_SECONDS - 60 < seconds <= SEEN_SECONDS
    await connection.close()


async def test_nothing_is_learned_while_redis_is_away() -> None:
    connection = connection_to(f"redis://127.0.0.1:{free_port()}/0")
    assert await RedisSharedRecord(connection, RedisKeys()).raise_to({"timeline:1": 2}) == {}
    await connection.close()


async def test_without_redis_a_process_gets_its_own_values() -> None:
    assert await MemorySharedRecord().raise_to({"timeline:1": 2}) == {"timeline:1": 2}


def connection_to(url: str) -> RedisConnection:
    """Return a connection that ignores failures."""
    return RedisConnection(connect(url, timeout_seconds=TIMEOUT_SECONDS), SystemClock(), lambda *_: None)
