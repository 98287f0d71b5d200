"""`peeklock-worker --push`: what it needs, what it sends, and how it shows that its target fails."""

from __future__ import annotations

import asyncio
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from peeklock_client.blocking import BlockingClient
from peeklock_client.command import main
from peeklock_client.command.push import OPTIONS, command_line, push_of
from peeklock_client.push.errors import InvalidPush
from peeklock_client.push.signing import SECRET_VARIABLE

from tests.bounds import bounded
from tests.client.push_processes import SECRET, PushProcesses
from tests.servers import TIMEOUT_SECONDS, free_port

POLL_SECONDS, MAX_POLLS = 0.05, int(3 * TIMEOUT_SECONDS / 0.05)


@pytest.fixture
def processes(server_url: str, tmp_path: Path) -> Iterator[PushProcesses]:
    processes = PushProcesses(server_url, tmp_path)
    yield processes
    processes.end()


@pytest.fixture
def client(server_url: str) -> Iterator[BlockingClient]:
    with BlockingClient(server_url) as client:
        client.queue("pushed").create()
        client.queue("pushed").purge()
        yield client


def text_at(url: str, part: str) -> str:
    """Return what is answered at this URL once it contains a text."""
    for _ in bounded(f"{url} never has {part!r}", MAX_POLLS):
        try:
            with urllib.request.urlopen(url) as answer:
                text = answer.read().decode()
            if part in text:
                return text
        except OSError:
            pass  # it does not listen yet
        time.sleep(POLL_SECONDS)
    return ""


@pytest.mark.parametrize("options", [(), ("--batch=10",), ("--processes=2",)], ids=str)
def test_messages_reach_the_target_signed_and_are_completed(
    client: BlockingClient, processes: PushProcesses, options: tuple[str, ...]
) -> None:
    client.queue("pushed").send_batch([1, 2, 3])
    processes.start_receiver()
    worker = processes.push("pushed", *options)
    for _ in bounded("the target does not get all messages", MAX_POLLS):
        if len(processes.received()) == 3:
            break
        time.sleep(POLL_SECONDS)
    processes.stop(worker)
    assert {*processes.received()} == {"1", "2", "3"}
    counts = client.queue("pushed").status().counts
    assert (counts.available, counts.locked) == (0, 0)


def test_health_and_metrics_say_that_the_circuit_is_open_and_closed_again(
    client: BlockingClient, processes: PushProcesses
) -> None:
    client.queue("pushed").send(1)
    port = free_port()
    own = f"http://127.0.0.1:{port}"
    worker = processes.push("pushed", f"--port={port}", "--open-after=1")
    assert text_at(f"{own}/readyz", "circuit") == f"ready\nthe circuit of {processes.target} is open\n"
    opened = text_at(f"{own}/metrics", "peeklock_push_circuit_open 1")
    assert "peeklock_push_circuit_opened_total 1" in opened
    processes.start_receiver()
    closed = text_at(f"{own}/metrics", "peeklock_push_circuit_open 0")
    assert 'peeklock_push_requests_total{outcome="completed"} 1' in closed
    logged = processes.stop(worker)
    assert "is open after 1 failures in a row" in logged
    assert "is closed again" in logged
    assert "Traceback" not in logged


def test_the_console_says_that_a_push_is_paused_and_that_it_receives_again(
    client: BlockingClient, processes: PushProcesses, server_url: str
) -> None:
    client.queue("pushed").send(1)
    page = f"{server_url}/console/queues/pushed"
    worker = processes.push("pushed", "--open-after=1")
    paused = text_at(page, 'data-state="paused">paused<')
    assert f"Calls of {processes.target} are paused: " in paused
    assert "; the last: No connection to 127.0.0.1 on port" in paused
    processes.start_receiver()
    receiving = text_at(page, 'data-state="receiving">receiving<')
    assert f"{processes.target} are paused" not in receiving
    processes.stop(worker)
    assert "No consumer reports itself" in text_at(page, "Consumers")


