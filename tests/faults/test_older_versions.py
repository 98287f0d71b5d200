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
from tests.faults.database_access import execute, pass_time
from tests.faults.fleet import ROOT, Fleet
from tests.faults.polling import wait_until

GROUPS = '"group_in_flight": 1'
"""The feature level that the older version does not know, as `LEVEL_OF_SETTING` has it."""


@pytest.fixture
def older_version(tmp_path: Path) -> Path:
    """The folder of the last version without groups, from the history of this repository."""
    try:
        *_, first = git("log", "--format=%H", "-S", GROUPS, "--", "app/domain/queue.py").decode().split()
        archive = git("archive", f"{first}^", "app", "migrations")
    except (OSError, ValueError, subprocess.CalledProcessError):
        pytest.skip("the history of this repository does not have the version before groups")
    folder = tmp_path / "older"
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


@pytest.mark.faults("short")
async def test_an_older_server_refuses_queues_with_groups_and_serves_all_others(
    fleet: Fleet, older_version: Path
) -> None:
    newer, older = await asyncio.gather(fleet.serve(), fleet.serve(PYTHONPATH=str(older_version)))
    await fleet.create_queue(newer.url)
    clients = await fleet.start_clients(older.url, newer.url, messages=40, without=["complete and send"])
    path = f"/v1/queues/{fleet.queue}-groups"
    async with httpx.AsyncClient() as http:
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


@pytest.mark.faults("short")
async def test_an_older_server_alone_leaves_locks_of_queues_with_groups_to_newer_ones(
    fleet: Fleet, older_version: Path
) -> None:
    newer, older = await asyncio.gather(fleet.serve(), fleet.serve(PYTHONPATH=str(older_version)))
    grouped, plain = f"{fleet.queue}-groups", f"{fleet.queue}-plain"
    async with httpx.AsyncClient() as http:
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


def state(fleet: Fleet, queue: str) -> int:
    """The state of the only message of this queue."""
    query = "SELECT m.state FROM message m JOIN queue q ON q.id = m.queue_id WHERE q.name = :queue"
    ((found,),) = execute(fleet.database, query, queue=queue)
    return found
