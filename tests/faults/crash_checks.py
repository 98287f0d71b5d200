"""Runs a workload past a step at which the server crashes, and compares the remaining messages with the promises."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from app.domain.instant import HOUR
from tests.faults.conservation import EARLY, check
from tests.faults.crashing_server import CrashPoint, ForkedServers
from tests.faults.database_access import execute, remaining_messages, remaining_versions
from tests.faults.fleet import SETTINGS
from tests.faults.journal import read
from tests.faults.retrying_client import RetryingClient

MOMENTS = ("before", "commit", "after")
AROUND_CALL = ("before", "after")

METHODS_WITH_COMMIT = frozenset(
    {"send_or_replay", "claim_or_replay", "edit", "cancel", "withdraw", "redrive", "restore", "execute"}
    | {"join_sends", "join_settlements", "commit"}
    | {"start", "advance_move"}
    | {"settle_offer", "withdraw_offer"}
)
"""What has a COMMIT of its own on a server; of other methods it is part of their one statement."""


@dataclass(frozen=True, slots=True)
class CrashSetup:
    """Servers to be killed, and the database they leave behind."""

    servers: ForkedServers
    database: str
    directory: Path

    def end_locks_except(self, messages: Collection[dict[str, Any]]) -> None:
        """Let time pass for every lock that is not one of these: no client has received them."""
        numbers = ", ".join(str(message["sequence_number"]) for message in messages) or "0"
        statement = "UPDATE message SET locked_until = locked_until - :by WHERE sequence_number NOT IN"
        execute(self.database, f"{statement} ({numbers})", by=HOUR)


Workload = Callable[[RetryingClient, CrashSetup], Awaitable[Counter[str]]]


def step_parameters(steps: Sequence[CrashPoint], short: Collection[CrashPoint]) -> list[Any]:
    """The steps as parameters: few for every run, the others for `--nightly`."""
    marks = ((step, () if step in short else (pytest.mark.nightly,)) for step in steps)
    return [pytest.param(step, id=str(step), marks=(pytest.mark.faults, *more)) for step, more in marks]


def server_steps(steps: Sequence[CrashPoint]) -> list[CrashPoint]:
    """Those that exist on a server, where the COMMIT of most verbs is part of their one statement or its round trip."""
    return [step for step in steps if step.moment != "commit" or step.method in METHODS_WITH_COMMIT]


def open_setup(directory: Path, database: str, **environment: str) -> Iterator[CrashSetup]:
    """Servers on this database."""
    setup = CrashSetup(ForkedServers(directory, PEEKLOCK_DATABASE_URL=database, **environment), database, directory)
    yield setup
    setup.servers.kill()


@asynccontextmanager
async def client_of_crashing_server(setup: CrashSetup, step: CrashPoint) -> AsyncIterator[tuple[RetryingClient, str]]:
    """A client of a new queue on a server that will die at this step, and be replaced."""
    queue = f"crash-{secrets.token_hex(4)}"
    await asyncio.to_thread(setup.servers.start, step)
    replacement = asyncio.create_task(setup.servers.restart_after_death())
    try:
        async with RetryingClient([setup.servers.url], queue, setup.directory / queue) as client:
            await client.create_queue(**SETTINGS)
            yield client, queue
        await replacement  # fails if the step was never reached
    finally:
        replacement.cancel()
        setup.servers.kill()


async def check_crash(setup: CrashSetup, step: CrashPoint, workload: Workload) -> None:
    """Run the workload past the step, and compare the remaining messages with the promises."""
    async with client_of_crashing_server(setup, step) as (client, queue):
        expected = await workload(client, setup)
    check_remaining(setup, queue, expected)


def check_remaining(setup: CrashSetup, queue: str, expected: Counter[str]) -> None:
    """Compare the remaining messages with what was promised to the clients, and with how they should end."""
    left = remaining_messages(setup.database, queue)
    findings = check(read([setup.directory / queue]), left, remaining_versions(setup.database, queue))
    broken = [finding for finding in findings if finding.kind not in EARLY]
    assert not broken, "\n".join(map(str, broken))
    final_states = Counter(remaining.state for remaining in left)
    assert final_states == expected, f"they have ended as {final_states}, not as {expected}"
