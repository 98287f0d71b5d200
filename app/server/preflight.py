"""The checks before a server starts. Each refusal states the reason and the remedy."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from app.broker.access.keys import adopt_key, hash_secret
from app.broker.ports.store import Store
from app.domain.access import ALL_RIGHTS, Grant
from app.domain.refusals import StoreUnavailable, TooManyKeys
from app.runtime.clock import SystemClock
from app.settings import Settings
from app.store.in_use import DatabaseInUse, FileInUse
from app.store.open import BadStoreUrl, open_store
from app.store.schema_check import is_current
from app.store.url import is_in_memory

BOOTSTRAP_PRINCIPAL = "bootstrap"
MIN_BOOTSTRAP_KEY_LENGTH = 32


class RefusedToStart(Exception):
    """The server would be unsafe, or would not work, with these settings."""


async def prepare(settings: Settings) -> bool:
    """Check the settings, bring the embedded database up to date, and store the operator's first key.

    Returns whether callers need a key. Raises `RefusedToStart`.
    """
    _check_processes(settings)
    _check_guide(settings)
    await _check_redis_url(settings)
    async with open_database(settings) as store:
        await _claim_redis_prefix(settings, store)
        await (store.acquire_exclusive() if settings.redis_url is None else store.acquire_shared())
        await _adopt_bootstrap_key(settings, store)
        await _check_access(settings, store)
        return not settings.insecure_no_auth and bool(await store.keys.list_all())


@asynccontextmanager
async def open_database(settings: Settings) -> AsyncGenerator[Store]:
    """Open the database of the settings, with its tables up to date. Raises `RefusedToStart`."""
    try:
        await _check_tables(settings)
        store = await open_store(settings.store_url, SystemClock(), 2)
        try:
            yield store
        finally:
            await store.close()
    except StoreUnavailable as error:
        raise RefusedToStart(with_cause(error)) from error
    except (BadStoreUrl, DatabaseInUse, FileInUse) as error:
        raise RefusedToStart(str(error)) from error


def with_cause(error: StoreUnavailable) -> str:
    """Return the error's text with the driver's message, which is for the operator only, never for clients."""
    return f"{error} ({error.__cause__})" if error.__cause__ is not None and str(error.__cause__) else str(error)


def make_data_directory(settings: Settings) -> None:
    """Make the directory of an embedded database. Raises `RefusedToStart`."""
    if not settings.is_embedded:
        return
    try:
        settings.data_dir.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise RefusedToStart(f"PEEKLOCK_DATA_DIR: {settings.data_dir} is not a directory.") from None
    except OSError as error:
        raise RefusedToStart(f"PEEKLOCK_DATA_DIR: {settings.data_dir} cannot be made: {error.strerror}.") from None


def _check_processes(settings: Settings) -> None:
    if settings.workers == 1:
        return
    if settings.store_url.startswith("sqlite"):
        raise RefusedToStart(
            "Only one process may write SQLite. Use PEEKLOCK_WORKERS=1, or PostgreSQL or MariaDB with Redis."
        )
    if settings.redis_url is None:
        raise RefusedToStart(
            "More than one process needs Redis: without it a message sent to one process would not wake a receiver "
            "that waits in another. Set PEEKLOCK_REDIS_URL, or PEEKLOCK_WORKERS=1."
        )


def _check_guide(settings: Settings) -> None:
    if settings.guide_dir is None:
        return
    from app.api.openapi.guide import HOME  # noqa: PLC0415  # most servers show no guide

    home = settings.guide_dir / HOME
    try:
        home.open("rb").close()
    except OSError as error:
        raise RefusedToStart(
            f"PEEKLOCK_GUIDE_DIR: {home} cannot be read: {error.strerror}. Set it to the directory of the built documentation."
        ) from None


async def _check_redis_url(settings: Settings) -> None:
    """Redis itself need not answer: until then a server works without it."""
    from app.locks.connect import BadLockUrl, connect  # noqa: PLC0415  # a third of a second for commands without it

    if settings.redis_url is None:
        return
    try:
        await connect(settings.redis_url.get_secret_value(), timeout_seconds=settings.redis_timeout_seconds).aclose()
    except BadLockUrl as error:
        raise RefusedToStart(f"PEEKLOCK_REDIS_URL: {error}") from None


async def _claim_redis_prefix(settings: Settings, store: Store) -> None:
    """Refuse a prefix that another broker uses in Redis. While Redis is unavailable, each process checks later."""
    if settings.redis_url is None:
        return
    from app.locks.backend import RedisOptions, acquire_prefix  # noqa: PLC0415  # a third of a second for commands without it
    from app.locks.prefix_ownership import PrefixInUse  # noqa: PLC0415

    url, timeout_seconds = settings.redis_url.get_secret_value(), settings.redis_timeout_seconds
    shared = RedisOptions(url, await store.database_id(), timeout_seconds, settings.redis_prefix)
    try:
        # From here on the store refuses a former primary, where the lock version and the first key would be lost.
        store.learn(await acquire_prefix(shared, store.seen(), SystemClock(), _ignore_error))
    except PrefixInUse as error:
        raise RefusedToStart(str(error)) from None


def _ignore_error(_name: str, _error: BaseException) -> None:
    """Ignore it: each process reports that Redis is unavailable."""


async def _check_tables(settings: Settings) -> None:
    """Check the tables, and migrate those of an embedded database.

    An older server may serve a newer schema, so that a new version can be rolled back.
    """
    make_data_directory(settings)
    if is_in_memory(settings.store_url):
        raise RefusedToStart("A database in memory would end with the server; name a file: sqlite:///peeklock.db")
    if await is_current(settings.store_url):
        return
    from app.store.migrate import SchemaStatus, migrate, schema_status  # noqa: PLC0415  # a second and 30 MiB few need pay

    if await asyncio.to_thread(schema_status, settings.store_url) is not SchemaStatus.BEHIND:
        return
    if not settings.is_embedded:
        raise RefusedToStart("The tables of this database are missing or of an older version. Run: peeklock migrate")
    await asyncio.to_thread(migrate, settings.store_url)


async def _adopt_bootstrap_key(settings: Settings, store: Store) -> None:
    if settings.bootstrap_key is None:
        return
    secret = settings.bootstrap_key.get_secret_value()
    if len(secret) < MIN_BOOTSTRAP_KEY_LENGTH:
        raise RefusedToStart(f"PEEKLOCK_BOOTSTRAP_KEY has fewer than {MIN_BOOTSTRAP_KEY_LENGTH} characters.")
    if await store.keys.by_hash(hash_secret(secret)) is not None:
        return
    try:
        await adopt_key(store.keys, secret, BOOTSTRAP_PRINCIPAL, Grant(ALL_RIGHTS), await store.now())
    except TooManyKeys as error:
        raise RefusedToStart(
            f"PEEKLOCK_BOOTSTRAP_KEY is a third key of {BOOTSTRAP_PRINCIPAL}: revoke an older one first, "
            "with `peeklock key list` and `peeklock key revoke`."
        ) from error


async def _check_access(settings: Settings, store: Store) -> None:
    if settings.is_loopback or settings.insecure_no_auth or await store.keys.has_live():
        return
    raise RefusedToStart(
        f"No API key exists yet: every client that can reach {settings.host} could read and delete messages. "
        "Make a key with `peeklock key create --principal admin` on this machine, or set PEEKLOCK_BOOTSTRAP_KEY, "
        "or, if you are sure, use --insecure-no-auth."
    )
