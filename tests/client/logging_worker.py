"""A worker in a process of its own: `python -m tests.client.logging_worker URL QUEUE LOG` writes the body of each message that it has processed."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from peeklock_client import Client, Worker

LOCK_SECONDS = 4


async def main(url: str, queue: str, path: str) -> None:
    """Work until SIGTERM."""
    log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    async with Client(url) as client:
        worker = Worker(client)

        @worker.on(queue, lock_seconds=LOCK_SECONDS, max_workers=5, fetch_batch_size=20)
        async def handle(number: int) -> None:
            await asyncio.sleep(0.01)
            os.write(log, f"{number}\n".encode())

        await worker.start()
        print("started", flush=True)
        await stopping.wait()
        print(await worker.stop())


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
