"""Redis as operators run it: a cluster, sentinels, TLS, with passwords."""

import asyncio
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from redis.asyncio import Redis

from tests.servers import RedisServer, free_port

StartServer = Callable[..., RedisServer]

SOON_DOWN_MILLISECONDS = "500"
"""After this long without an answer, other nodes or sentinels report a server as down."""


class SentinelServer(RedisServer):
    """A sentinel that watches one server under the name `main`."""

    def __init__(self, directory: Path, *options: str) -> None:
        super().__init__(directory)
        self._configuration = options

    def command(self, data: Path) -> list[str]:
        configuration = data / "sentinel.conf"
        configuration.write_text("\n".join([f"port {self.port}", f"dir {data}", *self._configuration]) + "\n")
        return ["redis-server", str(configuration), "--sentinel"]

    def is_ready(self) -> bool:
        """With a password it cannot be asked: then its port counts."""
        return "Running mode=sentinel" in self.log()


class TlsSentinelServer(SentinelServer):
    """A sentinel that speaks nothing but TLS, to its clients and to the servers."""

    def __init__(self, directory: Path, *options: str) -> None:
        super().__init__(directory)
        self._configuration = (*options, "port 0", f"tls-port {self.port}", "tls-auth-clients no")


class TlsServer(RedisServer):
    """A server that speaks nothing but TLS."""

    def command(self, data: Path) -> Sequence[str]:
        return [*super().command(data), "--port", "0", "--tls-port", str(self.port), "--tls-auth-clients", "no"]

    def is_ready(self) -> bool:
        return "Ready to accept connections" in self.log()


class Cluster:
    """Three masters that share the slots."""

    def __init__(self, start: StartServer, kind: type[RedisServer], *options: str, cli: Sequence[str] = ()) -> None:
        self._start = start
        self._kind = kind
        self._options = options
        self._cli = cli
        self.nodes = [self._start_node() for _ in range(3)]
        addresses = [f"127.0.0.1:{node.port}" for node in self.nodes]
        self.hosts = ",".join(addresses)
        self._run("create", *addresses, "--cluster-yes")

    def add_replica(self, master: RedisServer) -> RedisServer:
        """Start a replica that replaces this master once it is down."""
        replica = self._start_node()
        (master_id,) = self.ask(master, "cluster", "myid")
        own, known = f"127.0.0.1:{replica.port}", f"127.0.0.1:{master.port}"
        self._run("add-node", own, known, "--cluster-slave", "--cluster-master-id", master_id)
        return replica

    async def has_formed(self, *nodes: RedisServer) -> None:
        """Wait until these nodes, or all, know which node has each slot."""
        for node in nodes or self.nodes:
            for _ in range(1000):
                if "cluster_state:ok" in self.ask(node, "cluster", "info"):
                    break
                await asyncio.sleep(0.05)
            else:
                pytest.fail("the cluster did not form")

    async def has_role(self, node: RedisServer, role: str) -> None:
        """Wait until this node is a master, or a replica that has its master's data."""
        for _ in range(1000):
            state = self.ask(node, "role")
            if state[0] == role and (role == "master" or "connected" in state):
                return
            await asyncio.sleep(0.05)
        pytest.fail(f"no {role}")

    def ask(self, node: RedisServer, *command: str) -> list[str]:
        """Return the lines of the reply."""
        done = subprocess.run(
            ["redis-cli", *self._cli, "-p", str(node.port), *command], check=True, capture_output=True, text=True
        )
        return done.stdout.split()

    def _start_node(self) -> RedisServer:
        bus = ["--cluster-enabled", "yes", "--cluster-port", str(free_port())]
        return self._start(self._kind, *bus, "--cluster-node-timeout", SOON_DOWN_MILLISECONDS, *self._options)

    def _run(self, *arguments: str) -> None:
        command = ["redis-cli", *self._cli, "--cluster", *arguments]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def as_lines(options: Sequence[str]) -> list[str]:
    """Return options of a command line as the lines of a configuration."""
    return [f"{name.removeprefix('--')} {value}" for name, value in zip(options[::2], options[1::2], strict=True)]


def make_certificate(directory: Path) -> list[str]:
    """Make a certificate for 127.0.0.1. Return the options of a server that has it; its file is `certificate.pem`."""
    certificate, key = directory / "certificate.pem", directory / "key.pem"
    kind = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    names = ["-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1"]
    written = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run(["openssl", *kind, *names, *written], check=True, capture_output=True)
    files = ["--tls-cert-file", str(certificate), "--tls-key-file", str(key), "--tls-ca-cert-file", str(certificate)]
    return [*files, "--tls-replication", "yes", "--tls-cluster", "yes"]


async def add_user(server: RedisServer, name: str, password: str) -> None:
    """Add a user with every right."""
    async with Redis.from_url(server.url) as redis:
        await redis.acl_setuser(
            name, enabled=True, passwords=[f"+{password}"], keys=["*"], channels=["*"], categories=["+@all"]
        )
