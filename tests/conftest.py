"""Provides real servers and new databases for tests, and prints which servers were used."""

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests import processor_time
from tests.databases import RunResources
from tests.servers import KINDS, ServerProcess
from tests.tiers import TIERS, tier_of

RUN_KEY = pytest.StashKey[RunResources]()
LONG_TIMEOUT_SECONDS = 900  # for a test that waits for several servers, each up to a minute and a half
SHARED_RUN_VARIABLE = "PEEKLOCK_TEST_RUN"  # names the shared directory to the other processes of this run


GENERATOR_WARNINGS = "warnings of generators"
"""The section and the property of a test with a line for each generator of SDKs."""

PATIENT = "patient"
"""The profile of Hypothesis for a busy machine, which makes no example too slow."""
settings.register_profile(PATIENT, deadline=None, suppress_health_check=[HealthCheck.too_slow])
if settings.get_current_profile_name() == "default":
    settings.load_profile(PATIENT)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of `dev.py test`."""
    parser.addoption("--without", action="append", default=[], choices=list(KINDS), help="leave this server out")
    parser.addoption("--tier", choices=TIERS, default="full", help="run the tests of this tier and of those before it")
    parser.addoption("--screenshots", action="store_true", help="make the images of docs/images again")
    parser.addoption("--sdks", action="store_true", help="run the tests of SDKs that need a JDK and Go")


def pytest_configure(config: pytest.Config) -> None:
    """Start the test run, or join it as a worker."""
    config.stash[RUN_KEY] = (
        RunResources(Path(os.environ[SHARED_RUN_VARIABLE])) if _is_worker(config) else RunResources.begin()
    )
    os.environ[SHARED_RUN_VARIABLE] = str(config.stash[RUN_KEY].directory)
    config.pluginmanager.register(processor_time)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop the servers that the run has started."""
    if not _is_worker(config):
        config.stash[RUN_KEY].end()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests that an option would select, and raise the timeouts of fault tests."""
    for item in items:
        if item.get_closest_marker("faults"):
            item.add_marker(pytest.mark.timeout(LONG_TIMEOUT_SECONDS))
    kept: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        (left_out if _is_left_out(item, config) else kept).append(item)
    config.hook.pytest_deselected(items=left_out)
    items[:] = kept


def pytest_collection_finish() -> None:
    """Keep the garbage collector from searching the collected tests: some tests collect garbage often."""
    gc.collect()
    gc.freeze()


def _is_left_out(item: pytest.Item, config: pytest.Config) -> bool:
    if item.get_closest_marker("sdks") and not config.getoption("--sdks"):
        return True
    return tier_of(item) > TIERS[str(config.getoption("--tier"))]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the servers that the tests used, and what the generators of SDKs warned of."""
    used = {found.kind: str(found) for found in config.stash[RUN_KEY].found()}
    terminalreporter.section("servers")
    for kind, server in KINDS.items():
        left_out = f"left out by --without={kind}" if kind in _left_out(config) else "not needed"
        terminalreporter.write_line(f"{server.title}: {used.get(kind, left_out)}")
    terminalreporter.write_line(f"tier: {config.getoption('--tier')}")
    reports = (report for outcome in ("passed", "failed") for report in terminalreporter.getreports(outcome))
    if rows := {text for report in reports for name, text in report.user_properties if name == GENERATOR_WARNINGS}:
        terminalreporter.section(GENERATOR_WARNINGS)
        for row in sorted(rows):
            terminalreporter.write_line(row)


def _left_out(config: pytest.Config) -> list[str]:
    return config.getoption("--without") or []


def _is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


# ---- servers and databases -------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def run_resources(pytestconfig: pytest.Config) -> RunResources:
    """Return the resources that the processes of this test run share."""
    return pytestconfig.stash[RUN_KEY]


@pytest.fixture(scope="session")
def require_server(pytestconfig: pytest.Config) -> Callable[[str], str]:
    """Return a kind of server, or skip the test if the command line excludes that kind."""

    def pass_or_skip(kind: str) -> str:
        if kind in _left_out(pytestconfig):
            pytest.skip(f"left out by --without={kind}")
        return kind

    return pass_or_skip


@pytest.fixture(scope="module")
def postgres_url(run_resources: RunResources, require_server: Callable[[str], str]) -> Iterator[str]:
    """A migrated PostgreSQL database for this module alone."""
    with run_resources.migrated_database(require_server("postgresql")) as url:
        yield url


@pytest.fixture(scope="module")
def mariadb_url(run_resources: RunResources, require_server: Callable[[str], str]) -> Iterator[str]:
    """A migrated MariaDB or MySQL database for this module alone."""
    with run_resources.migrated_database(require_server("mariadb")) as url:
        yield url


@pytest.fixture(scope="module")
def sqlite_url(run_resources: RunResources, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A migrated SQLite file for this module alone."""
    return f"sqlite:///{shutil.copy(run_resources.sqlite_template(), tmp_path_factory.mktemp('sqlite') / 'peeklock.sqlite3')}"


@pytest.fixture(scope="module")
def empty_postgres_url(run_resources: RunResources, require_server: Callable[[str], str]) -> Iterator[str]:
    """A PostgreSQL database without tables."""
    with run_resources.empty_database(require_server("postgresql")) as url:
        yield url


@pytest.fixture(scope="module")
def empty_mariadb_url(run_resources: RunResources, require_server: Callable[[str], str]) -> Iterator[str]:
    """A MariaDB or MySQL database without tables."""
    with run_resources.empty_database(require_server("mariadb")) as url:
        yield url


@pytest.fixture(scope="module")
def redis_url(run_resources: RunResources, require_server: Callable[[str], str]) -> Iterator[str]:
    """An empty numbered Redis database for this module alone; FLUSHALL is for private servers only."""
    with run_resources.empty_database(require_server("redis")) as url:
        yield url


@pytest.fixture
def private_server(
    run_resources: RunResources, require_server: Callable[[str], str]
) -> Iterator[Callable[..., ServerProcess]]:
    """Start servers that this test may kill, pause and restart: `private_server(RedisServer, *options)`."""
    servers: list[ServerProcess] = []

    def start(make: type[ServerProcess], *options: str) -> ServerProcess:
        require_server(make.kind)
        server = make(run_resources.new_directory(), *options)
        servers.append(server)
        server.start()
        return server

    yield start
    for server in servers:
        server.kill()
