"""`peeklock capabilities` at a real server."""

from __future__ import annotations

import app
from app.store.revisions import revisions
from tests.cli.conftest import CommandLine


def test_the_capabilities_of_a_server_are_shown(command_line: CommandLine) -> None:
    (offered,) = command_line.read_json("capabilities")
    assert offered["store"] == {
        "engine": "sqlite",
        "durable": True,
        "replicated": False,
        "accepts_durable_messages": True,
        "risks": [],
    }
    assert offered["limits"]["max_queues"] == 1000

    rows = [line.split() for line in command_line.run_ok("capabilities").splitlines()]
    assert ["versions.server", app.__version__] in rows
    assert ["versions.schema", revisions()[-1]] in rows
    assert ["store.durable", "yes"] in rows
    assert ["transactions", "yes"] in rows
