"""Opens every room of a server in order and closes them in reverse: the only place that knows them all."""

import asyncio
import gc
import random
import secrets
import signal
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from types import FrameType

import structlog
from pydantic import SecretStr

from app.api.application import build
from app.api.bodies import Receive, Scope, Send
from app.api.desk import Desk
from app.api.figures import Figures
from app.api.front import Front
from app.api.metrics import Metrics
from app.broker import announce
from app.broker.broker import Broker
from app.broker.catalogue import Catalogue
from app.broker.keys import Doorkeeper
from app.broker.outbox import Outbox
from app.broker.ports import Store
from app.broker.searches import Searches
from app.domain.refusals import Overloaded
from app.locks.open import LockRoom, SharedRedis, open_locks
from app.logs import configure
from app.maintenance.passes import Passes, Rhythm
from app.runtime.bell import Bell
from app.runtime.byte_budget import ByteBudget
from app.runtime.clock import Clock, SystemClock
from app.settings import Settings
from app.store.open import open_store

log = structlog.get_logger("peeklock")

GARBAGE_THRESHOLD = 50_000
"""Fewer collections: hot requests make no cycles, and what start-up made is frozen."""


@dataclass(frozen=True, slots=True)
class House:
    """A server's rooms, open."""

    broker: Broker
    doorkeeper: Doorkeeper | None


@asynccontextmanager
async def open_house(settings: Settings, metrics: Metrics, clock: Clock) -> AsyncGenerator[House]:
    """Open store, lock store, verbs and background passes; close them in reverse."""
    async with AsyncExitStack() as rooms:
        bell: Bell[int] = Bell(clock)
        store = await open_store(settings.store_url, clock, settings.database_connections, metrics.batch)
        rooms.push_async_callback(store.close)
        await _share(store, settings)
        locks = open_locks(await _shared_redis(settings, store), bell, clock, _report)
        rooms.push_async_callback(locks.close)
        await locks.begin()
        broker = _broker(settings, store, locks, bell, metrics, clock)
        rooms.push_async_callback(broker.catalogue.close)
        rooms.push_async_callback(_flush, broker.outbox, settings.shutdown_grace_seconds)
        doorkeeper = None
        if not settings.insecure_no_auth:
            doorkeeper = Doorkeeper(store.keys, clock, open_without_keys=settings.is_loopback)
            rooms.push_async_callback(doorkeeper.close)
        rhythm = Rhythm(settings.sweep_interval_seconds, settings.seal_interval_seconds)
        passes = Passes(broker, doorkeeper, rhythm, _report, metrics.passed)
        _connect(locks, broker, passes)
        passes.start()
        rooms.push_async_callback(passes.stop)
        yield House(broker, doorkeeper)


class Server:
    """The ASGI application of one server process: its life, and the requests in between."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._metrics = Metrics()
        self._front: Front | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Live, or answer one request."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif self._front is not None:
            await self._front(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        async with AsyncExitStack() as rooms:
            try:
                house = await rooms.enter_async_context(open_house(self._settings, self._metrics, SystemClock()))
                desk = self._desk(house)
                rooms.push_async_callback(desk.figures.close)
                self._front = Front(build(desk))
            except Exception as error:
                log.error("cannot serve", reason=str(error))
                await send({"type": "lifespan.startup.failed", "message": ""})
                raise
            _on_stop(partial(self._drain, house))
            _settle_garbage()
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})

    @property
    def _is_draining(self) -> bool:
        return self._front is not None and self._front.draining

    def _desk(self, house: House) -> Desk:
        return Desk(
            house.broker,
            house.doorkeeper,
            self._metrics,
            self._settings.max_request_bytes,
            self._settings.long_poll_cap_seconds,
            lambda: self._is_draining,
            # A body of the largest size that is allowed has room at least while there is no other.
            ByteBudget(max(self._settings.max_request_bytes_in_flight, self._settings.max_request_bytes), Overloaded),
            Figures(house.broker),
            _secret(self._settings.metrics_key),
            self._settings.metrics_per_queue,
            self._settings.is_loopback,
        )

    def _drain(self, house: House) -> None:
        """Say so first, then let every waiting receiver answer with what it has."""
        if self._front is not None:
            self._front.draining = True
        house.broker.waiting.close()


def create() -> Server:
    """A server process with the settings of its environment; what uvicorn calls in each of them."""
    settings = Settings()
    configure(settings.log_format, settings.log_level)
    return Server(settings)


def _broker(
    settings: Settings, store: Store, locks: LockRoom, bell: Bell[int], metrics: Metrics, clock: Clock
) -> Broker:
    catalogue = Catalogue(store.queues, clock, auto_create=settings.creates_queues, most_queues=settings.max_queues)
    return Broker(
        store=store,
        locks=locks.locks,
        catalogue=catalogue,
        waiting=bell,
        bells=locks.wake_ups,
        outbox=Outbox(store, catalogue.looked_up, clock, _dropped, settings.max_volatile_bytes),
        searches=Searches(clock, settings.max_filtered_receivers),
        tally=metrics,
        clock=clock,
        chance=random.random,
        new_id=partial(secrets.token_hex, 16),
        answers=ByteBudget(settings.max_answer_bytes_in_flight, Overloaded),
        largest_answer=settings.max_answer_bytes,
    )


async def _share(store: Store, settings: Settings) -> None:
    """Make sure that processes which do not know of each other do not work on one database."""
    for warning in await store.claim_alone() if settings.redis_url is None else await store.claim_shared():
        log.warning(warning)


async def _shared_redis(settings: Settings, store: Store) -> SharedRedis | None:
    url = _secret(settings.redis_url)
    if url is None:
        return None
    return SharedRedis(url, await store.identity(), settings.redis_timeout_seconds, settings.redis_prefix)


def _connect(locks: LockRoom, broker: Broker, passes: Passes) -> None:
    locks.wake_ups.on_schedule_changed = passes.wake_schedule
    locks.wake_ups.on_queues_changed = broker.catalogue.forget_all
    locks.wake_ups.on_passed = partial(announce.hear_of_passed, broker)
    announce.connect(broker)


async def _flush(outbox: Outbox, grace_seconds: float) -> None:
    try:
        await asyncio.wait_for(outbox.close(), grace_seconds)
    except TimeoutError:
        log.error("volatile messages are lost: the store did not answer in time")


def _on_stop(drain: Callable[[], None]) -> None:
    """Drain when the process is told to stop, before the server stops listening.

    uvicorn waits for open requests and does not wake them, so its own handler is called after ours.
    """
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        before = signal.getsignal(number)

        def stop(signum: int, frame: FrameType | None, before: object = before) -> None:
            loop.call_soon_threadsafe(drain)
            if callable(before):
                before(signum, frame)

        signal.signal(number, stop)


def _settle_garbage() -> None:
    gc.collect()
    gc.freeze()
    gc.set_threshold(GARBAGE_THRESHOLD)


def _secret(value: SecretStr | None) -> str | None:
    return None if value is None else value.get_secret_value()


def _report(name: str, error: BaseException) -> None:
    log.warning("a background task failed and goes on", task=name, error=repr(error))


def _dropped(error: Exception, messages: int) -> None:
    log.error("volatile messages could not be stored", messages=messages, error=repr(error))
