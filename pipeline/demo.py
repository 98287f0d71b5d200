"""Runs real traffic against a new server, then the pipeline's export, snapshot, audit and report."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
from peeklock_pipeline import cli
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

BIN = Path(sys.executable).parent
TIMEOUT_SECONDS = 120.0
BATCH = 50
WORKERS = 8
WAIT_SECONDS = 2
TTL_SECONDS = 1
CUSTOMERS = 25

AGAIN = "queue = 'emails' and delivery_count > 2"
"""The messages that the guide sends again."""

out = Console(highlight=False)


@dataclass(frozen=True, slots=True)
class QueueProfile:
    """One queue of the demo: its number of messages, the duration of work, and the rate of each failure."""

    queue: str
    messages: int
    work_seconds: float
    failure_probability: float = 0.0
    poison_probability: float = 0.0
    vanish_probability: float = 0.0
    deadline_probability: float = 0.0
    settings: Mapping[str, Any] = field(default_factory=dict)

    def reason(self, rng: random.Random) -> str:
        """Return the reason for which a poison message can never be processed."""
        return rng.choice(("schema-mismatch", "unknown-customer", "unknown-customer", "address-not-found"))


QUEUE_PROFILES = (
    QueueProfile("orders", 1800, 0.01, failure_probability=0.04, poison_probability=0.004),
    QueueProfile(
        "emails", 1200, 0.02, failure_probability=0.22, poison_probability=0.01, settings={"max_delivery_count": 4}
    ),
    QueueProfile("invoices", 700, 0.03, failure_probability=0.02, poison_probability=0.05, deadline_probability=0.05),
    QueueProfile("thumbnails", 500, 0.05, vanish_probability=0.08, settings={"lock_duration_seconds": 1}),
)


class Traffic:
    """Senders and workers of all queues against one server, until every message has ended or is dead-lettered."""

    def __init__(self, url: str, log: Path, seed: int, scale: float = 1.0) -> None:
        self._url = url
        self._log = log
        self._seed = seed
        self._profiles = [
            replace(profile, messages=max(1, round(profile.messages * scale))) for profile in QUEUE_PROFILES
        ]
        self.sent = 0
        self.open = 0

    async def run(self, progress: Progress) -> None:
        """Send all messages and process them."""
        total = sum(profile.messages for profile in self._profiles)
        bar = progress.add_task("messages settled", total=total)
        async with httpx.AsyncClient(base_url=self._url, timeout=60, trust_env=False) as client:
            for profile in self._profiles:
                await _expect(client.put(f"/v1/queues/{profile.queue}", json=dict(profile.settings)))
            self.open = total
            async with asyncio.TaskGroup() as tasks:
                for number, profile in enumerate(self._profiles):
                    tasks.create_task(self._send(client, profile, random.Random(self._seed + number)))
                    for _ in range(WORKERS):
                        tasks.create_task(self._work(client, profile))
                tasks.create_task(self._watch(client, progress, bar, total))

    async def _send(self, client: httpx.AsyncClient, profile: QueueProfile, rng: random.Random) -> None:
        for start in range(0, profile.messages, BATCH):
            messages = [
                self._message(profile, number, rng) for number in range(start, min(start + BATCH, profile.messages))
            ]
            await _expect(client.post(f"/v1/queues/{profile.queue}/messages/batch", json={"messages": messages}))
            with self._log.open("a") as log:
                log.writelines(json.dumps({"message_id": message["message_id"]}) + "\n" for message in messages)
            self.sent += len(messages)
            await asyncio.sleep(rng.uniform(0.05, 0.3))

    @staticmethod
    def _message(profile: QueueProfile, number: int, rng: random.Random) -> dict[str, Any]:
        """Return a message of a customer. One with a deadline has a short time to live and the lowest priority."""
        deadline = {"ttl_seconds": TTL_SECONDS, "priority": 0} if rng.random() < profile.deadline_probability else {}
        return {
            "message_id": f"{profile.queue}-{number}",
            "group_id": f"customer-{rng.randrange(CUSTOMERS)}",
            "body": {"number": number, "amount": round(rng.lognormvariate(3, 1), 2)},
            "properties": {"region": rng.choice(("eu", "us", "apac")), "tenant": f"tenant-{rng.randrange(8)}"},
            "priority": rng.choice((4, 4, 4, 7)),
            **deadline,
        }

    async def _work(self, client: httpx.AsyncClient, profile: QueueProfile) -> None:
        """Process messages. What becomes of each delivery follows from the seed, not from the worker that takes it."""
        while self.open:
            receive_request = {"max_messages": 4, "wait_seconds": WAIT_SECONDS}
            answer = await _expect(client.post(f"/v1/queues/{profile.queue}/messages/receive", json=receive_request))
            for message in answer["messages"]:
                rng = random.Random(f"{self._seed} {message['message_id']} {message['delivery_count']}")
                await asyncio.sleep(rng.expovariate(1 / profile.work_seconds))
                await self._settle(client, profile, message["lock_token"], rng)

    @staticmethod
    async def _settle(client: httpx.AsyncClient, profile: QueueProfile, token: str, rng: random.Random) -> None:
        lock, draw = f"/v1/queues/{profile.queue}/locks/{token}", rng.random()
        if draw < profile.poison_probability:
            await client.post(f"{lock}/dead-letter", json={"reason": profile.reason(rng)})
        elif draw < profile.poison_probability + profile.failure_probability:
            await client.post(f"{lock}/abandon", json={"reason": "the service behind it did not answer"})
        elif draw < profile.poison_probability + profile.failure_probability + profile.vanish_probability:
            return  # like a worker that is killed: its lock runs out
        else:
            await client.post(f"{lock}/complete")

    async def _watch(self, client: httpx.AsyncClient, progress: Progress, bar: Any, total: int) -> None:
        """Report the progress, and set `open` to 0 when no message is left for the workers."""
        while self.open:
            await asyncio.sleep(0.5)
            page = await _expect(client.get("/v1/queues"))
            left = sum(
                queue["counts"][state]
                for queue in page["items"]
                for state in ("available", "blocked", "scheduled", "locked")
            )
            self.open = total - self.sent + left
            progress.update(bar, completed=total - self.open)


async def _expect(request: Any) -> dict[str, Any]:
    answer = await request
    answer.raise_for_status()
    return dict(answer.json())


@contextmanager
def server(folder: Path) -> Iterator[str]:
    """Run a server with SQLite in a folder, and yield its URL."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    environment = {
        **os.environ,
        "PEEKLOCK_PORT": str(port),
        "PEEKLOCK_DATA_DIR": str(folder),
        "PEEKLOCK_SEAL_INTERVAL_SECONDS": "1",
    }
    with (folder / "server.log").open("w") as log:
        # In a session of its own, so that Ctrl-C reaches only this process, which then stops the server.
        process = subprocess.Popen(
            [BIN / "peeklock", "serve"], env=environment, stdout=log, stderr=log, start_new_session=True
        )
        try:
            url = f"http://127.0.0.1:{port}"
            _until(lambda: httpx.get(f"{url}/readyz", trust_env=False).is_success, "the server is ready")
            yield url
        finally:
            process.terminate()
            process.wait(TIMEOUT_SECONDS)


