"""The resident memory of a server stays below the bound of docs/deploy.md during all attacks at once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest

from app.server.connection_limit import SPARE_CONNECTIONS
from app.settings import Settings
from tests.faults.fleet import Fleet
from tests.faults.memory_attacks import attacks, run_attacks
from tests.memory_bound import KIB, MIB, max_resident_bytes

LIMITS = Settings(
    max_connections=400,
    max_request_bytes=4 * MIB,
    max_request_bytes_in_flight=8 * MIB,
    max_answer_bytes=8 * MIB,
    max_answer_bytes_in_flight=8 * MIB,
    max_volatile_bytes=2 * MIB,
)
SUBSCRIPTIONS = 400
IDLE = 50
ROUNDS = 5


@pytest.mark.faults
async def test_under_all_attacks_at_once_memory_stays_bounded_and_others_are_served(
    sqlite_fleet: Fleet,
) -> None:
    given = {f"PEEKLOCK_{name.upper()}": str(getattr(LIMITS, name)) for name in LIMITS.model_fields_set}
    server = await sqlite_fleet.serve(**given)
    all_attacks = attacks(LIMITS.max_request_bytes)
    connections = sum(attack.connections for attack in all_attacks.values()) + IDLE
    # More than are served, and so few more that a probe is among those that are still heard.
    assert LIMITS.max_connections < connections < LIMITS.max_connections + SPARE_CONNECTIONS - 5
    async with httpx.AsyncClient(base_url=server.url, timeout=60) as honest:
        await fill(honest)
        async with run_attacks(server.port, list(all_attacks.values()), IDLE):
            for _ in range(ROUNDS):
                assert (await honest.get("/livez")).status_code == 200
                assert (await honest.post("/v1/queues/small/messages", json={"body": "x"})).status_code == 201
            async with httpx.AsyncClient(base_url=server.url, timeout=60) as probe:
                assert (await probe.get("/livez")).status_code == 200
            resident = await asyncio.to_thread(most_resident, server.pid)
    assert resident < max_resident_bytes(LIMITS)


async def fill(honest: httpx.AsyncClient) -> None:
    """The queues that the attacks are about: large messages, large properties, and none; and a topic of many queues."""
    for queue in ("large", "wide", "sent", "small", "empty"):
        settings = {"max_message_bytes": LIMITS.max_request_bytes}
        assert (await honest.put(f"/v1/queues/{queue}", json=settings)).is_success
    for _ in range(8):
        assert (await honest.post("/v1/queues/large/messages", json={"body": "x" * (MIB - KIB)})).is_success
    batch = {"messages": [{"properties": {"wide": "x" * 30_000}}] * 50}
    for _ in range(4):
        assert (await honest.post("/v1/queues/wide/messages/batch", json=batch)).is_success
    assert (await honest.put("/v1/topics/wide", json={})).is_success
    for number in range(SUBSCRIPTIONS):
        assert (await honest.put(f"/v1/queues/copies-{number}", json={"description": "\1" * 1024})).is_success
        settings = {"target_queue": f"copies-{number}", "set_properties": {"number": number}}
        assert (await honest.put(f"/v1/topics/wide/subscriptions/to-{number}", json=settings)).is_success


def most_resident(process: int) -> int:
    """The most bytes that a process has had resident."""
    status = Path(f"/proc/{process}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * KIB
