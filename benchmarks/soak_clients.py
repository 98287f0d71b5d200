"""The clients of a soak: one of the native API and one of SQS, which receive each other's messages."""

import json
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, ClassVar
from uuid import UUID

from benchmarks.load import SEND_BODY, Connection, Target, expect_status
from benchmarks.soak_load import LOCK_SECONDS, Delivery, MessageLog, SoakClient, Steps
from benchmarks.sqs_load import SEND, SqsTarget

LOST_LOCK = 410
LAST_BITS = (1 << 62) - 1


class NativeClient(SoakClient):
    """A caller of the native API."""

    interface = "native"
    ways: ClassVar[Mapping[Steps, int]] = {
        ("complete",): 88,
        ("renew", "complete"): 4,
        ("abandon",): 3,
        ("dead-letter",): 2,
        ("defer",): 1,
        (): 2,
    }
    completion = "complete"

    def __init__(self, connection: Connection, target: Target, message_log: MessageLog, rng: Random) -> None:
        super().__init__(message_log, rng)
        self._connection = connection
        self._target = target

    async def _send(self) -> int:
        status, answer = await self._post("messages", SEND_BODY)
        expect_status(status, 201, answer)
        number: int = json.loads(answer)["sequence_number"]
        return number

    async def _receive(self) -> Sequence[Delivery]:
        status, answer = await self._post("messages/receive", b'{"max_messages": 2}')
        expect_status(status, 200, answer)
        return [
            Delivery(message["sequence_number"], message["lock_token"]) for message in json.loads(answer)["messages"]
        ]

    async def _take(self, step: str, token: str) -> bool:
        status, answer = await self._post(f"locks/{token}/{step}", b"")
        if status == LOST_LOCK:
            return False
        expect_status(status, 200, answer)
        return True

    async def _post(self, path: str, body: bytes) -> tuple[int, bytes]:
        return await self._timed(self._connection.call("POST", self._target.path(path), body))


class SqsClient(SoakClient):
    """A caller of the SQS interface."""

    interface = "SQS"
    ways: ClassVar[Mapping[Steps, int]] = {
        ("delete",): 88,
        ("lengthen", "delete"): 3,
        ("shorten", "delete"): 3,
        ("abandon",): 3,
        (): 3,
    }
    completion = "delete"
    requests: ClassVar[Mapping[str, tuple[str, Mapping[str, Any]]]] = {
        "delete": ("DeleteMessage", {}),
        "lengthen": ("ChangeMessageVisibility", {"VisibilityTimeout": 2 * LOCK_SECONDS}),
        "shorten": ("ChangeMessageVisibility", {"VisibilityTimeout": LOCK_SECONDS // 2}),
        "abandon": ("ChangeMessageVisibility", {"VisibilityTimeout": 0}),
    }
    """By step: the action and its members beside the receipt handle."""

    def __init__(self, connection: Connection, target: SqsTarget, message_log: MessageLog, rng: Random) -> None:
        """Make the form of every action before the load begins, because that takes botocore a while."""
        super().__init__(message_log, rng)
        self._connection = connection
        self._target = target
        for action in ("SendMessage", "ReceiveMessage", *(action for action, _ in self.requests.values())):
            target.form(action)

    async def _send(self) -> int:
        status, answer = await self._ask("SendMessage", SEND)
        expect_status(status, 200, answer)
        return sequence_number(json.loads(answer)["MessageId"])

    async def _receive(self) -> Sequence[Delivery]:
        status, answer = await self._ask("ReceiveMessage", {"MaxNumberOfMessages": 2})
        expect_status(status, 200, answer)
        return [
            Delivery(sequence_number(message["MessageId"]), message["ReceiptHandle"])
            for message in json.loads(answer).get("Messages", ())
        ]

    async def _take(self, step: str, token: str) -> bool:
        action, members = self.requests[step]
        status, answer = await self._ask(action, {"ReceiptHandle": token, **members})
        if status == 400 and json.loads(answer)["__type"].endswith("#ReceiptHandleIsInvalid"):
            return False
        expect_status(status, 200, answer)
        return True

    async def _ask(self, action: str, members: Mapping[str, Any]) -> tuple[int, bytes]:
        return await self._timed(self._connection.exchange(self._target.request(action, members)))


def sequence_number(message_id: str) -> int:
    """Return the sequence number that is in the MessageId of SQS."""
    return UUID(message_id).int & LAST_BITS
