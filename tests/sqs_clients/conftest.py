"""The server of each module, which refuses requests without a signature."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.databases import RunResources
from tests.peeklock_process import services
from tests.sqs_clients.signed_server import SignedServer, signed_server


@pytest.fixture(scope="module")
def server(run_resources: RunResources, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SignedServer]:
    """A server for the tests of a module."""
    with services(run_resources.with_tables(tmp_path_factory.mktemp("server"))) as start:
        yield signed_server(start)
