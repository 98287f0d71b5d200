"""The command line of `peeklock-worker`, which `peeklock work` runs too."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from importlib.metadata import version

from peeklock_client.client import DEFAULT_URL
from peeklock_client.command.health import Extra, serve_health
from peeklock_client.command.processes import WORKER_NOT_FOUND, Supervisor
from peeklock_client.command.push import Push, add_options, check_options, command_line, push_of
from peeklock_client.errors import PeeklockError
from peeklock_client.push.errors import InvalidPush
from peeklock_client.worker.subscriber import THREADS
from peeklock_client.worker.worker import Worker

log = logging.getLogger("peeklock.worker")

DESCRIPTION = "Run the worker of a module, or push messages to a URL, until SIGTERM."
SERVER = f"The server is that of PEEKLOCK_URL, or {DEFAULT_URL}. PEEKLOCK_API_KEY is its API key, if it needs one."

IDLE_THREAD_SECONDS = 1.0
"""How long threads without a handler may take to end."""

PARENT_SECONDS = 1.0
"""How often a process checks whether its supervisor is alive."""


class WorkerNotFound(PeeklockError):
    """The target does not name a worker."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command, and return its exit code: 0 after a stop, 1 if the worker cannot start, 2 if it is not found, or the
    options of a push are invalid.
    """
    options = parser()
    chosen = options.parse_args(arguments)
    if chosen.version:
        print(f"peeklock-worker {version('peeklock-client')}")
        return 0
    check_options(options, chosen)
    logging.basicConfig(level=chosen.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        if chosen.processes > 1 or chosen.reload:
            passed_on = [
                f"--grace-seconds={chosen.grace_seconds}",
                f"--host={chosen.host}",
                f"--log-level={chosen.log_level}",
            ]
            return Supervisor(
                [*([chosen.target] if chosen.target else command_line(chosen)), *passed_on],
                chosen.processes,
                chosen.port,
                reload=chosen.reload,
                grace_seconds=chosen.grace_seconds,
            ).run()
        if chosen.target:
            worker = load(chosen.target)
            worker.process = chosen.process
            asyncio.run(run(worker, chosen.grace_seconds, chosen.host, chosen.port, supervisor=chosen.supervisor))
        else:
            asyncio.run(_run_push(push_of(chosen), chosen))
    except PeeklockError as error:
        print(f"peeklock-worker: {error}", file=sys.stderr)
        return WORKER_NOT_FOUND if isinstance(error, WorkerNotFound | InvalidPush) else 1
    _leave_threads()
    return 0


async def _run_push(push: Push, chosen: argparse.Namespace) -> None:
    """Run a worker that pushes, and close its connections."""
    push.worker.process = chosen.process
    extra = Extra(push.state, push.metrics)
    async with push.connections():
        await run(
            push.worker, chosen.grace_seconds, chosen.host, chosen.port, supervisor=chosen.supervisor, extra=extra
        )


def _leave_threads() -> None:
    """Exit at once if plain functions still run in threads. The grace time is over, but Python would wait for them."""
    threads = [thread for thread in threading.enumerate() if thread.name.startswith(THREADS)]
    deadline = time.monotonic() + IDLE_THREAD_SECONDS
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    if running := [thread.name for thread in threads if thread.is_alive()]:
        log.error("exiting while %d handlers still run: %s", len(running), ", ".join(running))
        logging.shutdown()
        sys.stdout.flush()
        os._exit(0)


def parser() -> argparse.ArgumentParser:
    """Return the options of the command."""
    options = argparse.ArgumentParser(prog="peeklock-worker", description=DESCRIPTION, epilog=SERVER)
    options.add_argument(
        "target", nargs="?", metavar="MODULE:WORKER", help="the worker to run, such as shop.orders:worker"
    )
    options.add_argument(
        "--processes",
        type=int,
        default=1,
        help="number of processes; a process that dies is restarted (default: %(default)s)",
    )
    options.add_argument(
        "--reload",
        action="store_true",
        help="restart when a Python file in this directory changes; needs peeklock-client[reload]",
    )
    options.add_argument(
        "--grace-seconds",
        type=float,
        default=30.0,
        help="how long handlers may run after SIGTERM before they are cancelled (default: %(default)g)",
    )
    options.add_argument(
        "--host", default="127.0.0.1", help="address of /livez, /readyz and /metrics (default: %(default)s)"
    )
    options.add_argument(
        "--port",
        type=int,
        help="port of the first process; each further process has the next port; without --port, nothing is served",
    )
    options.add_argument("--supervisor", type=int, help=argparse.SUPPRESS)
    options.add_argument("--process", type=int, default=1, help=argparse.SUPPRESS)
    options.add_argument(
        "--log-level",
        default="info",
        choices=("debug", "info", "warning", "error"),
        help="log from this level on (default: %(default)s)",
    )
    options.add_argument(
        "--version",
        action="store_true",
        help="print the version of peeklock-client",
    )
    add_options(options)
    return options


def load(target: str) -> Worker:
    """Import the worker that a target names. Raises `WorkerNotFound`."""
    module, _, name = target.partition(":")
    sys.path.insert(0, os.getcwd())  # noqa: PTH109 - a path of imports is a text
    try:
        worker = getattr(import_module(module), name or "worker")
    except (ImportError, AttributeError, SyntaxError) as error:
        raise WorkerNotFound(f"{target} cannot be loaded: {error}") from error
    if not isinstance(worker, Worker):
        raise WorkerNotFound(f"{target} is not a Worker.")
    return worker


async def run(
    worker: Worker,
    grace_seconds: float,
    host: str,
    port: int | None,
    *,
    supervisor: int | None = None,
    extra: Extra | None = None,
) -> None:
    """Work until SIGTERM or SIGINT, or until the supervisor has ended, and then stop gracefully."""
    stopping = asyncio.Event()
    for kind in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(kind, stopping.set)
    async with serve_health(worker, host, port, extra):
        log.info("starting")
        starting = asyncio.create_task(worker.start())
        ending = asyncio.create_task(_end_of_work(stopping, supervisor))
        await asyncio.wait([starting, ending], return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            starting.cancel()
            await asyncio.wait([starting])
        if not starting.cancelled():
            starting.result()
            log.info("working")
            await ending
        log.info("stopping")
        log.info("stopped: %s", await worker.stop(grace_seconds))


async def _end_of_work(stopping: asyncio.Event, supervisor: int | None) -> None:
    """Return after a signal, or once the parent of this process is no longer the supervisor."""
    while not stopping.is_set() and supervisor in (None, os.getppid()):
        with suppress(TimeoutError):
            async with asyncio.timeout(None if supervisor is None else PARENT_SECONDS):
                await stopping.wait()
