"""A login for which the driver lacks something is refused in a sentence, before anything is sent in the clear."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from app.store.migrate import schema_status
from app.store.mysql.connect import NEEDS_CRYPTOGRAPHY, Connector
from app.store.url import BadStoreUrl

SALT = b"01234567890123456789"
PLUGIN = b"caching_sha2_password"
CAPABILITIES = 0x000FF7DF
"""Everything that MySQL 8 offers but TLS."""
FULL_LOGIN = b"\x01\x04"
PUBLIC_KEY = b"\x01-----BEGIN PUBLIC KEY-----\n-----END PUBLIC KEY-----\n"


def greeting() -> bytes:
    """How MySQL 8 begins (protocol 10)."""
    low, high = CAPABILITIES.to_bytes(4, "little")[:2], CAPABILITIES.to_bytes(4, "little")[2:]
    start = b"\x0a8.0.39\x00" + (7).to_bytes(4, "little") + SALT[:8] + b"\x00" + low + b"\xff\x02\x00" + high
    return start + bytes([len(SALT) + 1]) + bytes(10) + SALT[8:] + b"\x00" + PLUGIN + b"\x00"


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Be a MySQL that does not know the user's password yet and speaks no TLS."""
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
    """As the server does."""
    await Connector(url)()


async def check_schema(url: str) -> None:
    """As the migrations do, over another driver."""
    await asyncio.to_thread(schema_status, url)


@pytest.mark.parametrize("action", [connect, check_schema])
async def test_without_tls_or_cryptography_the_default_login_of_mysql_is_explained(
    url: str, action: Callable[[str], Awaitable[None]]
) -> None:
    with pytest.raises(BadStoreUrl) as refused:
        await action(url)
    assert str(refused.value) == NEEDS_CRYPTOGRAPHY
    assert "hunter2" not in str(refused.value)
