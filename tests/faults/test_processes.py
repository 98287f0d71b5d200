"""Servers and clients crash, stop, disconnect or send each request twice: no promise is broken."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence

import httpx
import psutil
import pytest

from app.domain.instant import MINUTE
from tests.faults import moves
from tests.faults.conservation import EARLY
from tests.faults.database_access import execute, forget_locks, pass_time, pass_time_for_locks
from tests.faults.fleet import Fleet, PeeklockServer
from tests.faults.journal import NO_ANSWER
from tests.faults.polling import TIMEOUT_SECONDS, wait_until
from tests.faults.proxies import DuplicatingProxy, FaultyProxy
from tests.faults.retrying_client import RetryingClient

FOREVER = 3600
"""Seconds of a lock whose end no test waits for."""


@pytest.mark.behaviour("S0.1", "S2.23")
@pytest.mark.faults
async def test_a_server_is_killed(fleet: Fleet) -> None:
    first, second = await asyncio.gather(fleet.serve(), fleet.serve())
    await fleet.create_queue(first.url)
    clients = await fleet.start_clients(first.url, second.url, messages=100)
    for sent, server in ((30, first), (70, second)):
        await clients.until_sent(sent)
        server.kill()
        await asyncio.to_thread(server.start)
    await clients.end()
    assert fleet.broken_promises() == []


@pytest.mark.behaviour("S1.87")
@pytest.mark.faults
@pytest.mark.nightly
async def test_a_server_is_killed_while_groups_are_in_order(fleet: Fleet) -> None:
    first, second = await asyncio.gather(fleet.serve(), fleet.serve())
    await fleet.create_queue(first.url, group_in_flight=1)
    # A deferred message leaves its group, and comes back later.
    clients = await fleet.start_clients(first.url, second.url, messages=100, groups=8, without=["defer"])
    for sent, server in ((30, first), (70, second)):
        await clients.until_sent(sent)
        server.kill()
        await asyncio.to_thread(server.start)
    await clients.end()
    assert fleet.broken_promises() == []


@pytest.mark.faults
async def test_a_server_is_killed_while_a_move_task_runs(fleet: Fleet) -> None:
    """The other server goes on with the task. Together they keep its rate."""
    first, second = await asyncio.gather(fleet.serve(), fleet.serve())
    await fleet.create_queue(first.url)
    target = f"{fleet.queue}-target"
    async with fleet.client(first.url, second.url) as client:
        async with RetryingClient([second.url], target, fleet.directory / "target.log") as other:
            await other.create_queue()
        names = await moves.fill(client, 1500)
        began_at = time.monotonic()
        await moves.start_move(client, target, rate=300)
        await wait_until(lambda: len(moves.ids_in(fleet.database, target)) >= 300, "a page has moved")
        first.kill()
        await moves.wait_for_the_end(client)
        # The first page moves at once, and the task ends with the last one.
        assert time.monotonic() - began_at > 1500 / 300 - 1
    moves.check_moved_once(fleet.database, fleet.queue, target, names)


@pytest.mark.faults
@pytest.mark.nightly
async def test_one_of_two_workers_is_killed(fleet: Fleet) -> None:
    server = await fleet.serve(PEEKLOCK_WORKERS="2")
    await fleet.create_queue(server.url)
    clients = await fleet.start_clients(server.url, messages=400)
    for sent in (100, 200, 300):
        await clients.until_sent(sent)
        workers(server)[0].kill()
        await wait_until(lambda: len(workers(server)) == 2, "another worker has taken its place")
    await clients.end()
    assert fleet.broken_promises() == []


@pytest.mark.faults
async def test_receivers_of_a_killed_worker_leave_the_metrics(fleet: Fleet) -> None:
    server = await fleet.serve(PEEKLOCK_WORKERS="2")
    await fleet.create_queue(server.url)
    receivers = [await ask_to_receive(fleet, server, wait_seconds=50) for _ in range(4)]
    await wait_until(lambda: waits(server), "a receiver waits")
    for worker in workers(server):
        worker.kill()
        await wait_until(lambda: len(workers(server)) == 2, "another worker has taken its place")
    await wait_until(lambda: not waits(server), "no receiver is counted any more")
    for receiver in receivers:
        receiver.close()


def workers(server: PeeklockServer) -> list[psutil.Process]:
    """The living processes of a server that answer requests."""
    return [child for child in psutil.Process(server.pid).children() if is_worker(child)]


def is_worker(process: psutil.Process) -> bool:
    """Whether this answers requests, and is not what multiprocessing starts beside."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return any("spawn_main" in word for word in process.cmdline())
    return False


