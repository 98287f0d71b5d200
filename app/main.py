"""Opens the backends and background loops of a server in order, and closes them in reverse order."""

import asyncio
import gc
import os
import random
import secrets
import signal
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import TypeAlias

import structlog
from pydantic import SecretStr

from app import __version__
from app.api.application import build_application
from app.assembly import Components, assemble, connect_notifications
from app.broker.access.keys import Authenticator
from app.broker.access.sessions import Sessions
from app.broker.broker import Broker
from app.broker.filtering.search_state import SearchRegistry
from app.broker.notify_receivers import on_remote_messages
from app.broker.ports.notifier import Counters
from app.broker.ports.server_directory import Server, ServerDirectory
from app.broker.ports.store import Store
from app.broker.queue_cache import QueueCache
from app.broker.response_limits import ResponseLimits
from app.broker.sending.durability import DurabilityCheck
from app.broker.sending.volatile_buffer import VolatileBuffer
from app.broker.topics.topic_cache import TopicCache
from app.console.activity import Activity
from app.console.application import open_console, with_console
from app.console.reporting import Reporting
from app.domain.instant import from_seconds
from app.domain.message import MAX_BATCH_COUNT
from app.domain.refusals import Overloaded
from app.domain.weight import MESSAGE_OVERHEAD_BYTES
from app.http.access_log import with_access_log
from app.http.asgi import ASGI, Receive, Scope, Send
from app.http.context import AppContext
from app.http.metrics import Metrics
from app.http.metrics_page import MetricsPage
from app.http.public_address import at_public_address
from app.http.queue_statistics import QueueStatistics
from app.http.request_id import RequestIdMiddleware
from app.locks.backend import LockBackend, RedisOptions, open_locks
from app.logs import configure
from app.maintenance.background_loops import BackgroundLoops, Intervals
from app.maintenance.share_seen import SeenSharing
from app.runtime.background_loop import ErrorReporter
from app.runtime.byte_budget import ByteBudget
from app.runtime.clock import Clock, SystemClock
from app.runtime.parent_process import stop_with_parent
from app.runtime.wait_queue import WaitQueue
from app.settings import Settings
from app.sqs.application import with_sqs
from app.store.open import open_store
from app.store.shared.database import BatchObserver

log = structlog.get_logger("peeklock")

GC_THRESHOLD = 50_000
"""Fewer garbage collections than by default: hot requests make no cycles, and objects of the start are frozen."""


OpenStore: TypeAlias = Callable[[str, Clock, int, BatchObserver], Awaitable[Store]]
OpenLocks: TypeAlias = Callable[[RedisOptions | None, WaitQueue[int], Clock, ErrorReporter], LockBackend]


@dataclass(frozen=True, slots=True)
class Backends:
    """The functions that open the message store and the lock backend of a server."""

    open_store: OpenStore
    open_locks: OpenLocks


BACKENDS = Backends(open_store, open_locks)


@dataclass(frozen=True, slots=True)
class Services:
    """The open services of a server."""

    components: Components
    broker: Broker
    authenticator: Authenticator | None
    sessions: Sessions | None
    loops: BackgroundLoops
    servers: ServerDirectory


@asynccontextmanager
async def open_services(
    settings: Settings, metrics: Metrics, counters: Counters, clock: Clock, backends: Backends
) -> AsyncGenerator[Services]:
    """Open the store, the lock backend, the broker and the background loops; close them in reverse order.

    `counters` receives the events that the metrics count.
    """
    async with AsyncExitStack() as stack:
        wait_queue: WaitQueue[int] = WaitQueue(clock)
        store = await backends.open_store(
            settings.store_url, clock, settings.database_connections, metrics.record_batch
        )
        stack.push_async_callback(store.close)
        await _claim_database(store, settings)
        locks = backends.open_locks(await _shared_redis(settings, store), wait_queue, clock, _report)
        stack.push_async_callback(locks.close)
        await locks.start()
        sharing = SeenSharing(store, locks.record, clock, _report)
        await sharing.catch_up()
        components = _components(settings, store, locks, wait_queue, counters, clock)
        stack.push_async_callback(components.topic_cache.close)
        stack.push_async_callback(components.queue_cache.close)
        stack.push_async_callback(components.durability.close)
        stack.push_async_callback(_flush, components.volatile_buffer, settings.shutdown_grace_seconds)
        authenticator = sessions = None
        if not settings.insecure_no_auth:
            authenticator = Authenticator(store.keys, clock, anonymous_without_keys=settings.is_loopback)
            stack.push_async_callback(authenticator.close)
            sessions = Sessions(store.sessions, authenticator, clock)
            stack.push_async_callback(sessions.close)
        broker = assemble(components)
        loops = BackgroundLoops(broker, authenticator, _intervals(settings), _report, metrics.record_pass)
        _connect_notifications(locks, components, loops)
        loops.start()
        stack.push_async_callback(loops.stop)
        sharing.start()
        stack.push_async_callback(sharing.stop)
        yield Services(components, broker, authenticator, sessions, loops, locks.servers)


