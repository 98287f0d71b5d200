"""A live key authenticates its principal, and a server without keys is open only where that is allowed."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from app.broker.access.keys import (
    CACHE_SECONDS,
    MAX_SECRET_LENGTH,
    Authenticator,
    NewApiKey,
    adopt_key,
    create_key,
    get_key,
    hash_secret,
    revoke_key,
)
from app.broker.access.sessions import Sessions
from app.domain.access import (
    ANONYMOUS,
    KEY_BYTES,
    KEY_PREFIX,
    MAX_LIVE_KEYS_PER_PRINCIPAL,
    ApiKey,
    Grant,
    ReadKey,
    Right,
)
from app.domain.instant import HOUR, MINUTE, SECOND
from app.domain.refusals import KeyNotFound, StoreUnavailable, TooManyKeys, Unauthenticated
from tests.brokers import OpenBroker
from tests.virtual_clock import VirtualClock, run_ready_tasks

GRANT = Grant(frozenset({Right.SEND}), ("orders",))
UNKNOWN_ID = "0" * 16
NO_STORE: Any = None


@pytest.fixture
async def authenticator(broker: OpenBroker, clock: VirtualClock) -> AsyncIterator[Authenticator]:
    authenticator = Authenticator(broker.store.keys, clock, anonymous_without_keys=False)
    yield authenticator
    await authenticator.close()


async def create(broker: OpenBroker, principal: str = "shop", lasting: int | None = None) -> NewApiKey:
    now = broker.clock.now()
    return await create_key(broker.store.keys, principal, GRANT, now, None if lasting is None else now + lasting)


async def is_refused(authenticator: Authenticator, secret: str | None) -> bool:
    try:
        await authenticator.authenticate(secret)
    except Unauthenticated:
        return True
    return False


# ---- keys ------------------------------------------------------------------------------------------------------------


async def test_only_the_digest_of_a_secret_is_stored(broker: OpenBroker) -> None:
    first, second = await create(broker, lasting=MINUTE), await create(broker)
    assert first.secret.startswith(KEY_PREFIX)
    assert len(first.secret) >= len(KEY_PREFIX) + KEY_BYTES
    assert first.secret != second.secret
    assert first.key.id != second.key.id
    assert await broker.store.keys.by_hash(hash_secret(first.secret)) == ReadKey(first.key, broker.clock.now())
    assert first.key.expires_at == broker.clock.now() + MINUTE


async def test_the_live_keys_of_a_principal_are_limited(broker: OpenBroker) -> None:
    keys = [await create(broker) for _ in range(MAX_LIVE_KEYS_PER_PRINCIPAL)]
    with pytest.raises(TooManyKeys):
        await create(broker)
    await revoke_key(broker.store.keys, keys[0].key.id)
    await create(broker)


async def test_only_a_live_key_can_be_revoked(broker: OpenBroker) -> None:
    created = await create(broker)
    await revoke_key(broker.store.keys, created.key.id)
    for key_id in (created.key.id, UNKNOWN_ID):
        with pytest.raises(KeyNotFound, match=key_id):
            await revoke_key(broker.store.keys, key_id)


async def test_a_key_is_read_by_its_id_live_or_not(broker: OpenBroker) -> None:
    created = await create(broker)
    assert await get_key(broker.store.keys, created.key.id) == created.key
    await revoke_key(broker.store.keys, created.key.id)
    assert (await get_key(broker.store.keys, created.key.id)).revoked_at == broker.clock.now()
    with pytest.raises(KeyNotFound, match=UNKNOWN_ID):
        await get_key(broker.store.keys, UNKNOWN_ID)


@pytest.mark.parametrize(
    "key_id", ["", "none", "0" * 15, "0" * 17, "A" * 16, "é" * 16, "0" * 15 + "\0", "0" * 15 + " "]
)
async def test_an_id_that_no_key_can_have_reaches_no_store(clock: VirtualClock, key_id: str) -> None:
    for verb in (get_key, revoke_key):
        with pytest.raises(KeyNotFound):
            await verb(NO_STORE, key_id)
    assert await Authenticator(NO_STORE, clock, anonymous_without_keys=False).find_key(key_id) is None


# ---- authentication --------------------------------------------------------------------------------------------------


async def test_a_live_key_authenticates_its_principal(broker: OpenBroker, authenticator: Authenticator) -> None:
    created = await create(broker)
    principal = await authenticator.authenticate(created.secret)
    assert (principal.name, principal.grant, principal.key_id) == ("shop", GRANT, created.key.id)
    for secret in (None, "", "pk_unknown"):
        assert await is_refused(authenticator, secret)


async def test_a_secret_has_at_most_256_characters(broker: OpenBroker, authenticator: Authenticator) -> None:
    for secret in ("x" * MAX_SECRET_LENGTH, "x" * (MAX_SECRET_LENGTH + 1)):
        await adopt_key(broker.store.keys, secret, secret[-300:], GRANT, broker.clock.now())
        assert await is_refused(authenticator, secret) is (len(secret) > MAX_SECRET_LENGTH)


async def test_a_cached_key_expires_on_time(
    broker: OpenBroker, authenticator: Authenticator, clock: VirtualClock
) -> None:
    created = await create(broker, lasting=SECOND)
    assert not await is_refused(authenticator, created.secret)
    await clock.advance(1)
    assert await is_refused(authenticator, created.secret), "although it is cached"


@pytest.mark.parametrize("ahead", [-HOUR, HOUR])
async def test_a_key_ends_by_the_clock_of_the_store(broker: OpenBroker, clock: VirtualClock, ahead: int) -> None:
    """The store's clock is an hour behind that of the process, or ahead of it."""
    created = await create(broker)
    expiring = replace(created.key, expires_at=clock.now() + ahead + MINUTE)

    class Elsewhere:
        """A store with a clock of its own."""

        async def by_hash(self, _hashed: bytes) -> ReadKey:
            return ReadKey(expiring, clock.now() + ahead)

    keys: Any = Elsewhere()
    authenticator = Authenticator(keys, clock, anonymous_without_keys=False)
    await clock.advance(59)
    assert not await is_refused(authenticator, created.secret)
    await clock.advance(1)
    assert await is_refused(authenticator, created.secret), "although it is cached"


