"""Real servers of one or several processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.databases import RunResources
from tests.peeklock_process import PeeklockProcess

Serve = Callable[..., PeeklockProcess]

LONG_REDIS_TIMEOUT = {"redis_timeout_seconds": 10}
"""For a Redis that answers, however slowly: a busy machine is then not taken for a Redis that has failed."""


@pytest.fixture
def serve(run_resources: RunResources, tmp_path: Path) -> Iterator[Serve]:
    """Start servers: `serve(workers=2, redis_url=...)`."""
    services: list[PeeklockProcess] = []

    def start(*arguments: str, **settings: object) -> PeeklockProcess:
        directory = tmp_path / f"server-{len(services)}"
        directory.mkdir()
        services.append(PeeklockProcess(run_resources.with_tables(directory), *arguments, **settings))
        return services[-1]

    yield start
    for service in services:
        service.end()


@pytest.fixture
def two_process_server(serve: Serve, postgres_url: str, redis_url: str) -> PeeklockProcess:
    """One server of two processes over PostgreSQL and Redis."""
    return serve(workers=2, database_url=postgres_url, redis_url=redis_url, auto_create_queues=1, **LONG_REDIS_TIMEOUT)
