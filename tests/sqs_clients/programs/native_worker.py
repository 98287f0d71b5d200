"""A worker with the client of Peeklock. It has the arguments of `boto3_worker.py`."""

import asyncio
import sys
from typing import Any

from held_messages import handle
from peeklock_client import Client, Worker


async def main(queue: str, directory: str) -> None:
    """Work until the process is killed."""
    async with Client() as client:
        worker = Worker(client)

        @worker.on(queue, max_workers=1, fetch_batch_size=1)
        async def handle_order(order: Any) -> None:
            await asyncio.to_thread(handle, order, directory)

        await worker.start()
        await asyncio.Event().wait()


asyncio.run(main(*sys.argv[1:]))
