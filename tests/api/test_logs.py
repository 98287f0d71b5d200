"""Log lines: one format for all loggers, and never the content of a message."""

import json
import subprocess
import sys

import pytest

FAILING_SCRIPT = """
import logging
import sys
import structlog
from app.logs import configure

configure(sys.argv[1], "info")

def divide(body, lock_token):
    raise ZeroDivisionError("no result")

try:
    divide(body=sys.argv[2], lock_token=sys.argv[3])
except ZeroDivisionError:
    structlog.get_logger("peeklock.api").exception("unexpected error", request_id="req-9")
logging.getLogger("another.library").warning("be warned")
logging.getLogger("another.library").debug("chatter")
"""
VALUES = ("private body", "private token")
"""Not in the script, because a traceback shows lines of source."""


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_traceback_shows_no_variables(log_format: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FAILING_SCRIPT, log_format, *VALUES], capture_output=True, text=True, check=True
    )
    assert done.stdout == ""
    assert "ZeroDivisionError: no result" in done.stderr
    assert "req-9" in done.stderr
    assert "be warned" in done.stderr
    assert "chatter" not in done.stderr
    assert not [value for value in VALUES if value in done.stderr]


def test_every_line_for_machines_is_json() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FAILING_SCRIPT, "json", *VALUES], capture_output=True, text=True, check=True
    )
    ours, theirs = (json.loads(line) for line in done.stderr.splitlines())
    assert (ours["level"], ours["logger"], ours["message"]) == ("error", "peeklock.api", "unexpected error")
    assert "ZeroDivisionError: no result" in ours["exception"]
    assert (theirs["level"], theirs["logger"], theirs["message"]) == ("warning", "another.library", "be warned")
