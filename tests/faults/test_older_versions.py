"""A server of an older version runs beside one of this version, on one database and one Redis."""

from __future__ import annotations

import asyncio
import io
import subprocess
import tarfile
from pathlib import Path

import httpx
import pytest

from app.domain.instant import MINUTE
from app.domain.message import MessageState
from tests.faults.client_process import WITH_SENDS
from tests.faults.database_access import execute, pass_time
from tests.faults.fleet import ROOT, Fleet
from tests.faults.polling import wait_until

GROUPS = ("app/domain/queue.py", '"group_in_flight": 1')
"""A file, and the feature level in it that the older version does not know, as `LEVEL_OF_SETTING` has it."""

DEFAULT_DELAYS = ("app/domain/queue.py", '"default_delay": 8')

SHARED_BODIES = ("app/domain/offer.py", "class OfferState")
"""The first text of the changes that also brought shared bodies. Versions between the first and the last of them do not
start."""


@pytest.fixture
def older_version(tmp_path: Path) -> Path:
    """The folder of the last version without groups, from the history of this repository."""
    return version_before(GROUPS, tmp_path / "older")


@pytest.fixture
def version_before_default_delays(tmp_path: Path) -> Path:
    """The folder of the last version in which a message without a delay can be received at once, in every queue."""
    return version_before(DEFAULT_DELAYS, tmp_path / "older")


@pytest.fixture
def version_before_shared_bodies(tmp_path: Path) -> Path:
    """The folder of the last version in which each copy of a message has its body."""
    return version_before(SHARED_BODIES, tmp_path / "older")


def version_before(change: tuple[str, str], folder: Path) -> Path:
    """Write the last version without this text of a file into a folder."""
    file, text = change
    try:
        *_, first = git("log", "--format=%H", "-S", text, "--", file).decode().split()
        archive = git("archive", f"{first}^", "app", "migrations")
    except (OSError, ValueError, subprocess.CalledProcessError):
        pytest.skip("the history of this repository does not have the older version")
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder, filter="data")
    return folder


def git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=True).stdout


async def answer(http: httpx.AsyncClient, method: str, url: str, **body: object) -> httpx.Response:
    """Return the answer of a request that must succeed."""
    response = await http.request(method, url, json=body)
    assert response.is_success, response.text
    return response


@pytest.mark.faults
async def test_an_older_server_refuses_queues_with_groups_and_serves_all_others(
    fleet: Fleet, older_version: Path
) -> None:
    newer, older = await asyncio.gather(fleet.serve(), fleet.serve(PYTHONPATH=str(older_version)))
    await fleet.create_queue(newer.url)
    clients = await fleet.start_clients(older.url, newer.url, messages=40, without=[*WITH_SENDS, "release"])
    path = f"/v1/queues/{fleet.queue}-groups"
    async with httpx.AsyncClient(timeout=60) as http:
        await answer(http, "PUT", newer.url + path, group_in_flight=1)
        for _ in range(2):
            await answer(http, "POST", f"{newer.url}{path}/messages", group_id="g")
        for method, verb in (("POST", "/messages"), ("POST", "/messages/receive"), ("PATCH", ""), ("DELETE", "")):
            refused = await http.request(method, older.url + path + verb, json={})
            assert (refused.status_code, refused.json()["code"]) == (503, "queue-needs-newer-server")
            assert refused.headers["retry-after"]
        await answer(http, "GET", older.url + path)
        served = await answer(http, "POST", f"{newer.url}{path}/messages/receive", max_messages=2)
        assert len(served.json()["messages"]) == 1
    await clients.end()
    assert fleet.broken_promises() == []


@pytest.mark.faults
async def test_an_older_server_refuses_queues_with_settings_that_it_would_ignore_or_drop(
    fleet: Fleet, version_before_default_delays: Path
) -> None:
    newer, older = await asyncio.gather(fleet.serve(), fleet.serve(PYTHONPATH=str(version_before_default_delays)))
    async with httpx.AsyncClient(timeout=60) as http:
        new: dict[str, object] = {"default_delay_seconds": 1, "default_wait_seconds": 1, "labels": {"team": "payments"}}
        for setting, value in new.items():
            path = f"/v1/queues/{fleet.queue}-{setting}"
            await answer(http, "PUT", newer.url + path, **{setting: value})
            for method, verb in (("POST", "/messages"), ("POST", "/messages/receive"), ("PATCH", "")):
                refused = await http.request(method, older.url + path + verb, json={})
                assert (refused.status_code, refused.json()["code"]) == (503, "queue-needs-newer-server")
            await answer(http, "POST", f"{newer.url}{path}/messages")


