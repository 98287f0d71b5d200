"""The AWS SDK for Go that Debian has, of 2022, speaks the query protocol with a server."""

from __future__ import annotations

from pathlib import Path

import pytest

from developing.machine import GO_LIBRARIES
from tests.sdks.made import printed
from tests.sqs_clients.signed_server import PROGRAMS, SignedServer, run


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """The compiled program. Go of Debian finds its libraries without a module proxy."""
    offline = {"GO111MODULE": "off", "GOPATH": f"{tmp_path}:{GO_LIBRARIES}", "GOFLAGS": "", "GOTOOLCHAIN": "local"}
    printed("go", "build", "-o", tmp_path / "program", PROGRAMS / "go/main.go", directory=tmp_path, **offline)
    return tmp_path / "program"


@pytest.mark.sdks
def test_messages_are_sent_received_and_deleted_in_the_query_protocol(server: SignedServer, program: Path) -> None:
    assert run(server.variables(), program) == {
        "body": True,
        "digests": True,
        "price": "1.10",
        "picture": "AP8=",
        "count": "2",
        "deleted": "held",
        "failed": ["stale", "ReceiptHandleIsInvalid"],
        "stale": True,
        "tags": {"team": "shop"},
        "listed": [f"{server.url}/000000000000/go"],
        "exists": True,
        "no queue": True,
    }
