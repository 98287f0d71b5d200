"""A server behind each proxy, which passes on the root path or removes it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.databases import RunResources
from tests.peeklock_process import PeeklockProcess, services
from tests.proxies.proxy_servers import PROXIES, ROOT, Proxy

KEY = "pk_of_a_test_behind_proxies_0123456789"


@dataclass(frozen=True, slots=True)
class Published:
    """A server that clients find behind a proxy, with the key for everything."""

    server: PeeklockProcess
    proxy: Proxy
    key: str

    @property
    def url(self) -> str:
        """Where clients find the server."""
        return self.proxy.url


@pytest.fixture(scope="module", params=PROXIES)
def kind(request: pytest.FixtureRequest) -> str:
    """The kind of proxy."""
    return request.param


@pytest.fixture(scope="module", params=["passed on", "removed", "by the setting"])
def way(request: pytest.FixtureRequest) -> str:
    """What happens to the root path: the proxy passes it on or removes it, and reports it in a header, or the server has a setting."""
    return request.param


@pytest.fixture(scope="module")
def published(
    run_resources: RunResources, tmp_path_factory: pytest.TempPathFactory, kind: str, way: str
) -> Iterator[Published]:
    """A server behind a proxy."""
    site = tmp_path_factory.mktemp("site")
    (site / "index.html").write_text('<a href="start.html">Start</a>')
    (site / "start.html").write_text("The guide begins.")
    address = {"root_path": ROOT} if way == "by the setting" else {"trusted_proxies": "127.0.0.1"}
    directory = run_resources.with_tables(tmp_path_factory.mktemp("behind"))
    with services(directory) as start:
        server = start(bootstrap_key=KEY, guide_dir=site, **address)
        proxy = PROXIES[kind](run_resources.new_directory(), server.url, removes_path=way == "removed")
        proxy.start()
        yield Published(server, proxy, KEY)
        proxy.kill()


@pytest.fixture
def certificate(published: Published) -> Path:
    """The certificate of the proxy."""
    return published.proxy.certificate
