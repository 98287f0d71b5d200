"""The fixtures. pytest imports this module in every run, so it imports nothing of the server."""

from collections.abc import Generator

import pytest

from pytest_peeklock.server import Peeklock, ServerProcess


@pytest.fixture(scope="session")
def peeklock_server() -> Generator[ServerProcess]:
    """A Peeklock server on loopback with its data in memory, for all tests of this process."""
    with ServerProcess() as server:
        yield server


@pytest.fixture
def peeklock(peeklock_server: ServerProcess, monkeypatch: pytest.MonkeyPatch) -> Generator[Peeklock]:
    """A server without data, for this test. `PEEKLOCK_URL` is its URL, and `PEEKLOCK_API_KEY` is not set."""
    monkeypatch.setenv("PEEKLOCK_URL", peeklock_server.url)
    monkeypatch.delenv("PEEKLOCK_API_KEY", raising=False)
    peeklock_server.call("reset")
    yield Peeklock(peeklock_server)
    peeklock_server.call("reset")
