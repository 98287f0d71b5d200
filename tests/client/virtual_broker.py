"""A server of one queue for workers in virtual time: it notes each request, and fails, forgets or is slow on demand."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
import msgspec
from peeklock_client import Client, NewMessage, RetryLimits, Worker
from peeklock_client.worker.report import WorkerReport

from tests.client.virtual_loop import run_virtually

LATENCY = 0.005
LOCK_SECONDS = 30
OUTCOMES = {
    "complete": "completed",
    "abandon": "abandoned",
    "dead_letter": "dead_lettered",
    "defer": "deferred",
    "release": "released",
}


@dataclass
class Broker:
    """Answers receives and settlements of one queue, and notes each request with its time."""

    stored: int
    requests: list[tuple[float, str, dict[str, Any]]] = field(default_factory=list)
    settled: list[tuple[str, str]] = field(default_factory=list)
    failing: set[str] = field(default_factory=set)
    silent: set[str] = field(default_factory=set)
    missed: list[dict[str, Any]] = field(default_factory=list)
    slow: float = LATENCY
    slow_to_cancel: float = 0
    renewed_seconds: float = LOCK_SECONDS
    forgets: set[str] = field(default_factory=set)
    fields: dict[str, Any] = field(default_factory=dict)
    groups: str = ""
    lock_ends: dict[str, float] = field(default_factory=dict)
    too_late: list[str] = field(default_factory=list)
    most_in_answer: int = 1000
    commits_now: int = 0
    most_commits: int = 0

    async def answer(self, request: httpx.Request) -> httpx.Response:
        body, kind = msgspec.json.decode(request.content), request.url.path.rsplit("/", 1)[-1]
        self.requests.append((asyncio.get_running_loop().time(), kind, body))
        if kind == "commit":
            return await self._commit()
        await asyncio.sleep(self.slow)
        if kind in self.silent:
            await asyncio.sleep(3600)
        if kind in self.failing:
            raise httpx.ReadError("cut off")
        results = [self._settle(one) for one in body.get("settlements", [])]
        if kind in self.forgets:
            results.clear()
        if kind == "settle":
            return httpx.Response(200, json={"results": results})
        if kind == "recover":
            missed, self.missed = self.missed, []
            return httpx.Response(200, json={"messages": missed})
        count = min(body["max_messages"], self.stored, self.most_in_answer)
        if not count:
            await self._wait(body["wait_seconds"])
        self.stored -= count
        messages = [next(self._messages) for _ in range(count)]
        now = asyncio.get_running_loop().time()
        self.lock_ends |= {one["lock_token"]: now + LOCK_SECONDS for one in messages}
        return httpx.Response(200, json={"messages": messages, "settled": results})

    def __post_init__(self) -> None:
        self._messages = (self._message(number) for number in itertools.count(1))

    def _message(self, number: int) -> dict[str, Any]:
        group = {"group_id": self.groups[number % len(self.groups)]} if self.groups else {}
        return message(number) | group | self.fields

    async def _wait(self, seconds: float) -> None:
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            await asyncio.sleep(self.slow_to_cancel)
            raise

    async def _commit(self) -> httpx.Response:
        self.commits_now += 1
        self.most_commits = max(self.most_commits, self.commits_now)
        await asyncio.sleep(self.slow)
        self.commits_now -= 1
        return httpx.Response(
            200, json={"outcome": "completed", "version": None, "sends": [], "replayed": False, "duplicate": False}
        )

    def _settle(self, settlement: dict[str, Any]) -> dict[str, Any]:
        token, action = settlement["lock_token"], settlement["action"]
        self.settled.append((token, action))
        now = asyncio.get_running_loop().time()
        if now >= self.lock_ends.get(token, now + 1):
            self.too_late.append(token)
        if action == "renew":
            self.lock_ends[token] = now + self.renewed_seconds
            locked = {"locked_until": "2026-01-01T00:00:00Z", "lock_remaining_ms": int(self.renewed_seconds * 1000)}
            return {"result": "renewed", "lock_token": token, **locked}
        return {
            "result": "settled",
            "outcome": OUTCOMES[action],
            "sequence_number": 1,
            "replayed": False,
            "lock_token": token,
        }

    def of_kind(self, kind: str) -> list[tuple[float, dict[str, Any]]]:
        return [(at, body) for at, one, body in self.requests if one == kind]


def message(number: int) -> dict[str, Any]:
    return {
        "sequence_number": number, "message_id": str(number), "state": "locked", "priority": 4, "body": number,
        "enqueued_at": "2026-01-01T00:00:00Z", "available_at": "2026-01-01T00:00:00Z", "delivery_count": 1,
        "failure_count": 0, "redelivered": False, "lock_token": f"{number}.t", "lock_remaining_ms": LOCK_SECONDS * 1000,
    }  # fmt: skip


def work(
    broker: Broker,
    seconds: float,
    until: float,
    watch: Callable[[int], None] | None = None,
    result: NewMessage | None = None,
    **options: Any,
) -> Any:
    """Let a worker whose handler takes this long run until a time, then stop it, and return its report."""

    async def scenario() -> Any:
        http = httpx.AsyncClient(transport=httpx.MockTransport(broker.answer))
        worker = Worker(Client("http://peeklock.test", http=http, retries=RetryLimits(attempts=2)))
        running = 0

        @worker.on("orders", **options)
        async def handle(body: int) -> NewMessage | None:
            nonlocal running
            running += 1
            if watch:
                watch(running)
            await asyncio.sleep(seconds)
            running -= 1
            return result

        await worker.start()
        await asyncio.sleep(until)
        return await worker.stop(60)

    return run_virtually(scenario())


def client_of(answer: Callable[[httpx.Request], Any], attempts: int = 2) -> Client:
    """Return a client whose requests this function answers."""
    http = httpx.AsyncClient(transport=httpx.MockTransport(answer))
    return Client("http://peeklock.test", http=http, retries=RetryLimits(attempts=attempts))


def other_tasks() -> list[asyncio.Task[Any]]:
    """Return the tasks that the worker of a scenario has left."""
    return [task for task in asyncio.all_tasks() if "peeklock_client" in repr(task)]


def run_worker(answer: Callable[[httpx.Request], Any], handler: Callable[..., Any], **options: Any) -> WorkerReport:
    """Let a worker run for a minute, stop it, and return its report. It leaves no task."""

    async def scenario() -> WorkerReport:
        worker = Worker(client_of(answer))
        worker.on("orders", **options)(handler)
        await worker.start()
        await asyncio.sleep(60)
        report = await worker.stop(1)
        assert not other_tasks()
        return report

    return run_virtually(scenario())


def refused(lock_token: str, status: int, code: str) -> dict[str, Any]:
    """Return the result of a settlement that is refused."""
    problem = {"type": "", "title": "", "status": status, "detail": "Because.", "code": code}
    return {
        "result": "refused",
        "lock_token": lock_token,
        "problem": {**problem, "tracking_id": "", "retryable": False},
    }
