"""Behind nginx with TLS and a path, as docs/guides/proxy.md configures it, SDKs find the queues by their URLs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.databases import RunResources
from tests.peeklock_process import services
from tests.proxies.proxy_servers import ROOT, Nginx
from tests.servers import free_port
from tests.sqs_clients.signed_server import PROGRAMS, PYTHON, SignedServer, run, run_javascript, signed_server
from tests.sqs_clients.test_javascript import ANSWERS


@pytest.fixture(scope="module", params=["passed on", "removed", "by the settings"])
def published(
    request: pytest.FixtureRequest, run_resources: RunResources, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[SignedServer, Nginx]]:
    """A server that nginx passes the path on to, or removes it, or that knows its address by its settings alone."""
    port = free_port()
    address = {"root_path": ROOT, "sqs_url": f"https://localhost:{port}{ROOT}"}
    settings = address if request.param == "by the settings" else {"trusted_proxies": "127.0.0.1"}
    with services(run_resources.with_tables(tmp_path_factory.mktemp("behind"))) as start:
        server = signed_server(start, **settings)
        nginx = Nginx(run_resources.new_directory(), server.url, removes_path=request.param == "removed", port=port)
        nginx.start()
        yield server, nginx
        nginx.kill()


def test_boto3_sends_and_receives_through_the_url_of_a_queue(published: tuple[SignedServer, Nginx]) -> None:
    server, nginx = published
    variables = server.variables(nginx.url) | {"AWS_CA_BUNDLE": str(nginx.certificate)}
    shown = run(variables, PYTHON, PROGRAMS / "with_boto3.py", "at_its_url")
    assert shown == [f"{nginx.url}/000000000000/at_its_url-1", "hello"]


def test_the_sdk_for_javascript_does_all_that_it_does_without_a_proxy(
    published: tuple[SignedServer, Nginx], tmp_path: Path
) -> None:
    server, nginx = published
    variables = server.variables(nginx.url) | {"NODE_EXTRA_CA_CERTS": str(nginx.certificate)}
    answers = run_javascript(variables, tmp_path, "javascript")
    assert answers == {**ANSWERS, "url": f"{nginx.url}/000000000000/javascript"}
