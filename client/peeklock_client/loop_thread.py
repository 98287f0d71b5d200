"""An event loop in a thread, for callers without one. It runs their calls, and each caller runs the callbacks of its call."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import CancelledError, Future
from contextvars import ContextVar
from functools import partial
from queue import SimpleQueue
from threading import RLock, Thread, current_thread
from typing import Any, TypeVar
from weakref import finalize

from peeklock_client.errors import ClientClosed, InDoubt, WrongEventLoop

log = logging.getLogger("peeklock")

Result = TypeVar("Result")
Steps = SimpleQueue[Callable[[], object] | None]
"""What a thread runs while it waits for its call. None ends the wait."""

STEPS: ContextVar[Steps] = ContextVar("peeklock_steps")


class LoopThread:
    """The thread of one process. It starts with the first call, and ends with `stop`, or when nothing refers to this object.

    Before it ends, it calls `close`. It does not end while the program exits, so `atexit` functions may still call.
    """

    def __init__(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._close = close
        self._lock = RLock()  # a handler of a signal may call while its own thread does
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: Thread | None = None
        self._end: Callable[[], object] = lambda: None
        self._is_stopped = False

    def call(self, function: Callable[[], Awaitable[Result]]) -> Result:
        """Call a function in the event loop, and return its result. Any number of threads may call at a time.

        An exception in the calling thread, such as `KeyboardInterrupt`, cancels the call. Raises `ClientClosed` after `stop`,
        `WrongEventLoop` in the event loop itself, and `InDoubt` if a `stop` ends the call.
        """
        steps = Steps()
        ended = self._submit(function, steps)
        ended.add_done_callback(lambda _: steps.put(None))
        try:
            while (step := steps.get()) is not None:
                step()
        except BaseException:
            ended.cancel()
            raise
        try:
            return ended.result()
        except CancelledError as error:
            raise InDoubt("The client was closed before the answer came.") from error

    def stop(self) -> None:
        """End the thread, and the calls that it still runs."""
        with self._lock:
            self._is_stopped = True
        self._end()

    def _submit(self, function: Callable[[], Awaitable[Result]], steps: Steps) -> Future[Result]:
        token = STEPS.set(steps)
        try:
            with self._lock:
                loop = self._running_loop()
                return asyncio.run_coroutine_threadsafe(_result_of(function), loop)
        finally:
            STEPS.reset(token)

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._is_stopped:
            raise ClientClosed("The client is closed. Nothing was sent.")
        if self._thread is current_thread():
            raise WrongEventLoop("A blocking call was made in the event loop that would have to run it.")
        if self._loop is None:
            started: Future[asyncio.AbstractEventLoop] = Future()
            self._thread = Thread(target=_serve, args=(started, self._close), name="peeklock client", daemon=True)
            self._thread.start()
            self._loop = started.result()
            self._end = ending = finalize(self, _end, self._loop, self._thread, os.getpid())
            ending.atexit = False
        return self._loop


async def _result_of(function: Callable[[], Awaitable[Result]]) -> Result:
    return await function()


async def run_in_caller(callback: Callable[[], Result]) -> Result:
    """Run a function in the thread that waits for this call, and return its result."""
    done: Future[Result] = Future()
    STEPS.get().put(partial(_finish, done, callback))
    return await asyncio.wrap_future(done)


def schedule_in_caller(callback: Callable[[], object]) -> None:
    """Let the thread that waits for this call run a function before the call returns. What it raises is logged."""
    STEPS.get().put(partial(_run_logged, callback))


def _finish(done: Future[Result], callback: Callable[[], Result]) -> None:
    if not done.set_running_or_notify_cancel():
        return  # the call has ended
    try:
        done.set_result(callback())
    except Exception as error:  # noqa: BLE001 - it is raised in the event loop, and from there by the call
        done.set_exception(error)


def _run_logged(callback: Callable[[], object]) -> None:
    try:
        callback()
    except Exception:
        log.exception("a callback failed")


def _serve(started: Future[asyncio.AbstractEventLoop], close: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        loop.call_soon(started.set_result, loop)
        loop.run_forever()
        runner.run(close())


def _end(loop: asyncio.AbstractEventLoop, thread: Thread, process: int) -> None:
    """End a thread, unless it is that of a parent process, because a forked process does not have its parent's threads."""
    if os.getpid() != process:
        return
    loop.call_soon_threadsafe(loop.stop)
    if thread is not current_thread():
        thread.join()
