"""A process that takes the place of a dead one may need longer to start than a living one may need to answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.main.conftest import LONG_REDIS_TIMEOUT, Serve
from tests.main.http_requests import wait_until
from tests.main.test_metrics import workers

SLOW_START = """
import sys, time
from pathlib import Path
if "spawn_main" in sys.orig_argv[-2] + sys.orig_argv[-1] and Path({mark!r}).exists():
    time.sleep(7)  # two seconds longer than the parent waits for the answer of a process
"""


def test_a_process_that_starts_slowly_is_not_replaced_again(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, postgres_url: str, redis_url: str
) -> None:
    mark = tmp_path / "busy"
    (tmp_path / "sitecustomize.py").write_text(SLOW_START.format(mark=str(mark)))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    service = serve(workers=2, database_url=postgres_url, redis_url=redis_url, **LONG_REDIS_TIMEOUT)
    dead, living = workers(service)
    mark.touch()
    dead.kill()

    def replacements() -> set[int]:
        return {worker.pid for worker in workers(service)} - {dead.pid, living.pid}

    wait_until(replacements, "another process has taken its place")
    (pid,) = replacements()
    ends = (f"Started server process [{pid}]", f"Child process [{pid}] died")
    wait_until(lambda: any(end in service.log() for end in ends), "it serves, or is replaced")
    assert ends[1] not in service.log()