@pytest.mark.parametrize(
    ("arguments", "secret", "sentence"),
    [
        (["--push=http://127.0.0.1:9/", "--queue=q"], SECRET, "Only --allow-private allows it"),
        (["--push=ftp://shop.example/", "--queue=q"], SECRET, "begins with https:// or http://"),
        (["--push=https://shop.example/", "--queue=q"], "", f"Set {SECRET_VARIABLE}"),
        (["--push=https://shop.example/", "--queue=q"], "tiger", "is not whsec_"),
        (["--push=https://shop.example/", "--queue=q", "--queue=q"], SECRET, "different queues"),
        (["--push=https://shop.example/", "--queue="], SECRET, "queues with names"),
        (["--push=https://shop.example/", "--queue=q", "--rate=0"], SECRET, "a finite rate > 0"),
        (["--push=https://shop.example/", "--queue=q", "--rate=nan"], SECRET, "a finite rate > 0"),
        (["--push=https://shop.example/", "--queue=q", "--concurrency=0"], SECRET, "a concurrency from 1"),
        (["--push=https://shop.example/", "--queue=q", "--batch=1001"], SECRET, "a batch from 1"),
        (["--push=https://shop.example/", "--queue=q", "--open-after=0"], SECRET, "failures >= 1"),
        (["--push=https://shop.example/", "--queue=q", "--total-seconds=inf"], SECRET, "finite time limits"),
        (["--push=https://shop.example/", "--queue=q", "--receiver-id="], SECRET, "a receiver_id that is not empty"),
    ],
)
def test_a_push_that_cannot_work_is_refused(
    arguments: list[str],
    secret: str,
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(SECRET_VARIABLE, secret)
    assert main.main(arguments) == 2
    told = capsys.readouterr().err
    assert told.startswith("peeklock-worker: ")
    assert sentence in told
    assert "tiger" not in told


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_authorities_that_cannot_be_read_are_refused(
    content: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "authority.pem"
    if content is not None:
        file.write_text(content)
    monkeypatch.setenv(SECRET_VARIABLE, SECRET)
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    assert main.main(["--push=https://shop.example/", "--queue=q"]) == 2
    assert "SSL_CERT_FILE or SSL_CERT_DIR has no certificates that can be read" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "name a worker as MODULE:WORKER, or a URL with --push"),
        (["shop:worker", "--push=https://shop.example/"], "name a worker as MODULE:WORKER, or a URL with --push"),
        (["shop:worker", "--batch=3"], "--batch needs --push"),
        (["shop:worker", "--allow-private"], "--allow-private needs --push"),
        (["--queue=orders"], "name a worker"),
        (["--push=https://shop.example/"], "--push needs a --queue"),
        (["--push=https://shop.example/", "--queue=q", "--reload"], "--reload needs a worker as MODULE:WORKER"),
    ],
)
def test_options_that_do_not_belong_together_are_refused(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        main.main(arguments)
    assert (refused.value.code, sentence in capsys.readouterr().err) == (2, True)


def test_several_processes_stop_if_the_push_is_refused(processes: PushProcesses) -> None:
    worker = processes.start_worker(f"--push={processes.target}", "--queue=pushed", "--processes=2")
    logged = processes.wait(worker)
    assert (worker.returncode, "--allow-private" in logged) == (2, True)


def test_a_process_of_its_own_gets_every_option() -> None:
    values = {
        "push": "https://shop.example/", "queue": ["a", "b"], "filter": "true", "concurrency": 3, "rate": 2.5, "batch": 4,
        "allow-private": True, "connect-seconds": 1.0, "send-seconds": 2.0, "answer-seconds": 3.0, "total-seconds": 4.0,
        "open-after": 6, "receiver-id": "here",
    }  # fmt: skip
    assert values.keys() == OPTIONS.keys()
    words = [f"--{name}={one}" for name, value in values.items() if value is not True for one in as_list(value)]
    chosen = main.parser().parse_args([*words, "--allow-private"])
    again = main.parser().parse_args(command_line(chosen))
    assert again == chosen
    assert {name: getattr(again, name.replace("-", "_")) for name in values} == values


def as_list(value: object) -> list[object]:
    return value if isinstance(value, list) else [value]


async def test_the_options_reach_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SECRET_VARIABLE, SECRET)
    chosen = main.parser().parse_args(
        [
            "--push=https://shop.example/a?b=c",
            "--queue=q",
            "--concurrency=3",
            "--batch=7",
            "--filter=true",
            "--receiver-id=r",
        ]
    )
    push = push_of(chosen)
    [(queues, _, options)] = push.worker._handlers
    assert (queues, options.max_workers, options.fetch_batch_size) == (("q",), 21, 21)
    assert (options.filter, options.receiver_id) == ("true", "r")
    assert push.delivery.target.name == "https://shop.example/a"
    async with push.connections():
        await asyncio.sleep(0)


def test_an_address_of_the_server_that_is_no_url_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SECRET_VARIABLE, SECRET)
    monkeypatch.setenv("PEEKLOCK_URL", "nowhere")
    with pytest.raises(InvalidPush, match="nowhere"):
        push_of(main.parser().parse_args(["--push=https://shop.example/", "--queue=q"]))
