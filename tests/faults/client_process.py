"""A process with many clients: sends messages, and processes received messages until each has ended.

`python -m tests.faults.client_process '<JSON of a Load>'`; what it did is in its log, and it fails if a message did not end.
"""

from __future__ import annotations

import asyncio
import base64
import json
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from tests.faults.polling import TIMEOUT_SECONDS
from tests.faults.retrying_client import RETRY_SECONDS, RetryingClient

OK, CREATED = 200, 201
WAIT_SECONDS = 2
MAX_BODY_BYTES = 3000

ACTIONS = {
    "complete": 28,
    "complete and send": 6,
    "commit a state": 6,
    "commit a transaction": 5,
    "roll back a transaction": 1,
    "complete twice": 6,
    "renew and complete": 10,
    "renew while completing": 6,
    "abandon": 8,
    "release": 4,
    "dead_letter": 6,
    "defer": 4,
    "forget": 5,
    "renew and forget": 5,
}
"""The actions of a receiver with a delivery, and their share in percent."""

WITH_SENDS = ("complete and send", "commit a state", "commit a transaction", "roll back a transaction")
"""The actions that complete a delivery together with a send, or neither."""

FOLLOWING = "-next"
"""The end of the message id of a message that was sent together with the completion of another one."""

TRANSACTION_SECONDS = 30
"""Long enough for a restart within it. A message whose transaction was rolled back returns soon after."""

STATES = 2
"""States that all receivers of a queue change: few, so that their commits conflict."""

MAX_LEAD_SECONDS = 600
"""The lock store alone grants no renewal of that length, so every renewal writes SQL."""


class ActionChooser(random.Random):
    """A random choice among weighted actions."""

    def __new__(cls, seed: float, without: Sequence[str]) -> Self:
        return super().__new__(cls, seed)

    def __init__(self, seed: float, without: Sequence[str]) -> None:
        super().__init__(seed)
        self._weights = {action: weight for action, weight in ACTIONS.items() if action not in without}

    def next_action(self) -> str:
        """What to do with a delivery."""
        return self.choices([*self._weights], [*self._weights.values()])[0]


@dataclass(frozen=True, slots=True)
class ClientLoad:
    """What one process is to do, and which habits its receivers do `without`. `groups` is the number of groups to which
    its messages belong; 0 for none."""

    name: str
    urls: Sequence[str]
    queue: str
    log: str
    messages: int = 300
    senders: int = 4
    receivers: int = 6
    limit_seconds: float = 4 * TIMEOUT_SECONDS
    keep_alive: bool = True
    without: Sequence[str] = ()
    groups: int = 0


@dataclass(slots=True)
class Progress:
    """What is still to be sent, and what has been sent and has not ended."""

    to_send: list[str]
    open: set[str] = field(default_factory=set)
    ended: set[str] = field(default_factory=set)

    def expect(self, message_id: str) -> None:
        """Wait for the end of another message, which other receivers may have ended before its sender heard of it."""
        if message_id not in self.ended:
            self.open.add(message_id)

    def end(self, message_id: str) -> None:
        """Note that a message has ended."""
        self.ended.add(message_id)
        self.open.discard(message_id)

    @property
    def is_done(self) -> bool:
        """Whether every message was sent and has ended."""
        return not self.to_send and not self.open


async def run(load: ClientLoad) -> None:
    """Send and receive until everything has ended. Raises `TimeoutError` where something never does."""
    progress = Progress([f"{load.name}-{number}" for number in range(load.messages)])
    progress.open.update(progress.to_send)
    rng = random.Random(load.name)
    async with RetryingClient(load.urls, load.queue, Path(load.log), keep_alive=load.keep_alive) as client:
        try:
            async with asyncio.timeout(load.limit_seconds), asyncio.TaskGroup() as tasks:
                for _ in range(load.senders):
                    tasks.create_task(_send(client, progress, random.Random(rng.random()), load.groups))
                for _ in range(load.receivers):
                    tasks.create_task(_receive(client, progress, ActionChooser(rng.random(), load.without)))
        except TimeoutError:
            print(
                f"these have not ended: {sorted(progress.open)}; {len(progress.to_send)} were not sent", file=sys.stderr
            )
            raise


async def _send(client: RetryingClient, progress: Progress, rng: random.Random, groups: int) -> None:
    while progress.to_send:
        message_id = progress.to_send.pop()
        group = {"group_id": f"g{rng.randrange(groups)}"} if groups else {}
        body = rng.randbytes(rng.randrange(MAX_BODY_BYTES))
        await client.send(message_id, body, with_key=rng.random() < 0.5, **group)


async def _receive(client: RetryingClient, progress: Progress, rng: ActionChooser) -> None:
    while not progress.is_done:
        max_messages = rng.choice((1, 1, 3, 8))
        for message in await client.receive(
            with_key=rng.random() < 0.5, max_messages=max_messages, wait_seconds=WAIT_SECONDS
        ):
            if await _handle(client, message, rng, progress):
                progress.end(message["message_id"])