async def test_a_slow_store_prolongs_no_key(broker: OpenBroker, clock: VirtualClock) -> None:
    created = await create(broker, lasting=SECOND)

    class Slow:
        """A store whose answer takes a second."""

        async def by_hash(self, _hashed: bytes) -> ReadKey:
            read = ReadKey(created.key, clock.now())
            await clock.advance(1)
            return read

    keys: Any = Slow()
    assert await is_refused(Authenticator(keys, clock, anonymous_without_keys=False), created.secret)


async def test_a_key_revoked_by_another_process_ends_within_seconds(
    broker: OpenBroker, authenticator: Authenticator, clock: VirtualClock
) -> None:
    created = await create(broker)
    assert not await is_refused(authenticator, created.secret)
    await revoke_key(broker.store.keys, created.key.id)
    await clock.advance(CACHE_SECONDS)
    assert await is_refused(authenticator, created.secret)


async def test_a_key_revoked_by_this_process_ends_at_once(broker: OpenBroker, authenticator: Authenticator) -> None:
    created = await create(broker)
    assert not await is_refused(authenticator, created.secret)
    await revoke_key(broker.store.keys, created.key.id)
    authenticator.clear_cache()
    assert await is_refused(authenticator, created.secret)


async def test_a_live_key_is_found_by_its_id(
    broker: OpenBroker, authenticator: Authenticator, clock: VirtualClock
) -> None:
    created = await create(broker, lasting=MINUTE)
    assert await authenticator.find_key(created.key.id) == created.key
    assert await authenticator.find_key(UNKNOWN_ID) is None
    await clock.advance(60)
    assert await authenticator.find_key(created.key.id) is None


async def test_a_key_found_by_its_id_ends_when_it_is_revoked(
    broker: OpenBroker, authenticator: Authenticator, clock: VirtualClock
) -> None:
    first, second = await create(broker), await create(broker)
    for created in (first, second):
        assert await authenticator.find_key(created.key.id) == created.key
        await revoke_key(broker.store.keys, created.key.id)
        assert await authenticator.find_key(created.key.id) == created.key, "another process has revoked it"
        if created is first:
            authenticator.clear_cache()
        else:
            await clock.advance(CACHE_SECONDS)
        assert await authenticator.find_key(created.key.id) is None


