"""Loads of messages that are settled one by one: completed, completed after a send, or committed with a send and a state."""

import json
import secrets

from benchmarks.load import BODY, SEND_BODY, Connection, Target, expect_status

RESULTS = "results"
"""The queue of the sends."""

RECEIVED = 50


class Complete:
    """One message completed. The messages are sent and received fifty at a time, so that this is a small part."""

    def __init__(self) -> None:
        self._held: dict[Connection, list[str]] = {}

    async def __call__(self, connection: Connection, target: Target) -> int:
        """Settle one message."""
        held = self._held.setdefault(connection, [])
        if not held:
            held += await self._receive(connection, target)
        await self.settle(connection, target, held.pop())
        return 1

    async def settle(self, connection: Connection, target: Target, token: str) -> None:
        """Complete a message."""
        status, answer = await connection.call("POST", target.path(f"locks/{token}/complete"))
        expect_status(status, 200, answer)

    async def _receive(self, connection: Connection, target: Target) -> list[str]:
        body = json.dumps({"messages": [{"body": BODY}] * RECEIVED}).encode()
        status, answer = await connection.call("POST", target.path("messages/batch"), body)
        expect_status(status, 201, answer)
        wanted = json.dumps({"max_messages": RECEIVED, "lock_seconds": 3600}).encode()
        status, answer = await connection.call("POST", target.path("messages/receive"), wanted)
        expect_status(status, 200, answer)
        return [message["lock_token"] for message in json.loads(answer)["messages"]]


class SendAndComplete(Complete):
    """One message sent, and one completed."""

    async def settle(self, connection: Connection, target: Target, token: str) -> None:
        """Send a result, and complete the message."""
        status, answer = await connection.call("POST", f"/v1/queues/{RESULTS}/messages", SEND_BODY)
        expect_status(status, 201, answer)
        await super().settle(connection, target, token)


class Commit(Complete):
    """One message committed with a send and the next version of a state."""

    def __init__(self) -> None:
        super().__init__()
        self._versions: dict[Connection, tuple[str, int]] = {}

    async def settle(self, connection: Connection, target: Target, token: str) -> None:
        """Commit a message with a result and a version of the connection's state."""
        key, version = self._versions.get(connection) or (f"bench-{secrets.token_hex(8)}", 0)
        state = {"key": key, "if_version": version, "value": {"count": version}}
        body = json.dumps({"sends": [{"queue": RESULTS, "body": BODY}], "state": state}).encode()
        status, answer = await connection.call("POST", target.path(f"locks/{token}/commit"), body)
        expect_status(status, 200, answer)
        self._versions[connection] = key, version + 1
