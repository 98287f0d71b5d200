"""A move task whose servers die: every message is in one queue, once, and the count of the task is exact."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

from tests.bounds import bounded
from tests.faults.database_access import execute
from tests.faults.polling import POLL_SECONDS
from tests.faults.retrying_client import RetryingClient
from tests.faults.workload_steps import CREATED

CONFLICT = 409
MAX_BATCH = 1000


async def fill(client: RetryingClient, count: int) -> list[str]:
    """Send messages; return their ids."""
    names = [f"m{number}" for number in range(count)]
    for first in range(0, count, MAX_BATCH):
        batch = {"messages": [{"message_id": name, "body": name} for name in names[first : first + MAX_BATCH]]}
        assert (await client.request(f"batch {first}", "POST", "/messages/batch", batch))[0] == CREATED
    return names


async def start_move(client: RetryingClient, target: str, rate: float | None = None) -> None:
    """Start a move. If the first answer was lost, a repeat may be refused because the task runs."""
    body = {"to_queue": target} | ({} if rate is None else {"rate_per_second": rate})
    status, answer = await client.request("move", "POST", "/moves", body)
    assert status == CREATED or (status == CONFLICT and answer["code"] == "move-running"), answer


async def wait_for_the_end(client: RetryingClient) -> None:
    """Return once no move task of the queue runs."""

    for _ in bounded("the task ends"):
        _, listed = await client.request("look", "GET", "/moves")
        if all(task["state"] != "running" for task in listed["items"]):
            return
        await asyncio.sleep(POLL_SECONDS)


def check_moved_once(database: str, source: str, target: str, names: Sequence[str]) -> None:
    """Check that each of these messages has moved, once, and that the tasks have counted them."""
    assert ids_in(database, target) == Counter(names)
    assert ids_in(database, source) == Counter()
    moved = execute(
        database,
        "SELECT SUM(t.moved) FROM move_task t JOIN queue q ON q.id = t.queue_id WHERE q.name = :queue",
        queue=source,
    )
    assert int(moved[0][0]) == len(names)


def ids_in(database: str, queue: str) -> Counter[str]:
    """Return the ids of the messages in a queue."""
    rows = execute(
        database,
        "SELECT m.message_id FROM message m JOIN queue q ON q.id = m.queue_id WHERE q.name = :queue",
        queue=queue,
    )
    return Counter(message_id for (message_id,) in rows)