def _intervals(settings: Settings) -> Intervals:
    return Intervals(
        settings.sweep_interval_seconds, settings.seal_interval_seconds, from_seconds(settings.state_retention_seconds)
    )


class ServerApplication:
    """The ASGI application of one server process: its lifespan and its requests."""

    def __init__(self, settings: Settings, backends: Backends = BACKENDS) -> None:
        self._settings = settings
        self._backends = backends
        self._metrics = Metrics()
        self._activity: Activity | None = None
        self._middleware: RequestIdMiddleware | None = None

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Run the lifespan, or answer one request."""
        if scope["type"] == "lifespan":
            return self._run_lifespan(receive, send)
        assert self._middleware is not None, "Requests arrive only while the services are open."
        return self._middleware(scope, receive, send)

    @asynccontextmanager
    async def open(self, clock: Clock) -> AsyncGenerator[Services]:
        """Open the services on this clock, and answer requests with them until the end of the block."""
        if self._settings.console or self._settings.redis_url is not None:
            self._activity = Activity(self._metrics, clock, this_server(clock))
        counters = self._activity or self._metrics
        opened = open_services(self._settings, self._metrics, counters, clock, self._backends)
        async with opened as services, AsyncExitStack() as stack:
            context = self._context(services)
            stack.push_async_callback(context.metrics_page.close)
            application = self._interfaces(context)
            if self._activity is not None:
                reporting = Reporting(self._activity, services.servers, _report)
                application = await self._with_console(application, context, services, reporting, stack)
            self._middleware = RequestIdMiddleware(at_public_address(application, self._settings.public_address))
            yield services

    def _interfaces(self, context: AppContext) -> ASGI:
        """Return the application that answers programs: the API, and requests of AWS SDKs unless that is switched off."""
        api = build_application(context)
        settings = self._settings
        return with_access_log(with_sqs(api, context, settings.sqs_url) if settings.sqs else api)

    async def _with_console(
        self, api: ASGI, context: AppContext, services: Services, reporting: Reporting, stack: AsyncExitStack
    ) -> ASGI:
        """Return the application with a console, if it has one. Without one, this server still reports to the others."""
        if not self._settings.console:
            await stack.enter_async_context(reporting.without_console(context.broker.clock))
            return api
        report_url = self._settings.console_report_url
        console = open_console(context, services.sessions, reporting, str(report_url) if report_url else None)
        return with_console(api, await stack.enter_async_context(console))

    def drain(self, services: Services) -> None:
        """Report the drain first, then end the waits of all receivers, which answer with what they have, and all views."""
        if self._middleware is not None:
            self._middleware.is_draining = True
        if self._activity is not None:
            self._activity.close()
        services.components.wait_queue.close()

    async def _run_lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        async with AsyncExitStack() as stack:
            try:
                services = await stack.enter_async_context(self.open(SystemClock()))
            except Exception as error:
                log.error("cannot serve", reason=str(error), cause=str(error.__cause__ or ""))
                await send({"type": "lifespan.startup.failed", "message": ""})
                raise
            _on_stop(partial(self.drain, services))
            _tune_garbage_collector()
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})

    @property
    def _is_draining(self) -> bool:
        return self._middleware is not None and self._middleware.is_draining

    def _context(self, services: Services) -> AppContext:
        parts = services.components
        statistics = QueueStatistics(parts.store.queues, parts.lock_store, self._metrics, parts.clock)
        return AppContext(
            services.broker,
            services.authenticator,
            self._metrics,
            self._settings.max_request_bytes,
            self._settings.long_poll_cap_seconds,
            lambda: self._is_draining,
            ByteBudget(_request_budget(self._settings), Overloaded),
            parts.response_limits.budget,
            MetricsPage(self._metrics, statistics, parts.clock),
            _secret(self._settings.metrics_key),
            self._settings.metrics_per_queue,
            self._settings.is_loopback,
            frozenset(origin.encode() for origin in self._settings.allowed_origins),
            self._settings.guide_dir,
            self._settings.console,
            _secret(self._settings.sqs_secret),
        )


def this_server(clock: Clock) -> Server:
    """Return what this process tells the other servers about itself."""
    return Server(secrets.token_hex(8), socket.gethostname(), os.getpid(), __version__, clock.now())


def create() -> ServerApplication:
    """Return the application of a server process, with the settings of its environment. uvicorn calls it per process."""
    settings = Settings()
    configure(settings.log_format, settings.log_level)
    stop_with_parent(partial(log.warning, "the parent process has ended; this process stops too"))
    return ServerApplication(settings)


def _components(
    settings: Settings, store: Store, locks: LockBackend, wait_queue: WaitQueue[int], counters: Counters, clock: Clock
) -> Components:
    queue_cache = QueueCache(store.queues, clock, auto_create=settings.creates_queues, max_queues=settings.max_queues)
    return Components(
        store=store,
        lock_store=locks.locks,
        consumers=locks.consumers,
        queue_cache=queue_cache,
        topic_cache=TopicCache(store.topics, clock),
        wait_queue=wait_queue,
        notifier=locks.notifier,
        volatile_buffer=VolatileBuffer(
            store, queue_cache.reload_for_send, clock, _report_dropped, settings.max_volatile_bytes
        ),
        durability=DurabilityCheck(store, clock, is_required=settings.require_durable_store),
        searches=SearchRegistry(clock, settings.max_filtered_receivers),
        counters=counters,
        clock=clock,
        random_fraction=random.random,
        new_id=_new_message_id,
        response_limits=ResponseLimits(
            ByteBudget(settings.max_answer_bytes_in_flight, Overloaded), settings.max_answer_bytes
        ),
        transactions_per_principal=settings.max_transactions_per_principal,
    )


async def _claim_database(store: Store, settings: Settings) -> None:
    """Claim the database: exclusively without Redis, else shared with other processes that use Redis."""
    for warning in await store.acquire_exclusive() if settings.redis_url is None else await store.acquire_shared():
        log.warning(warning)


async def _shared_redis(settings: Settings, store: Store) -> RedisOptions | None:
    url = _secret(settings.redis_url)
    if url is None:
        return None
    return RedisOptions(url, await store.database_id(), settings.redis_timeout_seconds, settings.redis_prefix)


def _connect_notifications(locks: LockBackend, parts: Components, loops: BackgroundLoops) -> None:
    locks.notifier.on_schedule_changed = loops.wake_schedule
    locks.notifier.on_queues_changed = parts.queue_cache.clear
    locks.notifier.on_messages_available = partial(on_remote_messages, parts.searches, parts.wait_queue)
    connect_notifications(parts)


async def _flush(volatile_buffer: VolatileBuffer, grace_seconds: float) -> None:
    try:
        await asyncio.wait_for(volatile_buffer.close(), grace_seconds)
    except TimeoutError:
        log.error("volatile messages are lost: the store did not answer in time")


def _on_stop(drain: Callable[[], None]) -> None:
    """Drain on a stop signal, before the server stops listening.

    uvicorn waits for open requests and does not end their waits, so its own handler runs after this one.
    """
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        before = signal.getsignal(number)

        def stop(signum: int, frame: FrameType | None, before: object = before) -> None:
            loop.call_soon_threadsafe(drain)
            if callable(before):
                before(signum, frame)

        signal.signal(number, stop)


def _tune_garbage_collector() -> None:
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)


def _new_message_id() -> str:
    return os.urandom(16).hex()


def _request_budget(settings: Settings) -> int:
    """Return the bytes of request bodies in memory: the largest batch must fit while no other body is held."""
    largest = settings.max_request_bytes + MAX_BATCH_COUNT * MESSAGE_OVERHEAD_BYTES
    return max(settings.max_request_bytes_in_flight, largest)


def _secret(value: SecretStr | None) -> str | None:
    return None if value is None else value.get_secret_value()


def _report(name: str, error: BaseException) -> None:
    log.warning("a background task failed and will run again", task=name, error=repr(error))


def _report_dropped(error: Exception, messages: int) -> None:
    log.error("volatile messages could not be stored", messages=messages, error=repr(error))