async def test_a_key_with_another_secret_is_refused(broker: OpenBroker, clock: VirtualClock) -> None:
    created = await create(broker)

    class Loose:
        """A store that finds a key for every digest."""

        async def by_hash(self, _hashed: bytes) -> ReadKey:
            return ReadKey(replace(created.key, secret_hash=hash_secret(created.secret)), clock.now())

        async def list_all(self) -> Sequence[ApiKey]:
            return [created.key]

    keys: Any = Loose()
    authenticator = Authenticator(keys, clock, anonymous_without_keys=False)
    assert not await is_refused(authenticator, created.secret)
    assert await is_refused(authenticator, "pk_another")


# ---- without keys ----------------------------------------------------------------------------------------------------


async def test_a_server_without_keys_is_open_until_its_first_key_and_never_again(
    broker: OpenBroker, clock: VirtualClock
) -> None:
    authenticator = Authenticator(broker.store.keys, clock, anonymous_without_keys=True)
    assert await authenticator.authenticate(None) == ANONYMOUS
    created = await create(broker, lasting=SECOND)
    authenticator.clear_cache()
    assert await is_refused(authenticator, None)
    await revoke_key(broker.store.keys, created.key.id)
    await clock.advance(2 * CACHE_SECONDS)
    assert await is_refused(authenticator, None)


# ---- maintenance -----------------------------------------------------------------------------------------------------


async def test_the_use_of_a_key_is_recorded_once(
    broker: OpenBroker, authenticator: Authenticator, clock: VirtualClock
) -> None:
    used, unused = await create(broker), await create(broker)
    await clock.advance(1)
    await authenticator.authenticate(used.secret)
    noted = clock.now()
    for _ in range(2):
        await authenticator.record_use()
        keys = {key.id: key.last_used_at for key in await broker.store.keys.list_all()}
        assert keys == {used.key.id: noted, unused.key.id: None}
        await clock.advance(1)


async def test_a_session_uses_its_key(broker: OpenBroker, authenticator: Authenticator, clock: VirtualClock) -> None:
    created = await create(broker)
    sessions = Sessions(broker.store.sessions, authenticator, clock)
    session = await sessions.sign_in(created.secret)
    await authenticator.record_use()
    await clock.advance(60)
    await sessions.find(session)
    await authenticator.record_use()
    assert [key.last_used_at for key in await broker.store.keys.list_all()] == [clock.now()]
    await sessions.close()


async def test_a_use_that_could_not_be_stored_is_stored_later(clock: VirtualClock) -> None:
    live = ApiKey("1", "reader", hash_secret("secret"), GRANT, clock.now())

    class Unavailable:
        def __init__(self) -> None:
            self.stored: list[str] = []
            self.is_away = True

        async def by_hash(self, _hashed: bytes) -> ReadKey:
            return ReadKey(live, clock.now())

        async def record_use(self, key_ids: Sequence[str]) -> None:
            if self.is_away:
                self.is_away = False
                raise StoreUnavailable("The database is away.")
            self.stored += key_ids

    keys: Any = Unavailable()
    authenticator = Authenticator(keys, clock, anonymous_without_keys=False)
    await authenticator.authenticate("secret")
    with pytest.raises(StoreUnavailable):
        await authenticator.record_use()
    await authenticator.record_use()
    assert keys.stored == ["1"]
    await authenticator.close()


async def test_close_cancels_lookups_in_progress(clock: VirtualClock) -> None:
    class Hanging:
        async def by_hash(self, _hashed: bytes) -> None:
            await asyncio.Event().wait()

        async def list_all(self) -> None:
            await asyncio.Event().wait()

    keys: Any = Hanging()
    authenticator = Authenticator(keys, clock, anonymous_without_keys=True)
    lookups = [asyncio.ensure_future(authenticator.authenticate(secret)) for secret in ("pk_some", None)]
    await run_ready_tasks()
    await authenticator.close()
    await run_ready_tasks()
    assert [lookup.cancelled() for lookup in lookups] == [True, True]
