"""The page of moves shows a plan first, starts a task, shows its progress, and cancels it."""

import re

from app.domain.access import Right
from app.maintenance.dead_letters import DeadLetterForwarder
from app.maintenance.moves import advance_moves
from tests.bounds import bounded
from tests.console.console_server import ConsoleServer

MOVES = "/queues/orders/moves"


async def fill(console: ConsoleServer, count: int) -> None:
    """Send messages to queue `orders`, and make another queue."""
    await console.api.request_json("PUT", "/queues/repairs")
    for number in range(count):
        await console.api.send(body=number)


async def run(console: ConsoleServer) -> None:
    """Run the background loop until no task has more to do at this time."""
    for _ in bounded("the passes end"):
        if await advance_moves(console.api.broker.administration):
            return


async def test_a_move_is_planned_started_and_shown(console: ConsoleServer) -> None:
    await fill(console, 3)
    assert "Last moves" not in await console.page(MOVES)
    planned = await console.page(f"{MOVES}?to_queue=repairs&rate_per_second=2")
    assert "3 messages with" in planned
    assert "Move 3" in planned
    assert await console.api.counts() == {"available": 3}
    started = await console.post(MOVES, to_queue="repairs", rate_per_second="2")
    assert (started.status_code, started.headers["location"]) == (303, "/console/queues/orders/moves")
    await run(console)
    shown = await console.page(MOVES)
    assert "2 of 3" in shown
    assert '<progress aria-label="Progress" max="3" value="2">' in shown
    assert "A move of this queue is running." in await console.page(f"{MOVES}?to_queue=repairs&rate_per_second=")
    await console.api.clock.advance(1)
    await run(console)
    ended = await console.page(MOVES)
    assert "completed" in ended
    assert "3 of 3" in ended
    assert "<progress" not in ended
    assert await console.api.counts("repairs") == {"available": 3}


async def test_a_running_move_is_cancelled(console: ConsoleServer) -> None:
    await fill(console, 2)
    await console.post(MOVES, to_queue="repairs", rate_per_second="")
    (path,) = re.findall(r'action="/console(/queues/orders/moves/[^"]+/cancel)"', await console.page(MOVES))
    assert (await console.post(path)).status_code == 303
    page = await console.page(MOVES)
    assert "cancelled" in page
    assert "/cancel" not in page
    await run(console)
    assert await console.api.counts() == {"available": 2}
    await console.post(MOVES, to_queue="repairs", rate_per_second="")
    await run(console)
    (task, _) = (await console.api.request_json("GET", MOVES))["items"]
    refused = await console.post(f"{MOVES}/{task['id']}/cancel")
    assert (refused.status_code, "This move task has already ended." in refused.text) == (409, True)


async def test_a_second_move_is_refused_while_one_runs(console: ConsoleServer) -> None:
    await fill(console, 1)
    await console.post(MOVES, to_queue="repairs", rate_per_second="")
    refused = await console.post(MOVES, to_queue="repairs", rate_per_second="")
    assert (refused.status_code, "A move task of this queue is running" in refused.text) == (409, True)


async def test_forwarded_dead_letters_go_back(console: ConsoleServer) -> None:
    await console.api.request_json("PUT", "/queues/failures")
    await console.api.request_json("PUT", "/queues/orders", {"forward_dead_letters_to": "failures"})
    await console.api.send(body=1)
    (message,) = await console.api.receive()
    await console.api.settle(message, "dead-letter", reason="bad")
    await DeadLetterForwarder(console.api.broker.administration).step()
    path = "/queues/failures/moves"
    assert "1 message with" in await console.page(f"{path}?to_queue=&rate_per_second=")
    await console.post(path, to_queue="", rate_per_second="")
    assert "their own queues" in await console.page(path)
    await run(console)
    assert await console.api.counts() == {"available": 1}


async def test_what_cannot_be_moved_is_said_at_its_field(console: ConsoleServer) -> None:
    await fill(console, 1)
    for query, sentence in (
        ("to_queue=&rate_per_second=", "No queue forwards its dead letters to queue orders"),
        ("to_queue=absent&rate_per_second=", "There is no queue named absent."),
        ("to_queue=orders&rate_per_second=", "already in this queue"),
    ):
        response = await console.get(f"{MOVES}?{query}")
        assert response.status_code in (404, 422)
        assert sentence in response.text
        assert 'aria-describedby="fault-to_queue"' in response.text


async def test_the_page_needs_the_right_to_manage_and_to_send_to_the_target(console_with_keys: ConsoleServer) -> None:
    console = console_with_keys
    for queue in ("orders", "repairs"):
        await console.api.broker.queue_cache.by_name_for_send(queue)
    await console.sign_in(await console.api.new_key(Right.BROWSE, Right.MANAGE, patterns=("orders",)))
    assert (await console.get(MOVES)).status_code == 200
    assert (await console.post(MOVES, to_queue="repairs", rate_per_second="")).status_code == 403
    await console.sign_in(await console.api.new_key(Right.BROWSE, principal="reader"))
    assert (await console.get(MOVES)).status_code == 403
