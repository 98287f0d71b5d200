"""A server on loopback with its data in memory, whose data and time a test controls."""

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

import uvicorn
from pydantic import SecretStr

from app.domain.instant import Instant
from app.http.asgi import Receive, Scope, Send
from app.main import ServerApplication, Services
from app.server.connection_limit import LimitedConnection
from app.settings import Settings
from app.testing.clock import MovableClock

HOST = "127.0.0.1"

STEP_SECONDS = 1.0
"""The shortest step of time. Background work that follows from other background work polls once per second."""

MAX_STEPS = 100
"""The largest number of steps of one advance, so it does not take too long. A longer advance has longer steps."""

FINAL_PASSES = 6
"""Passes at the end: an expired message is dead-lettered, and forwarded over at most four hops."""

EVENT_LOOP_TURNS = 50
"""Turns of the event loop after each step of time: more than the longest chain of tasks that wake one another. With a
database in memory nothing waits for a thread."""

STOP_SECONDS = 5
"""How long a stop waits for open requests, which end at once unless they are stuck."""


class EmbeddedServer:
    """An ASGI application with a clock and a store in memory, which `reset` replaces."""

    def __init__(self) -> None:
        # Made without the environment, which may name a real database.
        self._settings = Settings.model_construct(
            host=HOST, database_url=SecretStr("sqlite://"), auto_create_queues=True
        )
        self._stack = AsyncExitStack()
        self._application: ServerApplication | None = None
        self._services: Services | None = None
        self._clock = MovableClock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        assert self._application is not None
        await self._application(scope, receive, send)

    def now(self) -> Instant:
        """Return the time of the server."""
        return self._clock.now()

    async def reset(self) -> None:
        """Start again without queues, topics, keys or messages, at the time of the machine."""
        await self.close()
        self._clock = MovableClock()
        self._application = ServerApplication(self._settings)
        self._services = await self._stack.enter_async_context(self._application.open(self._clock))

    async def advance(self, seconds: float) -> None:
        """Let this time pass. On return the background work that became due has been done."""
        step = max(STEP_SECONDS, seconds / MAX_STEPS)
        while seconds > 0:
            self._clock.move(min(step, seconds))
            seconds -= step
            await self._run_background_work()
        for _ in range(FINAL_PASSES):
            await self._run_background_work()

    async def close(self) -> None:
        """End the waits of receivers, and close the store. Calling it again does nothing."""
        if self._application is not None and self._services is not None:
            self._application.drain(self._services)
            await _run_ready_tasks()
        self._services = None
        await self._stack.aclose()

    async def _run_background_work(self) -> None:
        assert self._services is not None
        await self._services.loops.run_now()
        await _run_ready_tasks()


@asynccontextmanager
async def serve(embedded: EmbeddedServer) -> AsyncGenerator[str]:
    """Serve on a free port, and yield the URL."""
    with socket.create_server((HOST, 0)) as listener:
        server = uvicorn.Server(_config(embedded))
        # The caller stops the server; signals of a terminal do not reach this process.
        serving = asyncio.create_task(server.serve([listener]))
        await embedded.reset()
        try:
            yield f"http://{HOST}:{listener.getsockname()[1]}"
        finally:
            await embedded.close()
            server.should_exit = True
            await serving


def _config(embedded: EmbeddedServer) -> uvicorn.Config:
    return uvicorn.Config(
        embedded,
        http=LimitedConnection,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=STOP_SECONDS,
    )


async def _run_ready_tasks() -> None:
    for _ in range(EVENT_LOOP_TURNS):
        await asyncio.sleep(0)
