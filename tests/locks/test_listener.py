"""A listener goes on after every failure, and notices a peer that no longer answers while the connection stays open."""

import asyncio
import secrets
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any, NoReturn

from app.locks.connect import connect
from app.locks.listener import RETRY_DELAYS, SUBSCRIBE, Listener
from app.locks.redis_client import RedisCommand
from app.locks.redis_connection import RedisConnection
from tests.bounds import bounded
from tests.locks.faulty_peers import BlackHole
from tests.locks.lock_records import TIMEOUT_SECONDS, open_connection
from tests.virtual_clock import VirtualClock


async def test_a_silent_subscription_is_replaced() -> None:
    lost: asyncio.Queue[BaseException] = asyncio.Queue()
    clock = VirtualClock()
    async with BlackHole().open() as hole:
        connection = RedisConnection(connect(hole.url, timeout_seconds=TIMEOUT_SECONDS), clock, _ignore_failure)
        listener = Listener(
            connection, "news", _ignore, clock, lambda _, error: lost.put_nowait(error), silence_seconds=0.02
        )
        listener.start()
        for connections in (1, 2, 3):
            assert isinstance(await lost.get(), TimeoutError)
            assert hole.connections == connections
            await clock.advance(RETRY_DELAYS.max_failure_seconds)
        await listener.stop()
        await connection.close()


async def test_the_delay_before_the_next_try_grows() -> None:
    lost: asyncio.Queue[BaseException] = asyncio.Queue()
    clock = VirtualClock()
    connection = RedisConnection(
        connect("redis://127.0.0.1:1", timeout_seconds=TIMEOUT_SECONDS), clock, _ignore_failure
    )
    listener = Listener(connection, "news", _ignore, clock, lambda _, error: lost.put_nowait(error))
    listener.start()
    begin = clock.monotonic()
    tries: list[float] = []
    for _ in range(5):
        await lost.get()
        tries.append(clock.monotonic() - begin)
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while lost.empty():
                await clock.advance(0.05)
                await asyncio.sleep(0.001)
    rests = [later - earlier for earlier, later in pairwise(tries)]
    assert rests[0] <= 0.6
    assert rests[-1] > 2 * rests[0]
    await listener.stop()
    await connection.close()


def _ignore(message: bytes) -> None:
    raise AssertionError(message)


def _ignore_failure(_name: str, _error: BaseException) -> None:
    """Only the listener's reports count here."""


class Broken:
    """A client whose subscriptions raise an error that Redis never raises."""

    counts_all_subscribers = True

    async def execute(self, commands: Sequence[RedisCommand]) -> list[object]:
        """Not asked."""
        raise NotImplementedError

    def subscription(self) -> NoReturn:
        """Raise the error of a bug."""
        raise AttributeError("a mistake of the client")

    async def aclose(self) -> None:
        """Nothing is open."""


async def test_a_listener_that_fails_for_any_reason_reports_it_and_subscribes_again() -> None:
    lost: asyncio.Queue[BaseException] = asyncio.Queue()
    clock = VirtualClock()
    connection = RedisConnection(Broken(), clock, _ignore_failure)
    listener = Listener(connection, "news", _ignore, clock, lambda _, error: lost.put_nowait(error))
    listener.start()
    for _ in range(3):
        assert str(await lost.get()) == "a mistake of the client"
        assert connection.failing == {SUBSCRIBE}
        await clock.advance(RETRY_DELAYS.max_failure_seconds)
    await listener.stop()


async def test_a_message_that_is_not_understood_costs_the_listener_one_subscription(redis_url: str) -> None:
    lost: asyncio.Queue[BaseException] = asyncio.Queue()
    heard: asyncio.Queue[bytes] = asyncio.Queue()
    clock, channel = VirtualClock(), f"news-{secrets.token_hex(4)}"

    def on_message(message: bytes) -> None:
        if message == b"bad":
            raise KeyError(message)
        heard.put_nowait(message)

    async with open_connection(redis_url) as connection:
        listener = Listener(connection, channel, on_message, clock, lambda _, error: lost.put_nowait(error))
        listener.start()
        await publish_until_heard(connection, channel, b"bad", lost)
        await clock.advance(RETRY_DELAYS.max_failure_seconds)
        await publish_until_heard(connection, channel, b"good", heard)
        assert connection.failing == set()
        await listener.stop()


async def publish_until_heard(
    connection: RedisConnection, channel: str, message: bytes, heard: asyncio.Queue[Any]
) -> None:
    """Publish until this queue has something: the listener may not have subscribed yet."""
    for _ in bounded("a message arrives"):
        await connection.publish({channel: message})
        with suppress(TimeoutError):
            await asyncio.wait_for(heard.get(), 0.02)
            return
