"""Other servers that speak SQS: the references of the row `sqs`, each only where it is installed."""

import asyncio
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.sqs_load import SqsTarget, create_queue
from benchmarks.systems import System
from tests.docs.other_brokers import HOST, Moto, OtherBroker

LOCALSTACK = "BENCH_LOCALSTACK"
"""The variable that names the Python of an environment with LocalStack, which no command installs: it is 320 MB, and its
packages exclude those of requirements/brokers.txt. docs/performance.md says what to install."""


class LocalStack(OtherBroker):
    """LocalStack with SQS alone. It needs no account up to version 4."""

    kind, title, program = "localstack", "LocalStack", os.environ.get(LOCALSTACK, "")

    def command(self, data: Path) -> Sequence[str]:
        settings = {
            "DISABLE_EVENTS": "1",
            "DNS_ADDRESS": "0",
            "GATEWAY_LISTEN": f"{HOST}:{self.port}",
            "HOME": data,
            "SERVICES": "sqs",
            "SKIP_SSL_CERT_DOWNLOAD": "1",
            "XDG_CACHE_HOME": data,
        }
        values = (f"{name}={value}" for name, value in settings.items())
        return ["env", *values, self.program, "-m", "localstack.runtime.main"]


NOT_INSTALLED = {
    Moto: "moto is not installed here; `python3 dev.py test --nightly` installs it",
    LocalStack: f"{LOCALSTACK} names no LocalStack",
}


@contextmanager
def other_servers(folder: Path) -> Iterator[Sequence[System]]:
    """Those that are installed, each with the queue of the load."""
    with ExitStack() as running:
        yield [_started(kind(folder / kind.kind), running) for kind in NOT_INSTALLED if kind.installed()]


def missing_servers() -> Sequence[str]:
    """Say which are not installed."""
    return [text for kind, text in NOT_INSTALLED.items() if not kind.installed()]


def _started(server: OtherBroker, running: ExitStack) -> System:
    server.directory.mkdir()
    server.start()
    running.callback(server.stop)
    target = SqsTarget(HOST, server.port)
    asyncio.run(create_queue(target))
    return System(server.title, target, {"server": server.pid})
