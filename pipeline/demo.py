"""Real traffic against a server of its own, then what the pipeline makes of it: a lake, an audit and a report."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shlex
import socket
import subprocess
import sys
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
PATIENCE_SECONDS = 120.0
BATCH = 50
WORKERS = 8
WAIT_SECONDS = 2
HURRY_SECONDS = 1
CUSTOMERS = 25

out = Console(highlight=False)


@dataclass(frozen=True, slots=True)
class Line:
    """One queue of the demo: how much goes in, how long work takes, and how often what goes wrong."""

    queue: str
    messages: int
    work_seconds: float
    fails: float = 0.0
    is_hopeless: float = 0.0
    vanishes: float = 0.0
    hurries: float = 0.0
    settings: Mapping[str, Any] = field(default_factory=dict)

    def reason(self, dice: random.Random) -> str:
        """Why a message cannot be processed, ever."""
        return dice.choice(("schema-mismatch", "unknown-customer", "unknown-customer", "address-not-found"))


LINES = (
    Line("orders", 1800, 0.01, fails=0.04, is_hopeless=0.004),
    Line("emails", 1200, 0.02, fails=0.22, is_hopeless=0.01, settings={"max_delivery_count": 4}),
    Line("invoices", 700, 0.03, fails=0.02, is_hopeless=0.05, hurries=0.05),
    Line("thumbnails", 500, 0.05, vanishes=0.08, settings={"lock_duration_seconds": 1}),
)


class Traffic:
    """Senders and workers of all lines against one server, until every message has ended or is set aside."""

    def __init__(self, url: str, log: Path, seed: int, scale: float = 1.0) -> None:
        self._url = url
        self._log = log
        self._seed = seed
        self._lines = [replace(line, messages=max(1, round(line.messages * scale))) for line in LINES]
        self.sent = 0
        self.open = 0

    async def run(self, progress: Progress) -> None:
        """Send everything and work it off."""
        total = sum(line.messages for line in self._lines)
        bar = progress.add_task("messages settled", total=total)
        async with httpx.AsyncClient(base_url=self._url, timeout=60) as client:
            for line in self._lines:
                await _expect(client.put(f"/v1/queues/{line.queue}", json=dict(line.settings)))
            self.open = total
            async with asyncio.TaskGroup() as tasks:
                for number, line in enumerate(self._lines):
                    tasks.create_task(self._send(client, line, random.Random(self._seed + number)))
                    for worker in range(WORKERS):
                        dice = random.Random(f"{self._seed} {line.queue} {worker}")
                        tasks.create_task(self._work(client, line, dice))
                tasks.create_task(self._watch(client, progress, bar, total))

    async def _send(self, client: httpx.AsyncClient, line: Line, dice: random.Random) -> None:
        for start in range(0, line.messages, BATCH):
            messages = [self._message(line, number, dice) for number in range(start, min(start + BATCH, line.messages))]
            await _expect(client.post(f"/v1/queues/{line.queue}/messages/batch", json={"messages": messages}))
            with self._log.open("a") as log:
                log.writelines(json.dumps({"message_id": message["message_id"]}) + "\n" for message in messages)
            self.sent += len(messages)
            await asyncio.sleep(dice.uniform(0.05, 0.3))

    @staticmethod
    def _message(line: Line, number: int, dice: random.Random) -> dict[str, Any]:
        """A message of one customer; one that hurries waits behind the others, and not for long."""
        hurry = {"ttl_seconds": HURRY_SECONDS, "priority": 0} if dice.random() < line.hurries else {}
        return {
            "message_id": f"{line.queue}-{number}",
            "group_id": f"customer-{dice.randrange(CUSTOMERS)}",
            "body": {"number": number, "amount": round(dice.lognormvariate(3, 1), 2)},
            "properties": {"region": dice.choice(("eu", "us", "apac")), "tenant": f"tenant-{dice.randrange(8)}"},
            "priority": dice.choice((4, 4, 4, 7)),
            **hurry,
        }

    async def _work(self, client: httpx.AsyncClient, line: Line, dice: random.Random) -> None:
        while self.open:
            wish = {"max_messages": 4, "wait_seconds": WAIT_SECONDS}
            answer = await _expect(client.post(f"/v1/queues/{line.queue}/messages/receive", json=wish))
            for message in answer["messages"]:
                await asyncio.sleep(dice.expovariate(1 / line.work_seconds))
                await self._settle(client, line, message["lock_token"], dice)

    @staticmethod
    async def _settle(client: httpx.AsyncClient, line: Line, token: str, dice: random.Random) -> None:
        lock, fate = f"/v1/queues/{line.queue}/locks/{token}", dice.random()
        if fate < line.is_hopeless:
            await client.post(f"{lock}/dead-letter", json={"reason": line.reason(dice)})
        elif fate < line.is_hopeless + line.fails:
            await client.post(f"{lock}/abandon", json={"reason": "the service behind it did not answer"})
        elif fate < line.is_hopeless + line.fails + line.vanishes:
            return  # as a worker does that is killed: its lock runs out
        else:
            await client.post(f"{lock}/complete")

    async def _watch(self, client: httpx.AsyncClient, progress: Progress, bar: Any, total: int) -> None:
        """Tell how much has ended, and the workers when nothing is left for them."""
        while self.open:
            await asyncio.sleep(0.5)
            page = await _expect(client.get("/v1/queues"))
            left = sum(
                queue["counts"][state] for queue in page["items"] for state in ("available", "scheduled", "locked")
            )
            self.open = total - self.sent + left
            progress.update(bar, completed=total - self.open)


async def _expect(asked: Any) -> dict[str, Any]:
    answer = await asked
    answer.raise_for_status()
    return dict(answer.json())


@contextmanager
def server(folder: Path) -> Iterator[str]:
    """A server with SQLite in a folder; its URL."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    environment = {
        **os.environ,
        "PEEKLOCK_PORT": str(port),
        "PEEKLOCK_DATA_DIR": str(folder),
        "PEEKLOCK_SEAL_INTERVAL_SECONDS": "1",
    }
    with (folder / "server.log").open("w") as log:
        process = subprocess.Popen([BIN / "peeklock", "serve"], env=environment, stdout=log, stderr=log)
        try:
            url = f"http://127.0.0.1:{port}"
            _until(lambda: httpx.get(f"{url}/readyz").is_success, "the server is ready")
            yield url
        finally:
            process.terminate()
            process.wait(PATIENCE_SECONDS)


