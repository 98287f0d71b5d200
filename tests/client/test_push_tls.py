"""Pushes over real TLS: which certificates of a target are accepted, and what a refused one means."""

from __future__ import annotations

import asyncio
import re
import ssl
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from peeklock_client.push.errors import NotConnected, TargetFailed
from peeklock_client.push.target import Target, TimeLimits, open_target, target_url

from tests.client.push_network import answered

NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
CERTIFICATES = {
    "valid": ("DNS:localhost,IP:127.0.0.1", "2"),
    "other name": ("DNS:shop.example", "2"),
    "expired": ("DNS:localhost", "-1"),
}
"""The names and the days of certificates. The common name of each is localhost."""

TIMES = 20
OLD, NEW = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
Answers = Callable[[asyncio.StreamWriter], None]


def openssl(directory: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=directory, check=True, capture_output=True)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with an authority, and certificates that it has signed."""
    directory = tmp_path_factory.mktemp("certificates")
    for name in ("ca", "unknown authority"):
        own = ("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost")
        openssl(directory, "req", "-x509", *NEW_KEY, *own, "-keyout", f"{name}.key", "-out", f"{name}.pem")
    for name, (names, days) in CERTIFICATES.items():
        (directory / "extensions").write_text(f"subjectAltName={names}\nbasicConstraints=CA:FALSE\n")
        request = ("-subj", "/CN=localhost", "-keyout", f"{name}.key", "-out", "request")
        openssl(directory, "req", *NEW_KEY, *request)
        authority = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "extensions")
        openssl(directory, "x509", "-req", "-in", "request", "-days", days, *authority, "-out", f"{name}.pem")
    return directory


@pytest.fixture
def trusted(certificates: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trust the authority, as `SSL_CERT_FILE` lets a user do."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates / "ca.pem"))


def server_context(certificates: Path, name: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / f"{name}.pem", certificates / f"{name}.key")
    return context


def answer_200(writer: asyncio.StreamWriter) -> None:
    writer.write(answered(200))


async def pushed(
    context: ssl.SSLContext | None, scenario: Callable[[Target], Awaitable[list[int]]], answers: Answers = answer_200
) -> list[int]:
    """Run a scenario with a target on this machine."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = re.search(rb"content-length: (\d+)", head)
                assert length is not None
                await reader.readexactly(int(length[1]))
                answers(writer)
        except (OSError, asyncio.IncompleteReadError):
            writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context) as server:
        url = target_url(f"https://localhost:{server.sockets[0].getsockname()[1]}/", allow_private=True)
        target = open_target(url, TimeLimits(), 1, allow_private=True)
        try:
            return await scenario(target)
        finally:
            await target.close()


async def once(target: Target) -> list[int]:
    return [(await target.post([], b"{}")).status]


async def twice(target: Target) -> list[int]:
    return [*await once(target), *await once(target)]


async def often(target: Target) -> list[int]:
    return [status for _ in range(TIMES) for status in await once(target)]


@pytest.mark.usefixtures("trusted")
@pytest.mark.parametrize("version", [OLD, NEW])
async def test_a_certificate_of_a_trusted_authority_is_accepted(certificates: Path, version: ssl.TLSVersion) -> None:
    context = server_context(certificates, "valid")
    context.minimum_version = context.maximum_version = version
    assert await pushed(context, once) == [200]


@pytest.mark.usefixtures("trusted")
@pytest.mark.parametrize("name", ["other name", "expired", "unknown authority"])
async def test_nothing_is_sent_to_a_target_whose_certificate_is_not_valid(certificates: Path, name: str) -> None:
    with pytest.raises(NotConnected, match="CERTIFICATE_VERIFY_FAILED"):
        await pushed(server_context(certificates, name), once)


async def test_an_authority_that_is_not_named_is_not_trusted(certificates: Path) -> None:
    with pytest.raises(NotConnected, match="CERTIFICATE_VERIFY_FAILED"):
        await pushed(server_context(certificates, "valid"), once)


@pytest.mark.usefixtures("trusted")
async def test_a_target_with_an_old_version_of_tls_is_not_connected(certificates: Path) -> None:
    context = server_context(certificates, "valid")
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises(NotConnected):
        await pushed(context, once)


@pytest.mark.usefixtures("trusted")
@pytest.mark.parametrize(("version", "is_sent"), [(OLD, False), (NEW, True)])
async def test_a_demand_for_a_client_certificate_refuses_in_new_tls_after_the_request(
    certificates: Path, version: ssl.TLSVersion, is_sent: bool
) -> None:
    context = server_context(certificates, "valid")
    context.minimum_version = context.maximum_version = version
    context.verify_mode = ssl.CERT_REQUIRED
    with pytest.raises(TargetFailed) as failed:
        await pushed(context, once)
    assert isinstance(failed.value, NotConnected) is not is_sent


@pytest.mark.usefixtures("trusted")
async def test_a_port_without_tls_is_not_connected() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(answered(400))
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        url = target_url(f"https://localhost:{server.sockets[0].getsockname()[1]}/", allow_private=True)
        target = open_target(url, TimeLimits(), 1, allow_private=True)
        with pytest.raises(NotConnected):
            await target.post([], b"{}")
        await target.close()


@pytest.mark.usefixtures("trusted")
async def test_an_answer_in_a_further_record_is_no_answer_to_the_next_request(certificates: Path) -> None:
    statuses = iter([204, 422])

    def answers(writer: asyncio.StreamWriter) -> None:
        writer.write(answered(status := next(statuses)))
        if status == 204:
            writer.write(answered(200))

    assert await pushed(server_context(certificates, "valid"), twice, answers) == [204, 422]


@pytest.mark.usefixtures("trusted")
@pytest.mark.parametrize("version", [OLD, NEW])
async def test_a_connection_with_tls_is_used_again(certificates: Path, version: ssl.TLSVersion) -> None:
    writers = set[asyncio.StreamWriter]()

    def answers(writer: asyncio.StreamWriter) -> None:
        writers.add(writer)
        writer.write(answered(200))

    context = server_context(certificates, "valid")
    context.minimum_version = context.maximum_version = version
    assert await pushed(context, often, answers) == [200] * TIMES
    assert len(writers) < TIMES