@pytest.mark.behaviour("S3.32")
@pytest.mark.faults
async def test_the_only_server_is_killed(sqlite_fleet: Fleet) -> None:
    server = await sqlite_fleet.serve()
    await sqlite_fleet.create_queue(server.url)
    clients = await sqlite_fleet.start_clients(server.url, messages=60)
    await clients.until_sent(25)
    server.kill()
    await asyncio.to_thread(server.start)
    await clients.end()
    assert sqlite_fleet.broken_promises() == []


@pytest.mark.parametrize(
    "without",
    [
        # A lock that is renewed twice at once lasts for the lead time in SQL, which is a minute.
        pytest.param(["renew and forget"], marks=pytest.mark.faults, id="no renewed lock is forgotten"),
        pytest.param([], marks=[pytest.mark.faults, pytest.mark.nightly], id="every action"),
    ],
)
async def test_every_request_is_duplicated_by_a_proxy(fleet: Fleet, without: Sequence[str]) -> None:
    server = await fleet.serve()
    await fleet.create_queue(server.url)
    async with DuplicatingProxy(server.port).open() as doubler:
        url = f"http://127.0.0.1:{doubler.port}"
        clients = await fleet.start_clients(url, messages=30, keep_alive=False, without=without)
        await clients.end()
    assert doubler.requests > 30
    assert fleet.broken_promises() == []


@pytest.mark.faults
async def test_a_client_disconnects_during_a_long_poll(fleet: Fleet) -> None:
    server = await fleet.serve()
    await fleet.create_queue(server.url)
    leaving = await ask_to_receive(fleet, server, wait_seconds=50)
    async with fleet.client(server.url) as retrying_client:
        await wait_until(lambda: waits(server), "the receiver waits")
        leaving.close()
        await wait_until(lambda: not waits(server), "the server has seen it go")
        await retrying_client.send("m0", b"body")
        (message,) = await retrying_client.receive_until_any(wait_seconds=5)
        assert (message["delivery_count"], message["failure_count"]) == (1, 0)


@pytest.mark.faults
async def test_a_client_disconnects_before_the_reply(fleet: Fleet) -> None:
    server = await fleet.serve()
    await fleet.create_queue(server.url)
    async with fleet.client(server.url) as retrying_client:
        await retrying_client.send("m0", b"body")
        server.pause()  # so that it hears of the wish and of the farewell together
        leaving = await ask_to_receive(fleet, server)
        leaving.close()
        await leaving.wait_closed()
        server.resume()
        await wait_until(lambda: releases(fleet) == 1, "it was claimed, and given back")
        (message,) = await retrying_client.receive_until_any(wait_seconds=5)
        assert (message["delivery_count"], message["failure_count"]) == (1, 0)


def releases(fleet: Fleet) -> int:
    """How many deliveries of the queue were released."""
    ((count,),) = execute(
        fleet.database,
        "SELECT COUNT(*) FROM settlement s JOIN queue q ON q.id = s.queue_id "
        "WHERE q.name = :queue AND s.outcome = 'released'",
        queue=fleet.queue,
    )
    return count


async def ask_to_receive(fleet: Fleet, server: PeeklockServer, **receive_request: float) -> asyncio.StreamWriter:
    """Ask for a message and do not wait for the answer; the connection."""
    body = httpx.Request("POST", server.url, json={"lock_seconds": FOREVER, **receive_request}).content
    _, writer = await asyncio.open_connection("127.0.0.1", server.port)
    head = f"POST /v1/queues/{fleet.queue}/messages/receive HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    await writer.drain()
    return writer


def waits(server: PeeklockServer) -> bool:
    """Whether a receiver waits on this server."""
    metrics = httpx.get(f"{server.url}/metrics", timeout=TIMEOUT_SECONDS).text
    return any(line.startswith("peeklock_waiting") and not line.endswith(" 0.0") for line in metrics.splitlines())


@pytest.mark.behaviour("S0.23")
@pytest.mark.faults
async def test_a_server_is_stopped_for_longer_than_the_lock(fleet: Fleet) -> None:
    stopped, other = await asyncio.gather(fleet.serve(), fleet.serve())
    await fleet.create_queue(stopped.url)
    async with fleet.client(stopped.url) as holder, fleet.client(other.url) as rival:
        await holder.send("m0", b"body")
        (held,) = await holder.receive_until_any(wait_seconds=5, lock_seconds=1)
        stopped.pause()
        late = asyncio.create_task(holder.settle("complete", held["lock_token"]))
        (again,) = await rival.receive_until_any(wait_seconds=5, lock_seconds=FOREVER)
        stopped.resume()
        assert (await late)[0] == 410
        assert (await rival.settle("complete", again["lock_token"]))[0] == 200
    assert fleet.broken_promises() == []