def _until(come_true: Any, what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        try:
            if come_true():
                return
        except httpx.TransportError:
            pass
        time.sleep(0.2)
    raise SystemExit(f"It took too long until {what}.")


def sealed(url: str) -> int:
    """How many messages are in sealed batches."""
    page = httpx.get(f"{url}/v1/archive/batches", params={"limit": 1000}).raise_for_status().json()
    return sum(batch["row_count"] for batch in page["items"])


def set_aside(url: str) -> int:
    """How many messages are dead-lettered."""
    page = httpx.get(f"{url}/v1/queues").raise_for_status().json()
    return sum(queue["counts"]["dead_lettered"] for queue in page["items"])


def job(*words: str) -> None:
    """Run a job as a user would, but that Spark is started once for all; end with its exit status where it fails."""
    out.print(f"\n$ {shlex.join(('peeklock-pipeline', *words))}", style="bold", soft_wrap=True)
    try:
        cli.main(words)
    except SystemExit as end:
        if end.code:
            raise


def main(words: Sequence[str] | None = None) -> None:
    """Make traffic, export, audit, report; say where it all is."""
    parser = argparse.ArgumentParser(prog="dev.py pipeline-demo", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="a directory, made if need be")
    parser.add_argument("--seed", type=int, default=7, help="what chance begins with")
    parser.add_argument("--scale", type=float, default=1.0, help="how much of the traffic there is, 1 for all")
    options = parser.parse_args(words)
    folder: Path = options.out.absolute()
    lake, page, log = folder / "lake", folder / "report.html", folder / "sent.jsonl"
    if lake.exists():
        raise SystemExit(f"{lake} is there already: choose another directory, or remove it.")
    (folder / "server").mkdir(parents=True, exist_ok=True)
    database = f"sqlite:///{folder / 'server' / 'peeklock.db'}"
    with server(folder / "server") as url:
        traffic = Traffic(url, log, options.seed, options.scale)
        with Progress(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), console=out) as progress:
            asyncio.run(traffic.run(progress))
        _until(lambda: sealed(url) + set_aside(url) == traffic.sent, "everything is sealed")
        out.print(f"{traffic.sent} messages were sent; {set_aside(url)} of them are dead-lettered.")
        job("export", "--database-url", database, "--lake", str(lake))
        job("snapshot", "--database-url", database, "--lake", str(lake))
        job("audit", "--database-url", database, "--lake", str(lake), "--expect", str(log))
    job("report", "--lake", str(lake), "--out", str(page))
    out.print(f"\nThe lake is in {lake}, the report in {page}.", soft_wrap=True)


if __name__ == "__main__":
    main()
