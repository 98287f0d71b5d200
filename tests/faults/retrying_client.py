"""A client that retries: every request is recorded, and repeated under the same key or token until it is answered."""

from __future__ import annotations

import asyncio
import base64
import itertools
import secrets
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from tests.faults.database_access import digest
from tests.faults.journal import NO_ANSWER, Journal
from tests.faults.polling import TIMEOUT_SECONDS

RETRY_SECONDS = 0.1
"""Seconds before a repeat, so that an unreachable server is not flooded."""

ANSWER_TIMEOUT_SECONDS = 15.0
"""Seconds after which the client abandons an attempt without an answer."""


class NotAnswered(Exception):
    """The service did not answer a request, although it was repeated."""


class RetryingClient:
    """Speaks to one queue through several servers in turn. A refusal is an answer; a 5xx or a lost connection is none."""

    def __init__(self, urls: Sequence[str], queue: str, log: Path, *, keep_alive: bool = True) -> None:
        self.journal = Journal(log)
        self.queue = queue
        self._path = f"/v1/queues/{queue}"
        self._urls = itertools.cycle(urls)
        limits = httpx.Limits(max_keepalive_connections=None if keep_alive else 0)
        self._client = httpx.AsyncClient(timeout=ANSWER_TIMEOUT_SECONDS, limits=limits)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.aclose()
        self.journal.close()

    # ---- verbs -------------------------------------------------------------------------------------------------------

    async def create_queue(self, **settings: Any) -> None:
        """Make the queue, or give it these settings."""
        status, answer = await self._repeat_until_answered("create", "", settings, {}, method="PUT")
        assert status in (200, 201), answer

    async def send(self, message_id: str, body: bytes, *, with_key: bool = True, **more: Any) -> int:
        """Send until acknowledged; returns the sequence number. Without a key the queue must detect duplicates."""
        payload = {"message_id": message_id, "body_base64": base64.b64encode(body).decode(), **more}
        headers = {"Idempotency-Key": f"send-{message_id}"} if with_key else {}
        asked = {"message_id": message_id, "digest": digest(body), "group": more.get("group_id")}
        status, answer = await self._repeat_until_answered("send", "/messages", payload, asked, headers)
        assert status == 201, answer
        return answer["sequence_number"]

    async def receive(self, *, with_key: bool = True, **receive_request: Any) -> list[dict[str, Any]]:
        """Receive once, repeating until it is answered: the messages, perhaps none."""
        headers = {"Idempotency-Key": f"receive-{secrets.token_hex(8)}"} if with_key else {}
        status, answer = await self._repeat_until_answered("receive", "/messages/receive", receive_request, {}, headers)
        assert status == 200, answer
        return answer["messages"]

    async def receive_until_any(self, **receive_request: Any) -> list[dict[str, Any]]:
        """Receive until at least one message is delivered."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not (messages := await self.receive(**receive_request)):
            if time.monotonic() > deadline:
                raise NotAnswered(f"nothing has come of {receive_request}")
            await asyncio.sleep(RETRY_SECONDS)
        return messages

    async def settle(self, verb: str, token: str, **more: Any) -> tuple[int, dict[str, Any]]:
        """Complete, abandon, release, dead-letter, defer or renew, repeating until it is answered or refused."""
        path = f"/locks/{token}/{verb.replace('_', '-')}"
        return await self._repeat_until_answered(verb, path, more, {"token": token})

    async def complete_and_send(self, token: str, message_id: str, body: bytes) -> int:
        """Complete a delivery and send another message in one request, until it is answered; returns the status."""
        payload = {
            "settlements": [{"queue": self.queue, "lock_token": token, "action": "complete"}],
            "sends": [{"queue": self.queue, "message_id": message_id, "body_base64": base64.b64encode(body).decode()}],
        }
        asked = {"token": token, "message_id": message_id, "digest": digest(body)}
        headers = {"Idempotency-Key": f"execute-{token}"}
        path = "/v1/transactions/execute"
        return (await self._repeat_until_answered("execute", path, payload, asked, headers))[0]

    async def commit(self, transaction_id: str, token: str, message_id: str, body: bytes) -> int:
        """Commit a transaction that completes this delivery and sends this message; returns the status."""
        asked = {"token": token, "message_id": message_id, "digest": digest(body)}
        path = f"/v1/transactions/{transaction_id}/commit"
        return (await self._repeat_until_answered("execute", path, {}, asked))[0]

    async def commit_with_state(
        self, token: str, key: str, if_version: int, message_id: str, body: bytes
    ) -> tuple[int, dict[str, Any]]:
        """Complete a delivery, send a message and add a version to a state, until it is answered."""
        send = {"queue": self.queue, "message_id": message_id, "body_base64": base64.b64encode(body).decode()}
        payload = {"sends": [send], "state": {"key": key, "if_version": if_version, "value": message_id}}
        asked = {"token": token, "message_id": message_id, "digest": digest(body), "state": key}
        return await self._repeat_until_answered("execute", f"/locks/{token}/commit", payload, asked)

    async def publish(self, topic: str, message_id: str, body: bytes) -> int:
        """Publish a message, until it is answered; returns the status."""
        payload = {"message_id": message_id, "body_base64": base64.b64encode(body).decode()}
        asked = {"message_id": message_id, "digest": digest(body)}
        headers = {"Idempotency-Key": f"publish-{message_id}"}
        path = f"/v1/topics/{topic}/messages"
        return (await self._repeat_until_answered("publish", path, payload, asked, headers))[0]

    async def request(
        self, verb: str, method: str, path: str, payload: Any = None, headers: Any = None
    ) -> tuple[int, dict[str, Any]]:
        """Send any other request, unknown to the checker, repeating until it is answered or refused.

        The path begins at the queue, or with `/v1/`.
        """
        return await self._repeat_until_answered(verb, path, payload, {}, headers, method)

    # ---- repetition
    # ----------------------------------------------------------------------------------------------------

    async def _repeat_until_answered(
        self, verb: str, path: str, payload: Any, asked: dict[str, Any], headers: Any = None, method: str = "POST"
    ) -> tuple[int, dict[str, Any]]:
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while True:
            status, answer = await self._attempt(verb, method, path, payload, asked, headers)
            if 0 < status < 500 and status != 429 and answer.get("code") != "request-in-progress":
                return status, answer
            if time.monotonic() > deadline:
                raise NotAnswered(f"{verb} {path}: {status} {answer}")
            await asyncio.sleep(RETRY_SECONDS)

    async def _attempt(
        self, verb: str, method: str, path: str, payload: Any, asked: dict[str, Any], headers: Any
    ) -> tuple[int, dict[str, Any]]:
        number = self.journal.record_request(verb, **asked)
        try:
            url = next(self._urls) + (path if path.startswith("/v1/") else self._path + path)
            reply = await self._client.request(method, url, json=payload, headers=headers)
            status, answer = reply.status_code, reply.json() if reply.content else {}
        except httpx.TransportError as error:
            status, answer = NO_ANSWER, {"error": type(error).__name__}
        self.journal.record_answer(number, status, logged_answer(verb, answer) if 200 <= status < 300 else answer)
        return status, answer


def logged_answer(verb: str, answer: dict[str, Any]) -> dict[str, Any]:
    """What the checker needs of an answer."""
    match verb:
        case "receive":
            return {"messages": [_delivery(message) for message in answer["messages"]]}
        case "renew":
            return {"remaining": answer["lock_remaining_ms"] / 1000}
        case "execute":
            wanted = {name: answer[name] for name in ("version", "duplicate") if name in answer}
            return {"sequence_number": answer["sends"][0]["sequence_number"], **wanted}
        case _:
            return answer


def _delivery(message: dict[str, Any]) -> dict[str, Any]:
    return {
        "message_id": message["message_id"],
        "sequence_number": message["sequence_number"],
        "digest": digest(base64.b64decode(message["body_base64"])),
        "token": message["lock_token"],
        "claimed": message["delivery_count"],
        "remaining": message["lock_remaining_ms"] / 1000,
    }
