"""A server that is stopped within a transaction keeps its rows locked, and blocks no other work."""

from __future__ import annotations

import asyncio
from functools import partial
from urllib.parse import urlsplit

import httpx
import pytest

from tests.faults.conftest import StartFleet
from tests.faults.conservation import UNAVAILABLE
from tests.faults.database_access import execute
from tests.faults.fleet import LONG_REDIS_TIMEOUT, SETTINGS
from tests.faults.polling import wait_until
from tests.faults.proxies import FaultyProxy
from tests.faults.test_databases import contains, token_spellings

NOW = "CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)"
IF_ENDED = f"SELECT 1 FROM message WHERE sequence_number = :number AND locked_until < {NOW}"
IF_FREE = "SELECT 1 FROM message WHERE sequence_number = :number FOR UPDATE SKIP LOCKED"


@pytest.mark.faults
async def test_other_queues_go_on_while_a_stopped_server_holds_a_row(
    start_fleet: StartFleet, mariadb_url: str, redis_url: str
) -> None:
    address = urlsplit(mariadb_url)
    assert address.port is not None
    async with FaultyProxy(address.port).open() as proxy:
        fleet = start_fleet(mariadb_url, PEEKLOCK_REDIS_URL=redis_url, **LONG_REDIS_TIMEOUT)
        netloc = address.netloc.replace(f":{address.port}", f":{proxy.port}")
        healthy, stopping = await asyncio.gather(
            fleet.serve(), fleet.serve(PEEKLOCK_DATABASE_URL=address._replace(netloc=netloc).geturl())
        )
        await fleet.create_queue(healthy.url)
        async with fleet.client(stopping.url) as holder, fleet.client(healthy.url) as rival:
            beside = type(rival)((healthy.url,), f"{fleet.queue}-beside", fleet.directory / "beside.txt")
            async with beside, httpx.AsyncClient(timeout=60) as client:
                await beside.create_queue(**SETTINGS)
                await beside.send("b0", b"body")
                await beside.send("b1", b"body")
                await rival.send("m0", b"body")
                (held,) = await rival.receive_until_any(wait_seconds=5, lock_seconds=7)
                proxy.delay_answer_to(contains(*token_spellings(held["lock_token"])))
                late = asyncio.create_task(holder.settle("complete", held["lock_token"]))
                await wait_until(lambda: proxy.has_delayed, "the transaction has locked its row")
                stopping.pause()
                locked = f"{healthy.url}/v1/queues/{fleet.queue}/locks/{held['lock_token']}"
                answer = await client.post(f"{locked}/complete", json={})
                assert answer.status_code == UNAVAILABLE

                # The lock of the held row ends, and the locks of the other queue end with it.
                ended = partial(execute, mariadb_url, IF_ENDED, number=held["sequence_number"])
                await wait_until(ended, "the lock of the held row ends")
                first = await beside.receive_until_any(wait_seconds=5, max_messages=2, lock_seconds=1)
                again = [await beside.receive_until_any(wait_seconds=5, lock_seconds=600) for _ in first]
                assert [message["delivery_count"] for (message,) in again] == [2] * len(first)
                for (message,) in again:
                    assert (await beside.settle("complete", message["lock_token"]))[0] == 200
                free = await asyncio.to_thread(execute, mariadb_url, IF_FREE, number=held["sequence_number"])
                assert free == [], "the row was held all the while"

                stopping.resume()
                proxy.resume()
                assert (await late)[0] in (200, 410)
    assert fleet.broken_promises() == []
