"""A listener notices a peer that no longer answers, even while the connection stays open."""

import asyncio
from itertools import pairwise

from app.locks.connect import connect
from app.locks.listener import RETRY_DELAYS, Listener
from tests.locks.faulty_peers import BlackHole
from tests.locks.lock_records import TIMEOUT_SECONDS
from tests.virtual_clock import VirtualClock


async def test_a_silent_subscription_is_replaced() -> None:
    lost: asyncio.Queue[BaseException] = asyncio.Queue()
    clock = VirtualClock()
    async with BlackHole().open() as hole:
        client = connect(hole.url, timeout_seconds=TIMEOUT_SECONDS)
        listener = Listener(
            client, "news", _ignore, clock, lambda _, error: lost.put_nowait(error), silence_seconds=0.02
        )
        listener.start()
        for connections in (1, 2, 3):
            assert isinstance(await lost.get(), TimeoutError)
            assert hole.connections == connections
            await clock.advance(RETRY_DELAYS.max_failure_seconds)
        await listener.stop()
        await client.aclose()


async def test_the_delay_before_the_next_try_grows() -> None:
    lost: asyncio.Queue[BaseException] = asyncio.Queue()
    clock = VirtualClock()
    client = connect("redis://127.0.0.1:1", timeout_seconds=TIMEOUT_SECONDS)
    listener = Listener(client, "news", _ignore, clock, lambda _, error: lost.put_nowait(error))
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
    await client.aclose()


def _ignore(message: bytes) -> None:
    raise AssertionError(message)