def _until(condition: Any, what: str) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        try:
            if condition():
                return
        except httpx.TransportError:
            pass
        time.sleep(0.2)
    raise SystemExit(f"It took too long until {what}.")


def sealed(url: str) -> int:
    """Return the number of messages in sealed batches."""
    page = httpx.get(f"{url}/v1/archive/batches", params={"limit": 1000}, trust_env=False).raise_for_status().json()
    return sum(batch["row_count"] for batch in page["items"])


def dead_lettered(url: str) -> int:
    """Return the number of dead-lettered messages."""
    page = httpx.get(f"{url}/v1/queues", trust_env=False).raise_for_status().json()
    return sum(queue["counts"]["dead_lettered"] for queue in page["items"])


def run_job(*arguments: str) -> None:
    """Run a job in this process, so that Spark starts once for all jobs. Exits with the status of a failed job."""
    out.print(f"\n$ {shlex.join(('peeklock-pipeline', *arguments))}", style="bold", soft_wrap=True)
    try:
        cli.main(arguments)
    except SystemExit as end:
        if end.code:
            raise


def keep_server(url: str, database: str, lake: Path) -> None:
    """Print the commands of the guide that need a server, and wait for Ctrl-C or SIGTERM."""
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    replay = f'peeklock-pipeline replay --lake {shlex.quote(str(lake))} --to again --where "{AGAIN}"'
    commands = (
        f"export PATH={shlex.quote(str(BIN))}:$PATH PEEKLOCK_URL={url} PEEKLOCK_DATABASE_URL={shlex.quote(database)}",
        "peeklock queue create again --duplicate-detection-window-seconds 3600",
        f"{replay} --plan",
        f"{replay} --rate 200",
        f"peeklock-pipeline trim --lake {shlex.quote(str(lake))} --older-than 1d",
    )
    out.print(f"\nThe server still runs at {url}. Type these commands in another terminal:\n", soft_wrap=True)
    for command in commands:
        out.print(command, markup=False, soft_wrap=True)
    out.print("\nCtrl-C stops the server.")
    stopped.wait()


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of the demo."""
    parser = argparse.ArgumentParser(prog="dev.py pipeline-demo", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="a directory; created if it does not exist")
    parser.add_argument("--seed", type=int, default=7, help="the seed of the random numbers")
    parser.add_argument("--scale", type=float, default=1.0, help="the share of the traffic, 1 for all of it")
    parser.add_argument("--keep", action="store_true", help="leave the server running until Ctrl-C")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Make traffic, export, audit and report. Print the paths of the lake and the report."""
    options = parse(arguments)
    folder: Path = options.out.absolute()
    lake, page, log = folder / "lake", folder / "report.html", folder / "sent.jsonl"
    if lake.exists():
        raise SystemExit(f"{lake} already exists: choose another directory, or remove it.")
    (folder / "server").mkdir(parents=True, exist_ok=True)
    database = f"sqlite:///{folder / 'server' / 'peeklock.db'}"
    with server(folder / "server") as url:
        traffic = Traffic(url, log, options.seed, options.scale)
        with Progress(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), console=out) as progress:
            asyncio.run(traffic.run(progress))
        _until(lambda: sealed(url) + dead_lettered(url) == traffic.sent, "everything is sealed")
        out.print(f"{traffic.sent} messages were sent; {dead_lettered(url)} of them are dead-lettered.")
        run_job("export", "--database-url", database, "--lake", str(lake))
        run_job("snapshot", "--database-url", database, "--lake", str(lake))
        run_job("audit", "--database-url", database, "--lake", str(lake), "--expect", str(log))
        run_job("report", "--lake", str(lake), "--out", str(page))
        out.print(f"\nThe lake is in {lake}, the report in {page}.", soft_wrap=True)
        if options.keep:
            keep_server(url, database, lake)


if __name__ == "__main__":
    main()
