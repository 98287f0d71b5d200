"""The reasons why TLS to PostgreSQL fails, in one sentence that names the host and the cause."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from app.store.postgresql.connect import connect, parse_address
from tests.databases import RunResources
from tests.peeklock_process import run_peeklock
from tests.servers import PostgresServer

pytestmark = pytest.mark.full

NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
DEMANDS_A_CERTIFICATE = "hostssl all all all trust clientcert=verify-ca\n"


class TlsPostgres(PostgresServer):
    """PostgreSQL with the certificate `server.pem` of a directory, and with these rules of access if any are given."""

    def __init__(self, directory: Path, certificates: Path, rules: str | None = None) -> None:
        files = {"ssl_cert_file": "server.pem", "ssl_key_file": "server.key", "ssl_ca_file": "ca.pem"}
        settings = ["ssl=on", *(f"{name}={file}" for name, file in files.items())]
        super().__init__(directory, *(part for setting in settings for part in ("-c", setting)))
        self._certificates = certificates
        self._rules = rules

    def initialise(self, data: Path) -> None:
        super().initialise(data)
        files = [str(self._certificates / file) for file in ("server.pem", "server.key", "ca.pem")]
        self.run("install", "-m", "600", *files, str(data))
        if self._rules is not None:
            (data / "pg_hba.conf").write_text(self._rules)


@dataclass(frozen=True)
class TlsServers:
    """A server with a certificate for `localhost`, one that also demands one of its clients, and one without TLS.

    `certificates` has the authority `ca.pem` that signed the certificates, another one, `other.pem`, and a `client.pem`.
    """

    certificates: Path
    tls: PostgresServer
    mutual: PostgresServer
    plain: PostgresServer

    def url(self, address: str, **files: str) -> str:
        """Return the URL of `server@host` that verifies the server by the authority `ca.pem`, or with these files."""
        host = address.partition("@")[2]
        files = {"sslrootcert": "ca.pem", **files}
        options = "".join(f"&{key}={self.certificates / file}" for key, file in files.items())
        return f"postgresql://postgres@{host}:{self.port(address)}/postgres?sslmode=verify-full{options}"

    def port(self, address: str) -> int:
        """Return the port of `server@host`."""
        server: PostgresServer = getattr(self, address.partition("@")[0])
        return server.port


@pytest.fixture(scope="module")
def servers(request: pytest.FixtureRequest, run_resources: RunResources) -> Iterator[TlsServers]:
    request.getfixturevalue("require_server")("postgresql")
    certificates = run_resources.new_directory()
    certificates.chmod(0o755)  # the server's account reads them
    for name in ("ca", "other"):
        openssl(certificates, "req", "-x509", *NEW_KEY, "-days", "2", *named(name))
    sign(certificates, "server", "-addext", "subjectAltName=DNS:localhost")
    sign(certificates, "client")
    (certificates / "server.key").chmod(0o644)
    tls, mutual = [
        TlsPostgres(run_resources.new_directory(), certificates, rules) for rules in (None, DEMANDS_A_CERTIFICATE)
    ]
    servers = TlsServers(certificates, tls, mutual, PostgresServer(run_resources.new_directory()))
    started = (servers.tls, servers.mutual, servers.plain)
    for server in started:
        server.start()
    yield servers
    for server in started:
        server.kill()


def openssl(directory: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=directory, check=True, capture_output=True)


def named(name: str) -> tuple[str, ...]:
    """Return the arguments for a certificate with this name, in files of this name."""
    return ("-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.pem")


def sign(directory: Path, name: str, *extensions: str) -> None:
    """Make a certificate that the authority `ca.pem` has signed."""
    authority = ("-CA", "ca.pem", "-CAkey", "ca.key")
    openssl(directory, "req", "-x509", *NEW_KEY, "-days", "2", *named(name), *authority, *extensions)


REFUSED = {
    "unknown authority": (
        "tls@localhost", {"sslrootcert": "other.pem"},
        "The database cannot be reached. (localhost:{port}: its certificate is not trusted: ",
    ),
    "other host": (
        "tls@127.0.0.1", {},
        "(127.0.0.1:{port}: its certificate is not for this host: IP address mismatch, certificate is not valid for '127.0.0.1')",
    ),
    "no TLS": (
        "plain@localhost", {},
        'rejected SSL upgrade; it has no TLS, which the sslmode in the database URL needs)',
    ),
    "no certificate": (
        "mutual@localhost", {},
        "The database refuses access. (localhost:{port}: connection requires a valid client certificate)",
    ),
    "foreign certificate": (
        "mutual@localhost", {"sslcert": "other.pem", "sslkey": "other.key"},
        "(localhost:{port}: connection was closed in the middle of operation; its log may say why)",
    ),
    "key of another certificate": (
        "mutual@localhost", {"sslcert": "client.pem", "sslkey": "other.key"},
        "(localhost:{port}: TLS fails: key values mismatch; check the files of sslrootcert, sslcert and sslkey",
    ),
    "no authority in the file": (
        "tls@localhost", {"sslrootcert": "ca.key"},
        "(localhost:{port}: TLS fails: no certificate or crl found; check the files of sslrootcert",
    ),
}  # fmt: skip


@pytest.mark.parametrize("why", REFUSED)
def test_a_start_names_the_host_and_why_tls_fails(servers: TlsServers, tmp_path: Path, why: str) -> None:
    address, files, sentence = REFUSED[why]
    done = run_peeklock("serve", "--port", "0", directory=tmp_path, database_url=servers.url(address, **files))
    (error,) = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (2, "")
    assert sentence.format(port=servers.port(address)) in error
    assert "_ssl.c" not in error


def test_a_missing_default_authority_is_one_sentence(servers: TlsServers, tmp_path: Path) -> None:
    url = servers.url("tls@localhost").partition("&sslrootcert")[0]
    done = run_peeklock("serve", "--port", "0", directory=tmp_path, database_url=url, home=tmp_path)
    (error,) = done.stderr.splitlines()
    assert "root.crt" in error
    assert error.endswith("cannot be accessed.")


async def test_a_client_with_the_right_files_is_connected(servers: TlsServers) -> None:
    files = {"sslcert": "client.pem", "sslkey": "client.key"}
    for url in (servers.url("tls@localhost"), servers.url("mutual@localhost", **files)):
        connection = await connect(parse_address(url))
        await connection.close()