async def _handle(client: RetryingClient, message: dict[str, Any], rng: ActionChooser, progress: Progress) -> bool:
    """Do a random action with a delivery; return whether the message has ended."""
    token = message["lock_token"]
    match rng.next_action():
        case action if action in WITH_SENDS and not message["message_id"].endswith(FOLLOWING):
            return await _complete_with_a_send(client, message, action, rng, progress)
        case "complete twice":
            await client.settle("complete", token)
        case "renew and complete":
            await client.settle("renew", token)
        case "renew while completing":
            return await _complete_while_renewing(client, token)
        case "dead_letter":
            return await _settle(client, "dead_letter", token, reason="set aside")
        case "abandon" | "release" as verb:
            await client.settle(verb, token)
            return False
        case "defer":
            return await _settle(client, "defer", token) and await _complete_deferred(
                client, message["sequence_number"]
            )
        case "forget":
            return False
        case "renew and forget":
            await client.settle("renew", token)
            return False
        case _:
            pass
    return await _settle(client, "complete", token)


async def _complete_with_a_send(
    client: RetryingClient, message: dict[str, Any], action: str, rng: random.Random, progress: Progress
) -> bool:
    """Complete a delivery together with a send; whether both took effect."""
    token, following, body = message["lock_token"], message["message_id"] + FOLLOWING, rng.randbytes(100)
    match action:
        case "complete and send":
            is_done = await client.complete_and_send(token, following, body) == OK
        case "commit a state":
            key = f"{client.queue}-{rng.randrange(STATES)}"
            is_done = await _commit_state(client, message, key, following, body)
        case _:
            rolls_back = action == "roll back a transaction"
            is_done = await _run_transaction(client, token, following, body, rolls_back=rolls_back)
    if is_done:
        progress.expect(following)
    return is_done


async def _commit_state(client: RetryingClient, message: dict[str, Any], key: str, following: str, body: bytes) -> bool:
    """Process a message with a state as it is before the message, again after a conflict; whether it has ended."""
    path = f"/v1/states/{key}?before_message={message['message_id']}"
    while True:
        _, state = await client.request("load", "GET", path)
        status, answer = await client.commit_with_state(message["lock_token"], key, state["version"], following, body)
        if answer.get("code") != "version-conflict":
            return status == OK


async def _run_transaction(
    client: RetryingClient, token: str, following: str, body: bytes, *, rolls_back: bool
) -> bool:
    """Complete a delivery together with a send in an open transaction; whether the message has ended."""
    status, opened = await client.request("open", "POST", "/v1/transactions", {"timeout_seconds": TRANSACTION_SECONDS})
    assert status == CREATED, opened
    transaction = {"transaction_id": opened["id"]}
    send = {"message_id": following, "body_base64": base64.b64encode(body).decode()}
    # A join whose answer was lost is repeated. The queue detects the duplicate at the commit.
    await client.request("join", "POST", "/messages", send | transaction)
    status, _ = await client.request("join", "POST", f"/locks/{token}/complete", transaction)
    if status == OK and not rolls_back:
        return await client.commit(opened["id"], token, following, body) == OK
    await client.request("roll back", "POST", f"/v1/transactions/{opened['id']}/rollback")
    # The lock lasts as long as the transaction would have.
    await client.settle("abandon", token, reason="not now")
    return False


async def _complete_deferred(client: RetryingClient, number: int) -> bool:
    """Fetch a deferred message by its number until it comes and is completed; no other client will."""
    while True:
        for message in await client.receive(with_key=False, sequence_numbers=[number]):
            if await _settle(client, "complete", message["lock_token"]):
                return True
        await asyncio.sleep(RETRY_SECONDS)


async def _complete_while_renewing(client: RetryingClient, token: str) -> bool:
    """Complete among renewals that go to other servers too, each of which writes SQL; whether the message has ended."""
    await client.settle("renew", token, lock_seconds=MAX_LEAD_SECONDS)
    async with asyncio.TaskGroup() as tasks:
        completion = tasks.create_task(_settle(client, "complete", token))
        for _ in range(2):
            tasks.create_task(_renew(client, token))
    return completion.result()


async def _renew(client: RetryingClient, token: str) -> None:
    """Renew a few times, as long as there is a lock."""
    for _ in range(4):
        status, _ = await client.settle("renew", token, lock_seconds=MAX_LEAD_SECONDS)
        if status != OK:
            return


async def _settle(client: RetryingClient, verb: str, token: str, **more: Any) -> bool:
    status, _ = await client.settle(verb, token, **more)
    return status == OK


if __name__ == "__main__":
    asyncio.run(run(ClientLoad(**json.loads(sys.argv[1]))))
