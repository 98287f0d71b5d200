"""Workers: handlers of several queues that start, run and stop together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Unpack

from peeklock_client.client import Client
from peeklock_client.connection import Connection
from peeklock_client.errors import WrongEventLoop
from peeklock_client.http_pools import running_loop
from peeklock_client.worker.consistent import Body, ConsistentHandler, Result, State, StateFunction
from peeklock_client.worker.handlers import CallsHandler, Function, Handler
from peeklock_client.worker.options import SubscriberFields, SubscriberOptions
from peeklock_client.worker.report import WorkerReport
from peeklock_client.worker.slots import HandlerSlots
from peeklock_client.worker.subscriber import Subscriber

GRACE_SECONDS = 30.0
MakeHandler = Callable[[Connection, str], CallsHandler]


class Worker:
    """Calls handlers with the messages of their queues.

    `client` defaults to a `Client` for `PEEKLOCK_URL`. `grace_seconds` is how long handlers may run after a stop, before they are
    cancelled. `process` is the number of this process among those that run the worker: from the second on, it ends each
    `receiver_id`, so that each process has ids of its own. `peeklock-worker --processes` sets it.
    """

    def __init__(self, client: Client | None = None, *, grace_seconds: float = GRACE_SECONDS, process: int = 1) -> None:
        self.process = process
        self._client = client
        self._grace_seconds = grace_seconds
        self._handlers: list[tuple[tuple[str, ...], MakeHandler, SubscriberOptions]] = []
        self._subscribers: list[Subscriber] = []
        self._owned: Client | None = None
        self._is_started = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._start_ended = asyncio.Event()
        self._stopped = asyncio.Event()
        self._stopping: asyncio.Task[None] | None = None
        self._ended = WorkerReport()

    def on(
        self, *queues: str, options: SubscriberOptions | None = None, **fields: Unpack[SubscriberFields]
    ) -> Callable[[Function], Function]:
        """Declare the handler of queues: `@worker.on("orders", max_workers=20)`. `fields` are those of `SubscriberOptions`.

        Each parameter of the function gets what its annotation says: a `ReceiveContext`, a `Message`, or the body,
        converted to its type. The messages that it returns are sent in the same commit that completes the message.
        Raises `TypeError` without a queue, and for `options` together with fields of them.
        """
        chosen = _chosen(queues, options, fields)

        def declare(function: Function) -> Function:
            handler = Handler(function)
            self.add_handler(queues, lambda _api, _queue: handler, chosen)
            return function

        return declare

    def on_state(
        self,
        *queues: str,
        key: Callable[[Any], str],
        state: type[State],
        logic: str = "",
        verify: bool = True,
        options: SubscriberOptions | None = None,
        **fields: Unpack[SubscriberFields],
    ) -> Callable[[StateFunction[State, Body, Result]], StateFunction[State, Body, Result]]:
        """Declare a handler that keeps a state: a function of the state, the body and a `HandlerContext`.

        It changes the state and returns messages. The commit that completes the message stores both. A duplicate of the message
        changes nothing. `key` returns the key of the state for a body. `state` is the type of the state; called without
        arguments, it makes the first version. `logic` is the version of the code, and is stored with each version of the
        state. With `verify`, a duplicate whose result differs from that of the first processing is refused. Raises as `on` does.
        """
        chosen = _chosen(queues, options, fields)

        def declare(function: StateFunction[State, Body, Result]) -> StateFunction[State, Body, Result]:
            def make(api: Connection, queue: str) -> CallsHandler:
                return ConsistentHandler(function, api, queue, key=key, state=state, logic=logic, verify=verify)

            self.add_handler(queues, make, chosen)
            return function

        return declare

    def add_handler(self, queues: tuple[str, ...], make: MakeHandler, options: SubscriberOptions) -> None:
        """Declare what handles the messages of queues: `make` returns it for each queue, when the worker starts.

        Raises `ValueError` if another declaration has its `receiver_id` on the same queue.
        """
        for other_queues, _, other in self._handlers:
            shared = sorted({*queues} & {*other_queues})
            if shared and options.receiver_id is not None and options.receiver_id == other.receiver_id:
                raise ValueError(f"Two handlers of the queue {shared[0]} have the receiver_id {options.receiver_id!r}.")
        self._handlers.append((queues, make, options))

    def _receiver_id(self, options: SubscriberOptions) -> str | None:
        """Return the `receiver_id` of this process."""
        has_suffix = options.receiver_id is not None and self.process > 1
        return f"{options.receiver_id}-{self.process}" if has_suffix else options.receiver_id

    async def start(self) -> None:
        """Start receiving. Waits in the background for queues that do not exist yet, and logs that.

        Raises the first refusal, such as `Unauthenticated`; then nothing is started.
        """
        if self._is_started:
            raise RuntimeError("This worker is already started.")
        self._is_started, self._loop = True, running_loop()
        # An event belongs to the event loop of its first wait. Each start may have its own event loop, for example in tests.
        self._start_ended, self._stopped = asyncio.Event(), asyncio.Event()
        client = self._client
        if client is None:
            client = self._owned = Client()
        try:
            for queues, make, options in self._handlers:
                slots = HandlerSlots(options.max_workers)
                for queue in queues:
                    handler, receiver_id = make(client.api, queue), self._receiver_id(options)
                    subscriber = Subscriber(client.api, queue, handler, options, slots, receiver_id)
                    self._subscribers.append(subscriber)
                    await subscriber.start()
        except BaseException:
            await self._end(self._grace_seconds)
            raise
        finally:
            self._start_ended.set()

    async def stop(self, grace_seconds: float | None = None) -> WorkerReport:
        """Stop receiving, finish running handlers, return all other messages to their queues, and report.

        A second call waits for the first, and each call waits for a running `start`. The stop continues if the call is cancelled.
        Raises `WrongEventLoop` in another event loop than that of the start.
        """
        if self._is_started:
            if self._loop is not running_loop():
                raise WrongEventLoop("A worker is stopped in the event loop in which it was started.")
            for subscriber in self._subscribers:
                subscriber.start_no_more()
            if self._stopping is None:
                grace = self._grace_seconds if grace_seconds is None else grace_seconds
                self._stopping = asyncio.create_task(self._stop(grace), name="peeklock worker stop")
            await asyncio.shield(self._stopping)
        return self.report

    async def _stop(self, grace_seconds: float) -> None:
        try:
            await self._start_ended.wait()
            if self._is_started:
                await self._end(grace_seconds)
        finally:
            self._stopping = None

    async def _end(self, grace_seconds: float) -> None:
        stops = (subscriber.stop(grace_seconds) for subscriber in self._subscribers)
        results = await asyncio.gather(*stops, return_exceptions=True)
        for subscriber in self._subscribers:
            self._ended.add(subscriber.report)
        self._subscribers.clear()
        if self._owned is not None:
            await self._owned.close()
            self._owned = None
        self._is_started = False
        self._stopped.set()
        for result in results:
            if isinstance(result, BaseException):
                raise result

    @property
    def is_running(self) -> bool:
        """Whether the worker is started and not stopped."""
        return self._is_started and self._start_ended.is_set()

    @property
    def report(self) -> WorkerReport:
        """The counts of the worker, including earlier runs."""
        report = WorkerReport()
        for part in (self._ended, *(subscriber.report for subscriber in self._subscribers)):
            report.add(part)
        return report

    async def run(self) -> None:
        """Start, and return once `stop` has been called. If the call is cancelled, stop first."""
        async with self.lifespan():
            await self._stopped.wait()

    @asynccontextmanager
    async def lifespan(self, app: Any = None) -> AsyncGenerator[None]:
        """Run while an application runs: `FastAPI(lifespan=worker.lifespan)`, or `async with worker.lifespan()`."""
        await self.start()
        try:
            yield
        finally:
            await self.stop()


def _chosen(queues: Sequence[object], options: SubscriberOptions | None, fields: SubscriberFields) -> SubscriberOptions:
    """Return the options of a declaration. Refuse one that would have no effect, such as `@worker.on` without a queue."""
    if not queues or not all(isinstance(queue, str) for queue in queues):
        raise TypeError('Name the queues of the handler: @worker.on("orders").')
    if options is not None and fields:
        raise TypeError(f"Set {', '.join(fields)} in the options, or pass no options.")
    return options or SubscriberOptions(**fields)