@pytest.mark.faults
async def test_an_older_server_refuses_to_keep_locks(fleet: Fleet, version_before_default_delays: Path) -> None:
    older = await fleet.serve(PYTHONPATH=str(version_before_default_delays))
    path = f"{older.url}/v1/queues/{fleet.queue}-locks"
    async with httpx.AsyncClient(timeout=60) as http:
        await answer(http, "PUT", path)
        await answer(http, "POST", f"{path}/messages")
        taken = await answer(http, "POST", f"{path}/messages/receive")
        (message,) = taken.json()["messages"]
        refused = await http.patch(path, json={"max_delivery_count": 3}, params={"keep_locks": "true"})
        assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "#/query/keep_locks")
        await answer(http, "POST", f"{path}/locks/{message['lock_token']}/complete")


@pytest.mark.faults
async def test_an_older_server_delivers_no_message_without_its_shared_body(
    fleet: Fleet, version_before_shared_bodies: Path
) -> None:
    newer, older = await asyncio.gather(fleet.serve(), fleet.serve(PYTHONPATH=str(version_before_shared_bodies)))
    topic, body = f"/v1/topics/{fleet.queue}", "x" * (64 << 10)
    queues = [f"/v1/queues/{fleet.queue}.{name}" for name in ("a", "b")]
    async with httpx.AsyncClient(timeout=60) as http:
        await answer(http, "PUT", newer.url + topic)
        for name in ("a", "b"):
            await answer(http, "PUT", f"{newer.url}{topic}/subscriptions/{name}")
        await answer(http, "POST", f"{newer.url}{topic}/messages", body=body)
        for queue in queues:
            refused = await http.post(f"{older.url}{queue}/messages/receive", json={})
            assert (refused.status_code, refused.json()["code"]) == (503, "queue-needs-newer-server")
            (message,) = (await answer(http, "POST", f"{newer.url}{queue}/messages/receive")).json()["messages"]
            assert message["body"] == body
            await answer(http, "POST", f"{newer.url}{queue}/locks/{message['lock_token']}/complete")
    assert execute(fleet.database, "SELECT COUNT(*) FROM shared_body") == [(1,)]


@pytest.mark.faults
@pytest.mark.nightly
async def test_an_older_server_alone_leaves_locks_of_queues_with_groups_to_newer_ones(
    fleet: Fleet, older_version: Path
) -> None:
    newer, older = await asyncio.gather(fleet.serve(), fleet.serve(PYTHONPATH=str(older_version)))
    grouped, plain = f"{fleet.queue}-groups", f"{fleet.queue}-plain"
    async with httpx.AsyncClient(timeout=60) as http:
        for queue, server, settings in ((grouped, newer, {"group_in_flight": 1}), (plain, older, {})):
            url = f"{server.url}/v1/queues/{queue}"
            await answer(http, "PUT", url, **settings)
            await answer(http, "POST", f"{url}/messages", group_id="g")
            await answer(http, "POST", f"{url}/messages/receive")
        newer.kill()
        pass_time(fleet.database, MINUTE)
        await wait_until(lambda: state(fleet, plain) == MessageState.AVAILABLE, "the older server has swept")
        assert state(fleet, grouped) == MessageState.LOCKED
        await asyncio.to_thread(newer.start)
        await wait_until(lambda: state(fleet, grouped) == MessageState.AVAILABLE, "the newer server has swept")


@pytest.mark.faults
async def test_an_older_server_leaves_a_queue_with_synchronous_sends_to_newer_ones(
    fleet: Fleet, older_version: Path
) -> None:
    newer, older = await asyncio.gather(fleet.serve(), fleet.serve(PYTHONPATH=str(older_version)))
    path = f"/v1/queues/{fleet.queue}-synchronous"
    async with httpx.AsyncClient(timeout=60) as http:
        await answer(http, "PUT", newer.url + path)
        question = {"delivery": "synchronous", "wait_seconds": 50}
        asking = asyncio.create_task(answer(http, "POST", f"{newer.url}{path}/messages", **question))
        taken = await answer(http, "POST", f"{newer.url}{path}/messages/receive", wait_seconds=30, lock_seconds=60)
        (message,) = taken.json()["messages"]
        settlement = f"{path}/locks/{message['lock_token']}/complete"
        for refusing in (f"{path}/messages/receive", f"{path}/messages", settlement):
            refused = await http.post(older.url + refusing, json={})
            assert (refused.status_code, refused.json()["code"]) == (503, "queue-needs-newer-server")
        await answer(http, "POST", newer.url + settlement, reply="yes")
        assert (await asking).json()["reply"] == "yes"


def state(fleet: Fleet, queue: str) -> int:
    """The state of the only message of this queue."""
    query = "SELECT m.state FROM message m JOIN queue q ON q.id = m.queue_id WHERE q.name = :queue"
    ((found,),) = execute(fleet.database, query, queue=queue)
    return found