@pytest.mark.faults
@pytest.mark.parametrize(
    ("is_renewed", "is_forgotten", "status"),
    [
        pytest.param(False, False, 410, id="the bound has passed"),
        pytest.param(True, False, 410, id="the record has expired"),
        pytest.param(True, True, 200, id="no expired record inside the bound"),
    ],
)
async def test_a_server_is_stopped_for_longer_than_a_lock_that_no_receiver_takes(
    fleet: Fleet, redis_url: str, is_renewed: bool, is_forgotten: bool, status: int
) -> None:
    server = await fleet.serve()
    await fleet.create_queue(server.url)
    async with fleet.client(server.url) as holder:
        await holder.send("m0", b"body")
        (held,) = await holder.receive_until_any(wait_seconds=5, lock_seconds=60)
        if is_renewed:
            assert (await holder.settle("renew", held["lock_token"], lock_seconds=60))[0] == 200
        server.pause()
        late = asyncio.create_task(holder.settle("complete", held["lock_token"]))
        await asyncio.to_thread(pass_time, fleet.database, 2 * MINUTE)
        assert await asyncio.to_thread(pass_time_for_locks, redis_url, 2 * MINUTE) == is_renewed
        if is_forgotten:
            await asyncio.to_thread(forget_locks, redis_url)
        server.resume()
        assert (await late)[0] == status
        if status == 410:
            (again,) = await holder.receive_until_any(wait_seconds=5, lock_seconds=FOREVER)
            assert (again["delivery_count"], again["failure_count"]) == (2, 1)
            assert (await holder.settle("complete", again["lock_token"]))[0] == 200
        assert await holder.receive() == []
    assert fleet.broken_promises(excused=EARLY) == []


@pytest.mark.faults
async def test_a_server_is_stopped_for_less_than_the_lock(fleet: Fleet) -> None:
    server = await fleet.serve()
    await fleet.create_queue(server.url)
    async with fleet.client(server.url) as holder:
        await holder.send("m0", b"body")
        (held,) = await holder.receive_until_any(wait_seconds=5, lock_seconds=FOREVER)
        server.pause()
        late = asyncio.create_task(holder.settle("complete", held["lock_token"]))
        await asyncio.sleep(0.1)
        server.resume()
        assert (await late)[0] == 200
    assert fleet.broken_promises() == []


@pytest.mark.faults
@pytest.mark.nightly
async def test_a_server_is_stopped_under_load(fleet: Fleet) -> None:
    first, second = await asyncio.gather(fleet.serve(), fleet.serve())
    await fleet.create_queue(first.url)
    clients = await fleet.start_clients(first.url, second.url, messages=600)
    for sent, server in ((100, first), (250, second), (400, first)):
        await clients.until_sent(sent)
        server.pause()
        await asyncio.sleep(5)  # longer than the locks of this queue
        server.resume()
    await clients.end()
    assert fleet.broken_promises() == []


@pytest.mark.faults
async def test_servers_are_restarted_one_after_the_other(fleet: Fleet) -> None:
    first, second = await asyncio.gather(fleet.serve(), fleet.serve())
    await fleet.create_queue(first.url)
    async with FaultyProxy(first.port).open() as balancer:
        clients = await fleet.start_clients(f"http://127.0.0.1:{balancer.port}", messages=100, keep_alive=False)
        for sent, leaving, staying in ((30, first, second), (60, second, first)):
            await clients.until_sent(sent)
            balancer.target = staying.port
            await wait_until(balancer.all_have_asked, "whoever was led to the leaving server has asked it something")
            assert await asyncio.to_thread(leaving.is_ready)  # by now it has read what came before
            await asyncio.to_thread(leaving.stop)
            await asyncio.to_thread(leaving.start)
        await clients.end()
    failed = [call for call in fleet.calls() if call.status == NO_ANSWER or call.status >= 500]
    assert failed == []
    assert fleet.broken_promises() == []


@pytest.mark.faults
async def test_waiting_polls_answer_at_once_when_the_server_is_told_to_stop(fleet: Fleet) -> None:
    """Only the stop can end this poll before the test's timeouts, and the stop itself has a long grace period."""
    server = await fleet.serve(PEEKLOCK_LONG_POLL_CAP_SECONDS="3600", PEEKLOCK_SHUTDOWN_GRACE_SECONDS="600")
    await fleet.create_queue(server.url)
    path = f"{server.url}/v1/queues/{fleet.queue}/messages/receive"
    async with httpx.AsyncClient(timeout=TIMEOUT_SECONDS) as client:
        poll = asyncio.create_task(client.post(path, json={"wait_seconds": 3600}))
        await wait_until(lambda: waits(server), "the receiver waits")
        await asyncio.to_thread(server.stop)
        answer = await poll
    assert (answer.status_code, answer.json()["messages"]) == (200, [])
