"""A server that verifies signatures, an API key that signs, and the programs of SDKs that use both."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

import httpx

from developing.environment import SQS_NODE, node
from developing.paths import BROKERS_VENV
from tests.peeklock_process import PeeklockProcess, environment
from tests.servers import TIMEOUT_SECONDS, end_tree

PYTHON = BROKERS_VENV / "bin/python"
PROGRAMS = Path(__file__).parent / "programs"
BOOTSTRAP_KEY = "pk_of_the_tests_with_sdks_of_aws_0123456789"
HEADERS = {"Authorization": f"Bearer {BOOTSTRAP_KEY}"}
"""Of native requests."""
SERVER_SECRET = "a text of more than thirty-two characters"
ALL_RIGHTS = ("send", "listen", "browse", "manage")
REGION = "eu-central-1"


@dataclass(frozen=True, slots=True)
class SigningKey:
    """An API key: the id and the secret that an SDK signs with."""

    id: str
    secret: str


@dataclass(frozen=True, slots=True)
class SignedServer:
    """A server that refuses requests without the signature of a key. The key has all rights."""

    process: PeeklockProcess
    key: SigningKey

    @property
    def url(self) -> str:
        """Where programs of this machine find the server."""
        return self.process.url

    def variables(self, url: str | None = None) -> dict[str, str]:
        """Return the environment of an SDK, with another URL if clients have another. Nothing of this machine is used."""
        return environment() | {
            "AWS_ENDPOINT_URL_SQS": url or self.url,
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_ACCESS_KEY_ID": self.key.id,
            "AWS_SECRET_ACCESS_KEY": self.key.secret,
            "AWS_CONFIG_FILE": "/dev/null",
            "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
            "AWS_EC2_METADATA_DISABLED": "true",
            "NO_PROXY": "*",
        }


def signed_server(start: Callable[..., PeeklockProcess], **settings: object) -> SignedServer:
    """Start a server with these settings, and create its key."""
    process = start(bootstrap_key=BOOTSTRAP_KEY, sqs_secret=SERVER_SECRET, **settings)
    return SignedServer(process, create_key(process.url, ALL_RIGHTS, "*"))


def create_key(url: str, rights: Sequence[str], pattern: str) -> SigningKey:
    """Create an API key with rights on the queues that match a pattern, and return what signs in its name."""
    wanted = {"principal": uuid4().hex, "rights": rights, "patterns": [pattern]}
    created = httpx.post(f"{url}/v1/keys", json=wanted, headers=HEADERS).raise_for_status().json()
    return SigningKey(created["id"], created["sqs_secret_access_key"])


def kombu_url(server: SignedServer, key: SigningKey) -> str:
    """Return the URL of a server for Celery and kombu."""
    return server.url.replace("http://", f"sqs://{key.id}:{key.secret}@")


def run(variables: Mapping[str, str], *command: str | Path) -> Any:
    """Run a program that ends, and return the JSON that it prints. The test fails with its errors if it fails."""
    done = subprocess.run(
        command, env=dict(variables), capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def run_javascript(variables: Mapping[str, str], directory: Path, queue: str) -> Any:
    """Run the program for Node.js in a directory, and return the JSON that it prints."""
    program = shutil.copy(PROGRAMS / "with_javascript.mjs", directory)
    (directory / "node_modules").symlink_to(SQS_NODE / "node_modules")
    return run(variables, node(), program, queue)


@contextmanager
def running(variables: Mapping[str, str], *command: str | Path, directory: Path) -> Iterator[IO[str]]:
    """Run a program that does not end, and yield the lines that it prints. Kill it with its children afterwards."""
    with subprocess.Popen(
        ["timeout", f"{int(TIMEOUT_SECONDS)}s", *command],  # it ends even if the test is killed
        cwd=directory,
        env=dict(variables),
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
            end_tree(process.pid, signal.SIGKILL)
