"""Starts other brokers on free ports, and runs the programs of docs/guides that use them."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from developing.machine import RABBITMQ
from developing.paths import BROKERS_VENV
from tests.docs.pages import PAGES, Block, read, replaced
from tests.peeklock_process import environment
from tests.servers import TIMEOUT_SECONDS, ServerProcess, end_tree, free_port

PYTHON = BROKERS_VENV / "bin/python"
HOST = "127.0.0.1"


class OtherBroker(ServerProcess):
    """A server that is ready once it accepts a connection."""

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def is_ready(self) -> bool:
        with contextlib.suppress(OSError):
            socket.create_connection((HOST, self.port), TIMEOUT_SECONDS).close()
            return True
        return False

    def initialise(self, data: Path) -> None:
        """Nothing to fill."""


class Moto(OtherBroker):
    """A server that answers as Amazon SQS does, and keeps everything in memory."""

    kind, title, program = "moto", "moto", str(BROKERS_VENV / "bin/moto_server")

    def command(self, data: Path) -> Sequence[str]:
        return [self.program, "--host", HOST, "--port", str(self.port)]

    @property
    def variables(self) -> dict[str, str]:
        """The environment of its clients."""
        keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
        return {"AWS_ENDPOINT_URL": self.url, "AWS_DEFAULT_REGION": "eu-central-1", **keys}


class PortMapper(OtherBroker):
    """The directory of Erlang's nodes. RabbitMQ would start one that outlives it."""

    kind, title, program, system_user = "epmd", "epmd", "epmd", "rabbitmq"

    def command(self, data: Path) -> Sequence[str]:
        return [self.program, "-address", HOST, "-port", str(self.port)]


class RabbitServer(OtherBroker):
    """RabbitMQ without plug-ins and without the machine's configuration. Its option is the port of the mapper."""

    kind, title, program, system_user = "rabbitmq", "RabbitMQ", str(RABBITMQ), "rabbitmq"

    def command(self, data: Path) -> Sequence[str]:
        settings = {
            "HOME": data,
            "ERL_EPMD_PORT": self.options[0],
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_CONFIG_FILE": data / "none",
            "RABBITMQ_DIST_PORT": free_port(),
            "RABBITMQ_ENABLED_PLUGINS_FILE": data / "none",
            "RABBITMQ_LOG_BASE": data,
            "RABBITMQ_MNESIA_BASE": data,
            "RABBITMQ_NODENAME": "tests@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": HOST,
            "RABBITMQ_NODE_PORT": self.port,
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        }
        return ["env", *(f"{name}={value}" for name, value in settings.items()), self.program]


class Programs:
    """The programs of a page that nightly runs execute, saved in a directory with real addresses."""

    def __init__(self, page: str, directory: Path, addresses: Mapping[str, str] | None = None) -> None:
        self.directory = directory
        self.addresses = addresses or {}
        for block in nightly_blocks(page):
            self.save(block.file or "sample.py", block.text)

    def save(self, file: str, text: str) -> None:
        """Save a program, with the real addresses."""
        (self.directory / file).write_text(replaced(text, self.addresses))

    def run(self, file: str, variables: Mapping[str, str] | None = None) -> str:
        """Run a program that ends, and return what it prints."""
        done = subprocess.run(
            [PYTHON, file],
            cwd=self.directory,
            env=environment() | (variables or {}),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    @contextlib.contextmanager
    def running(self, *arguments: str) -> Iterator[IO[str]]:
        """Run a program that does not end, and yield the lines that it prints. Stop it afterwards."""
        with subprocess.Popen(
            ["timeout", f"{TIMEOUT_SECONDS}s", PYTHON, "-u", *arguments],  # it ends even if the test is killed
            cwd=self.directory,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                assert process.stdout is not None
                yield process.stdout
            finally:
                end_tree(process.pid, signal.SIGTERM)


def nightly_blocks(page: str) -> list[Block]:
    """Return the blocks of a page that only nightly runs execute."""
    return [block for block in read(PAGES[page]) if block.is_nightly]


def shown_output(page: str) -> str:
    """Return the output that a page shows first: that of the program for Peeklock, which does the same."""
    return next(block.text for block in read(PAGES[page]) if block.kind == "text")


@contextlib.contextmanager
def serving(server: ServerProcess) -> Iterator[None]:
    """Start a server, and stop it afterwards."""
    server.start()
    try:
        yield
    finally:
        server.stop()
