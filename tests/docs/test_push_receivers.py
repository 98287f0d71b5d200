"""docs/guides/push-receivers.md: endpoints with public libraries accept what a push signs, and nothing else."""

from __future__ import annotations

import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from peeklock_client import BlockingClient

from developing.environment import RECEIVERS_NODE, node
from developing.paths import BROKERS_VENV
from tests.bounds import bounded
from tests.client.push_processes import SECRET, PushProcesses
from tests.docs.pages import PAGES, read, replaced
from tests.peeklock_process import PeeklockProcess, environment
from tests.servers import TIMEOUT_SECONDS

RECEIVERS = "guides/push-receivers.md"


@pytest.fixture
def processes(serve: Callable[..., PeeklockProcess], tmp_path: Path) -> Iterator[PushProcesses]:
    directory = tmp_path / "push"
    directory.mkdir()
    processes = PushProcesses(serve(auto_create_queues=1).url, directory)
    yield processes
    processes.end()


def unsigned_request(url: str) -> int:
    """Return the status of the answer to a request without a signature, once the endpoint listens."""
    for _ in bounded("the endpoint does not listen", int(TIMEOUT_SECONDS * 1000)):
        try:
            urllib.request.urlopen(urllib.request.Request(url, b"{}", {"Content-Type": "application/json"}))
        except urllib.error.HTTPError as error:
            with error:
                return error.code
        except OSError:
            continue
    return 0


@pytest.mark.nightly
@pytest.mark.parametrize("file", ["orders.py", "orders.mjs"])
def test_an_endpoint_with_a_library_accepts_and_rejects_orders(
    file: str, processes: PushProcesses, tmp_path: Path
) -> None:
    [program] = [block.text for block in read(PAGES[RECEIVERS]) if block.file == file]
    (tmp_path / file).write_text(replaced(program, {"8081": str(processes.port)}))
    (tmp_path / "node_modules").symlink_to(RECEIVERS_NODE / "node_modules")
    interpreter = [str(BROKERS_VENV / "bin/python"), "-u"] if file.endswith(".py") else [str(node())]
    command = ["timeout", f"{TIMEOUT_SECONDS}s", *interpreter, file]  # it ends even if the test is killed
    url = f"http://127.0.0.1:{processes.port}/orders"
    with (
        BlockingClient(processes.server_url) as client,
        subprocess.Popen(
            command, cwd=tmp_path, env=environment(push_secret=SECRET), stdout=subprocess.PIPE, text=True
        ) as endpoint,
    ):
        try:
            assert unsigned_request(url) == 401
            orders = client.queue("orders")
            orders.send_batch([{"number": 17}, {"colour": "red"}])
            worker = processes.start_worker(f"--push={url}", "--queue=orders", "--allow-private")
            assert endpoint.stdout is not None
            assert any(line == "order 17\n" for line in endpoint.stdout)
            [dead] = client.queue("orders").receive(wait_seconds=TIMEOUT_SECONDS, source="dead_letter")
            assert (dead.message.body, dead.message.dead_letter_reason) == ({"colour": "red"}, "no number")
            processes.stop(worker)
            counts = orders.status().counts
            assert (counts.available, counts.locked) == (0, 1)  # the dead letter
        finally:
            endpoint.terminate()
