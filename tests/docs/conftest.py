"""Servers for the tests of the guides."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.databases import RunResources
from tests.peeklock_process import PeeklockProcess, services
from tests.reader import clone_that_runs


@pytest.fixture
def serve(run_resources: RunResources, tmp_path: Path) -> Iterator[Callable[..., PeeklockProcess]]:
    """Start servers in this test's directory: `serve("--workers=1", redis_url=...)`."""
    with services(run_resources.with_tables(tmp_path)) as start:
        yield start


@pytest.fixture
def serve_as_reader(run_resources: RunResources, tmp_path: Path) -> Iterator[Callable[..., PeeklockProcess]]:
    """Start servers as a page says: by `python3 dev.py run` in a fresh copy of the repository."""
    with services(run_resources.with_tables(tmp_path), clone_that_runs(run_resources)) as start:
        yield start
