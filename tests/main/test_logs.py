"""A server logs JSON objects with the id of the request, and nothing confidential."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import asyncpg

from tests.main.conftest import Serve
from tests.main.http_requests import send_request
from tests.peeklock_process import environment, run_peeklock
from tests.servers import TIMEOUT_SECONDS

BODY = "a-body-that-nobody-else-may-read"
OTHER_BODY = "another-body-of-the-same-kind"
KEY = "pk_a-key-that-nobody-else-may-ever-see-0123"


def test_logs_contain_no_bodies_tokens_or_keys(serve: Serve, empty_postgres_url: str, tmp_path: Path) -> None:
    assert run_peeklock("migrate", directory=tmp_path, database_url=empty_postgres_url).returncode == 0
    service = serve(log_level="debug", database_url=empty_postgres_url, bootstrap_key=KEY, auto_create_queues=1)
    key = {"authorization": f"Bearer {KEY}"}
    messages = "/v1/queues/private/messages"
    assert send_request(service, "POST", messages, {"body": BODY}, headers=key).status_code == 201
    received = send_request(service, "POST", f"{messages}/receive", {}, headers=key).json()["messages"]
    token = received[0]["lock_token"]
    for verb in ("renew", "complete", "abandon"):
        send_request(service, "POST", f"/v1/queues/private/locks/{token}/{verb}", {}, headers=key)
    send_request(service, "POST", messages, content=f'{{"body": "{BODY}', headers=key)

    asyncio.run(rename_table(empty_postgres_url))
    broken = send_request(
        service, "POST", messages, {"body": OTHER_BODY}, headers={**key, "x-request-id": "the-broken-one"}
    )
    assert (broken.status_code, broken.json()["code"]) == (500, "internal-error")
    send_request(service, "POST", f"/v1/queues/private/locks/{token}/complete", {}, headers=key)

    line, answered = [line for line in service.lines() if line.get("request_id") == "the-broken-one"]
    assert (line["level"], line["message"], line["operation"]) == ("error", "unexpected error", "send_message")
    assert line["exception"]
    assert (answered["level"], answered["operation"], answered["status"]) == ("debug", "send_message", 500)
    log = service.log()
    assert [secret for secret in (BODY, OTHER_BODY, KEY, token, token.partition(".")[2]) if secret in log] == []


def test_every_logger_uses_the_same_format(serve: Serve, tmp_path: Path) -> None:
    service = serve(data_dir=tmp_path / "to be migrated")
    lines = service.lines()
    assert {"uvicorn.error", "alembic.runtime.migration", "peeklock"} <= {line["logger"] for line in lines}
    assert all(line.keys() >= {"level", "logger", "timestamp", "message"} for line in lines)


def test_the_text_format_is_not_json_and_shows_lines_of_libraries_only_at_debug(tmp_path: Path) -> None:
    settings = {"log_format": "text", "host": "no.such.host.invalid", "insecure_no_auth": 1}
    for directory in ("quiet", "verbose"):
        (tmp_path / directory).mkdir()
    quiet = run_peeklock("serve", directory=tmp_path / "quiet", **settings).stderr
    assert quiet.startswith("Cannot listen on no.such.host.invalid")
    verbose = run_peeklock("serve", directory=tmp_path / "verbose", **settings, log_level="debug").stderr
    assert "[info" in verbose
    assert [line for line in verbose.splitlines() if line.startswith("{")] == []


NO_PREFLIGHT_SCRIPT = """
from app.logs import configure
from app.server.listening import bind, run
from app.settings import Settings

settings = Settings()
configure(settings.log_format, settings.log_level)
raise SystemExit(run(settings, bind(settings.host, settings.port), print))
"""


def test_a_server_that_cannot_open_its_backends_logs_why_and_fails(tmp_path: Path, postgres_url: str) -> None:
    for workers in (1, 2):
        settings = {"database_url": postgres_url, "redis_url": "gopher://host", "workers": workers, "port": 0}
        done = subprocess.run(
            [sys.executable, "-c", NO_PREFLIGHT_SCRIPT],
            cwd=tmp_path,
            env=environment(**settings),
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_SECONDS,
        )
        assert (done.returncode, done.stdout) == (3, "")
        lines = [json.loads(line) for line in done.stderr.splitlines()]
        (reason, *_) = [line["reason"] for line in lines if line["message"] == "cannot serve"]
        assert "redis://" in reason


async def rename_table(url: str) -> None:
    """Break the schema under the server, to cause an unexpected error."""
    connection = await asyncpg.connect(url)
    await connection.execute("ALTER TABLE message RENAME COLUMN priority TO urgency")
    await connection.close()
