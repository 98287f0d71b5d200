"""A login that the driver cannot perform is refused with an explanation, before anything is sent in the clear."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pymysql
import pytest

from app.store.migrate import schema_status
from app.store.mysql.connect import NEEDS_CRYPTOGRAPHY, Connector
from app.store.url import BadStoreUrl

SALT = b"01234567890123456789"
PLUGIN = b"caching_sha2_password"
CAPABILITIES = 0x000FF7DF
"""Every capability of MySQL 8 except TLS."""
FULL_LOGIN = b"\x01\x04"
PUBLIC_KEY = b"\x01-----BEGIN PUBLIC KEY-----\n-----END PUBLIC KEY-----\n"


def greeting() -> bytes:
    """The first packet of MySQL 8 (protocol 10)."""
    low, high = CAPABILITIES.to_bytes(4, "little")[:2], CAPABILITIES.to_bytes(4, "little")[2:]
    start = b"\x0a8.0.39\x00" + (7).to_bytes(4, "little") + SALT[:8] + b"\x00" + low + b"\xff\x02\x00" + high
    return start + bytes([len(SALT) + 1]) + bytes(10) + SALT[8:] + b"\x00" + PLUGIN + b"\x00"


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Act as a MySQL that has not cached the user's password and has no TLS."""
    for number, reply in enumerate((greeting(), FULL_LOGIN, PUBLIC_KEY)):
        writer.write(len(reply).to_bytes(3, "little") + bytes([2 * number]) + reply)
        await writer.drain()
        length = int.from_bytes((await reader.readexactly(4))[:3], "little")
        await reader.readexactly(length)
    writer.close()


@pytest.fixture
async def url() -> AsyncIterator[str]:
    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"mysql://user:hunter2@127.0.0.1:{server.sockets[0].getsockname()[1]}/database"


async def connect(url: str) -> None:
    """Connect as the server does."""
    await Connector(url)()


async def check_schema(url: str) -> None:
    """Connect as the migrations do, over another driver."""
    await asyncio.to_thread(schema_status, url)


@pytest.mark.parametrize("action", [connect, check_schema])
async def test_without_tls_or_cryptography_the_default_login_of_mysql_is_explained(
    url: str, action: Callable[[str], Awaitable[None]]
) -> None:
    with pytest.raises(BadStoreUrl) as refused:
        await action(url)
    assert str(refused.value) == NEEDS_CRYPTOGRAPHY
    assert "hunter2" not in str(refused.value)


def test_no_other_error_of_the_driver_is_taken_for_that_login(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_options: object) -> None:
        raise RuntimeError("out of file descriptors")

    monkeypatch.setattr(pymysql, "connect", fail)
    with pytest.raises(RuntimeError, match="out of file descriptors"):
        schema_status("mysql://user@127.0.0.1/database")
