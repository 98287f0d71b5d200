"""nginx and HAProxy as docs/guides/proxy.md configures them, with TLS and HTTP/2, in front of one server of Peeklock."""

from __future__ import annotations

import socket
import subprocess
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path

from tests.servers import ServerProcess, find_program

PAGE = (Path(__file__).parents[2] / "docs/guides/proxy.md").read_text()
ROOT = "/peeklock"
"""The path of the page."""
SERVER = "127.0.0.1:8080"
"""The address of the server in the page."""

NGINX = """
daemon off;
user root;
pid {directory}/pid;
error_log stderr;
events {{}}
http {{
    access_log off;
    client_body_temp_path {directory}/client;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
    server {{
        listen 127.0.0.1:{port} ssl http2;
        ssl_certificate {certificate};
        ssl_certificate_key {certificate};
{location}
    }}
}}
"""


def configuration(heading: str) -> str:
    """Return the configuration in a section of the page."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return section.partition("```text\n")[2].partition("```")[0]


class Proxy(ServerProcess):
    """A proxy in front of a server. It passes on the root path, or removes it."""

    def __init__(self, directory: Path, server: str, *, removes_path: bool, port: int | None = None) -> None:
        super().__init__(directory, port=port)
        self.server = server.removeprefix("http://")
        self.removes_path = removes_path
        self.certificate = directory / "certificate.pem"
        make_certificate(self.certificate)

    @property
    def url(self) -> str:
        """The address by which clients find the server."""
        return f"https://localhost:{self.port}{ROOT}"

    def is_ready(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def initialise(self, data: Path) -> None:
        """Write the configuration."""
        (data / "configuration").write_text(self.configuration())

    @abstractmethod
    def configuration(self) -> str:
        """Return the configuration of the page, with the addresses of this test."""


class Nginx(Proxy):
    """nginx, which buffers answers unless their headers forbid it."""

    kind, title, program = "nginx", "nginx", "nginx"

    def configuration(self) -> str:
        location = configuration("nginx")
        if self.removes_path:
            location = location.replace(f"{SERVER};", f"{SERVER}/;")
        return NGINX.format(
            directory=self.directory,
            port=self.port,
            certificate=self.certificate,
            location=location.replace(SERVER, self.server),
        )

    def command(self, data: Path) -> Sequence[str]:
        return ["nginx", "-p", str(self.directory), "-c", str(data / "configuration")]


class HAProxy(Proxy):
    """HAProxy."""

    kind, title, program = "haproxy", "HAProxy", "haproxy"

    def configuration(self) -> str:
        text = configuration("HAProxy").replace(SERVER, self.server)
        text = text.replace(":443 ", f"127.0.0.1:{self.port} ").replace("/etc/haproxy/site.pem", str(self.certificate))
        if self.removes_path:
            text = text.replace(
                "    server one", rf"    http-request replace-path {ROOT}(/)?(.*) /\2" + "\n        server one"
            )
        return text

    def command(self, data: Path) -> Sequence[str]:
        return ["haproxy", "-db", "-f", str(data / "configuration")]


PROXIES: dict[str, type[Proxy]] = {proxy.kind: proxy for proxy in (Nginx, HAProxy)}


def make_certificate(file: Path) -> None:
    """Make a certificate for this machine and its key, in one file."""
    program = find_program("openssl")
    assert program, "openssl is not installed; `python3 dev.py test` installs it"
    kind = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    made = file.with_suffix(".made")
    key = file.with_suffix(".key")
    subprocess.run([program, "req", *kind, *names, "-keyout", key, "-out", made], check=True, capture_output=True)
    file.write_text(made.read_text() + key.read_text())
