"""The programs of the README run as they stand."""

from __future__ import annotations

import asyncio
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from peeklock_client import Client

from tests.databases import RunResources
from tests.reader import environment_of, reader_environment
from tests.servers import TIMEOUT_SECONDS

README = Path("client/README.md")
PROGRAMS = {
    section.partition("\n")[0]: program
    for section in README.read_text().split("\n## ")
    for program in re.findall(r"```python\n(.*?)```", section, re.DOTALL)
}
"""Each program, by the heading of its section."""


Run = Callable[[str, str], str]


@pytest.fixture(scope="module")
def run(run_resources: RunResources, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run a program with what the README installs, against the server at this address, and return what it prints."""
    [install] = re.findall(r"```sh\n(pip .*?)```", README.read_text(), re.DOTALL)
    programs = environment_of(install, run_resources, tmp_path_factory.mktemp("reader"))

    def run(program: str, url: str) -> str:
        done = subprocess.run(
            [programs / "python3", "-c", program],
            env=reader_environment(programs, url=url),
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_SECONDS,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


async def test_the_worker_sends_an_invoice_for_the_order(server_url: str, client: Client, run: Run) -> None:
    await asyncio.to_thread(run, PROGRAMS["A worker"], server_url)
    [invoice] = await client.queue("invoices").receive(wait_seconds=20)
    assert invoice.message.body == {"order": 17}
    assert await client.queue("orders").receive() == []


async def test_a_program_without_a_loop_prints_its_letter(server_url: str, run: Run) -> None:
    assert await asyncio.to_thread(run, PROGRAMS["Without an event loop"], server_url) == "hello\n"


async def test_a_sender_sends_thousands(server_url: str, client: Client, run: Run) -> None:
    assert "state='available'" in await asyncio.to_thread(run, PROGRAMS["Many sends"], server_url)
    assert (await client.queue("readings").status()).counts.available == 5001


async def test_a_transaction_moves_the_lines_of_a_cart(server_url: str, client: Client, run: Run) -> None:
    await client.queue("order-lines").create()
    await asyncio.to_thread(run, PROGRAMS["Transactions"], server_url)
    assert (await client.queue("order-lines").status()).counts.available == 2
    counts = (await client.queue("carts").status()).counts
    assert (counts.available, counts.locked) == (0, 0)


async def test_a_duplicate_deposits_nothing(server_url: str, client: Client, run: Run) -> None:
    assert await asyncio.to_thread(run, PROGRAMS["Handlers that keep a state"], server_url) == "100\n"
    state = await client.api.get_state("account.alice")
    assert (state.version, state.value) == (1, {"balance": 100})


async def test_a_program_without_a_worker_prints_its_order(server_url: str, client: Client, run: Run) -> None:
    await client.queue("orders").create()
    assert await asyncio.to_thread(run, PROGRAMS["Without a worker"], server_url) == "{'order': 18}\n"


async def test_a_handler_of_events_prints_its_event(server_url: str, run: Run) -> None:
    assert await asyncio.to_thread(run, PROGRAMS["CloudEvents"], server_url) == "order.placed /shop 17\n"


def test_every_program_is_run_by_a_test() -> None:
    tests = Path(__file__).read_text()
    assert len(re.findall("```python\n", README.read_text())) == len(PROGRAMS)
    assert [name for name in PROGRAMS if f'PROGRAMS["{name}"]' not in tests] == []
