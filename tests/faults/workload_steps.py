"""The steps that workloads of crash tests share: each is repeated until it is answered, and must succeed."""

from __future__ import annotations

from typing import Any

from tests.faults.retrying_client import RetryingClient

OK, CREATED, CONFLICT, GONE = 200, 201, 409, 410
"""The statuses of answers."""

LONG_LOCK_SECONDS = 60
"""Seconds of a lock that outlasts a restart."""


async def receive_one(client: RetryingClient) -> dict[str, Any]:
    """Receive one message."""
    (message,) = await client.receive_until_any(wait_seconds=5, lock_seconds=LONG_LOCK_SECONDS, max_messages=1)
    return message


async def settle(client: RetryingClient, verb: str, token: str, **more: Any) -> dict[str, Any]:
    """Settle or renew a delivery. Return the answer."""
    status, answer = await client.settle(verb, token, **more)
    assert status == OK, answer
    return answer


async def send_and_receive(client: RetryingClient, message_id: str, *, is_renewed: bool = False) -> str:
    """Send a message, receive it, and perhaps renew its lock. Return its lock token."""
    await client.send(message_id, b"body")
    token = (await receive_one(client))["lock_token"]
    if is_renewed:
        await settle(client, "renew", token, lock_seconds=LONG_LOCK_SECONDS)
    return token


async def complete_next(client: RetryingClient, message_id: str) -> None:
    """Receive the next message, which is this one, and complete it."""
    message = await receive_one(client)
    assert message["message_id"] == message_id
    await settle(client, "complete", message["lock_token"])
