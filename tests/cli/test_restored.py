"""`peeklock restored` prepares the database of the settings, and refuses one that is served."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import redis

from tests.cli.conftest import run_command
from tests.peeklock_process import PeeklockProcess

SENTENCE = "All earlier lock records are invalid. The next message gets sequence number {} or higher. You can start the servers now."


def test_numbers_are_skipped_in_a_database_that_no_server_uses(
    serve: Callable[..., PeeklockProcess], tmp_path: Path
) -> None:
    done = run_command("restored", "--skip", "41", directory=tmp_path)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (0, SENTENCE.format(42))
    service = serve(auto_create_queues=1)
    sent = run_command("send", "orders", "text", "--json", directory=tmp_path, url=service.url)
    assert json.loads(sent.stdout)["sequence_number"] == 42


def test_a_database_that_a_server_uses_is_refused(serve: Callable[..., PeeklockProcess], tmp_path: Path) -> None:
    serve()
    done = run_command("restored", directory=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "is in use by process" in done.stderr


def test_a_server_on_a_database_that_is_behind_skips_numbers_and_logs_it(
    serve: Callable[..., PeeklockProcess], tmp_path: Path, redis_url: str
) -> None:
    run_command("migrate", directory=tmp_path)
    with sqlite3.connect(tmp_path / "data/peeklock.db") as database:
        ((identity,),) = database.execute("SELECT id FROM broker")
    with redis.Redis.from_url(redis_url) as seen:
        seen.hset("peeklock:seen", f"highest_number:{identity}", "41")
    service = serve(redis_url=redis_url, auto_create_queues=1)
    (line,) = [line for line in service.lines() if "next_number" in line]
    sent = run_command("send", "orders", "text", "--json", directory=tmp_path, url=service.url)
    assert json.loads(sent.stdout)["sequence_number"] == line["next_number"] > 41
