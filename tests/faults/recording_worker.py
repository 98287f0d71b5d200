"""A worker of peeklock-client in a process of its own: `python -m tests.faults.recording_worker URL QUEUE LOG`.

Its log holds every receive, settlement and renewal in the format of the checker.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import Any

import httpx
from peeklock_client import Client, Worker

from tests.faults.journal import NO_ANSWER, Journal
from tests.faults.retrying_client import logged_answer

LOCK_SECONDS = 3
SECONDS_OF_A_MESSAGE = 0.02


class RecordingTransport(httpx.AsyncBaseTransport):
    """Sends requests, and records each receive and each settlement that they carry."""

    def __init__(self, log: Path) -> None:
        self._journal = Journal(log)
        self._transport = httpx.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        asked = json.loads(request.content)
        settlements = [
            self._journal.record_request(one["action"], token=one["lock_token"]) for one in asked.get("settlements", [])
        ]
        receives = [self._journal.record_request("receive")] if request.url.path.endswith("/receive") else []
        try:
            response = await self._transport.handle_async_request(request)
            await response.aread()
        except httpx.TransportError:
            for number in (*receives, *settlements):
                self._journal.record_answer(number, NO_ANSWER, {})
            raise
        self._record_answers(receives, settlements, response.status_code, response.json())
        return response

    def _record_answers(self, receives: list[int], settlements: list[int], status: int, answer: dict[str, Any]) -> None:
        if status != httpx.codes.OK:
            for number in (*receives, *settlements):
                self._journal.record_answer(number, status, answer)
            return
        for number in receives:
            self._journal.record_answer(number, status, logged_answer("receive", answer))
        for number, result in zip(settlements, answer.get("settled", answer.get("results", [])), strict=True):
            match result:
                case {"result": "refused", "problem": problem}:
                    self._journal.record_answer(number, problem["status"], problem)
                case {"result": "renewed"}:
                    self._journal.record_answer(number, status, logged_answer("renew", result))
                case _:
                    self._journal.record_answer(number, status, result)

    async def aclose(self) -> None:
        await self._transport.aclose()
        self._journal.close()


async def main(url: str, queue: str, log: str) -> None:
    """Work until SIGTERM."""
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    async with httpx.AsyncClient(transport=RecordingTransport(Path(log))) as http, Client(url, http=http) as client:
        worker = Worker(client)

        @worker.on(queue, lock_seconds=LOCK_SECONDS, max_workers=5, fetch_batch_size=20)
        async def handle(body: bytes) -> None:
            await asyncio.sleep(SECONDS_OF_A_MESSAGE)

        await worker.start()
        await stopping.wait()
        await worker.stop()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
