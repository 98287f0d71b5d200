"""A key speaks for its principal while it lives, and a server without keys is open only where that is allowed."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from app.broker.broker import Broker
from app.broker.keys import (
    KEEP_SECONDS,
    LONGEST_KEY,
    Doorkeeper,
    FreshKey,
    adopt_key,
    create_key,
    digest,
    revoke_key,
)
from app.domain.access import KEY_BYTES, KEY_PREFIX, LIVE_KEYS_PER_PRINCIPAL, OPEN_HOUSE, ApiKey, Grant, Right
from app.domain.instant import MINUTE, SECOND
from app.domain.refusals import KeyNotFound, TooManyKeys, Unauthenticated
from tests.clock import VirtualClock, settle

GRANT = Grant(frozenset({Right.SEND}), ("orders",))


@pytest.fixture
async def doorkeeper(broker: Broker, clock: VirtualClock) -> AsyncIterator[Doorkeeper]:
    doorkeeper = Doorkeeper(broker.store.keys, clock, open_without_keys=False)
    yield doorkeeper
    await doorkeeper.close()


async def made(broker: Broker, principal: str = "shop", lasting: int | None = None) -> FreshKey:
    now = broker.clock.now()
    return await create_key(broker.store.keys, principal, GRANT, now, None if lasting is None else now + lasting)


async def is_refused(doorkeeper: Doorkeeper, secret: str | None) -> bool:
    try:
        await doorkeeper.recognise(secret)
    except Unauthenticated:
        return True
    return False


# ---- keys ------------------------------------------------------------------------------------------------------------


async def test_of_a_new_key_only_the_digest_of_its_secret_is_stored(broker: Broker) -> None:
    first, second = await made(broker, lasting=MINUTE), await made(broker)
    assert first.secret.startswith(KEY_PREFIX)
    assert len(first.secret) >= len(KEY_PREFIX) + KEY_BYTES
    assert first.secret != second.secret
    assert first.key.id != second.key.id
    assert await broker.store.keys.by_hash(digest(first.secret)) == first.key
    assert first.key.expires_at == broker.clock.now() + MINUTE


async def test_a_principal_has_so_many_live_keys_and_no_more(broker: Broker) -> None:
    keys = [await made(broker) for _ in range(LIVE_KEYS_PER_PRINCIPAL)]
    with pytest.raises(TooManyKeys):
        await made(broker)
    await revoke_key(broker.store.keys, keys[0].key.id)
    await made(broker)


async def test_a_key_that_does_not_live_cannot_be_revoked(broker: Broker) -> None:
    fresh = await made(broker)
    await revoke_key(broker.store.keys, fresh.key.id)
    for key_id in (fresh.key.id, "none"):
        with pytest.raises(KeyNotFound, match=key_id):
            await revoke_key(broker.store.keys, key_id)


# ---- who speaks ------------------------------------------------------------------------------------------------------


async def test_a_live_key_speaks_for_its_principal(broker: Broker, doorkeeper: Doorkeeper) -> None:
    fresh = await made(broker)
    principal = await doorkeeper.recognise(fresh.secret)
    assert (principal.name, principal.grant, principal.key_id) == ("shop", GRANT, fresh.key.id)
    for secret in (None, "", "pk_unknown"):
        assert await is_refused(doorkeeper, secret)


async def test_a_secret_has_256_characters_at_most(broker: Broker, doorkeeper: Doorkeeper) -> None:
    for secret in ("x" * LONGEST_KEY, "x" * (LONGEST_KEY + 1)):
        await adopt_key(broker.store.keys, secret, secret[-300:], GRANT, broker.clock.now())
        assert await is_refused(doorkeeper, secret) is (len(secret) > LONGEST_KEY)


async def test_a_key_ends_with_its_time(broker: Broker, doorkeeper: Doorkeeper, clock: VirtualClock) -> None:
    fresh = await made(broker, lasting=SECOND)
    assert not await is_refused(doorkeeper, fresh.secret)
    await clock.advance(1)
    assert await is_refused(doorkeeper, fresh.secret), "although it is remembered"


async def test_a_key_that_another_process_revokes_ends_within_seconds(
    broker: Broker, doorkeeper: Doorkeeper, clock: VirtualClock
) -> None:
    fresh = await made(broker)
    assert not await is_refused(doorkeeper, fresh.secret)
    await revoke_key(broker.store.keys, fresh.key.id)
    await clock.advance(KEEP_SECONDS)
    assert await is_refused(doorkeeper, fresh.secret)


async def test_a_key_that_this_process_revokes_ends_at_once(broker: Broker, doorkeeper: Doorkeeper) -> None:
    fresh = await made(broker)
    assert not await is_refused(doorkeeper, fresh.secret)
    await revoke_key(broker.store.keys, fresh.key.id)
    doorkeeper.forget()
    assert await is_refused(doorkeeper, fresh.secret)


async def test_a_key_of_another_secret_is_not_taken_for_this_one(broker: Broker, clock: VirtualClock) -> None:
    fresh = await made(broker)

    class Loose:
        """Keys that are found by a part of their digest."""

        async def by_hash(self, _hashed: bytes) -> ApiKey:
            return replace(fresh.key, secret_hash=digest(fresh.secret))

        async def page(self) -> Sequence[ApiKey]:
            return [fresh.key]

    keys: Any = Loose()
    doorkeeper = Doorkeeper(keys, clock, open_without_keys=False)
    assert not await is_refused(doorkeeper, fresh.secret)
    assert await is_refused(doorkeeper, "pk_another")


# ---- without keys ----------------------------------------------------------------------------------------------------


async def test_a_server_is_open_until_its_first_key_and_does_not_open_again(
    broker: Broker, clock: VirtualClock
) -> None:
    doorkeeper = Doorkeeper(broker.store.keys, clock, open_without_keys=True)
    assert await doorkeeper.recognise(None) == OPEN_HOUSE
    fresh = await made(broker, lasting=SECOND)
    doorkeeper.forget()
    assert await is_refused(doorkeeper, None)
    await revoke_key(broker.store.keys, fresh.key.id)
    await clock.advance(2 * KEEP_SECONDS)
    assert await is_refused(doorkeeper, None)


# ---- upkeep ----------------------------------------------------------------------------------------------------------


async def test_the_use_of_keys_is_noted_once(broker: Broker, doorkeeper: Doorkeeper, clock: VirtualClock) -> None:
    used, unused = await made(broker), await made(broker)
    await clock.advance(1)
    await doorkeeper.recognise(used.secret)
    noted = clock.now()
    for _ in range(2):
        await doorkeeper.note_use()
        keys = {key.id: key.last_used_at for key in await broker.store.keys.page()}
        assert keys == {used.key.id: noted, unused.key.id: None}
        await clock.advance(1)


async def test_closing_ends_the_look_ups_under_way(clock: VirtualClock) -> None:
    class Hanging:
        async def by_hash(self, _hashed: bytes) -> None:
            await asyncio.Event().wait()

        async def page(self) -> None:
            await asyncio.Event().wait()

    keys: Any = Hanging()
    doorkeeper = Doorkeeper(keys, clock, open_without_keys=True)
    asking = [asyncio.ensure_future(doorkeeper.recognise(secret)) for secret in ("pk_some", None)]
    await settle()
    await doorkeeper.close()
    await settle()
    assert [one.cancelled() for one in asking] == [True, True]
