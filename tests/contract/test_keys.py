"""API keys are kept without their secrets until they end. A principal has a limited number of live keys."""

import asyncio
import secrets
from dataclasses import replace

from app.broker.ports.store import Store
from app.domain.access import ApiKey, Grant, Right
from app.domain.instant import HOUR, MINUTE
from tests.contract.store_fixture import StoreFixture


async def key(store_fixture: StoreFixture, name: str, principal: str = "alice", lives_for: int | None = None) -> ApiKey:
    """A new key."""
    now = await store_fixture.store.now()
    expires_at = None if lives_for is None else now + lives_for
    grant = Grant(frozenset({Right.SEND, Right.LISTEN}), ("orders-*", "ünïcode"))
    return ApiKey(name, principal, secrets.token_bytes(32), grant, now, expires_at)


async def test_a_key_is_found_by_the_digest_of_its_secret(store_fixture: StoreFixture) -> None:
    keys = store_fixture.store.keys
    one, other = await key(store_fixture, "one"), await key(store_fixture, "other", lives_for=HOUR)
    assert await keys.add(one, 2)
    assert await keys.add(other, 2)
    for added in (one, other):
        found = await keys.by_hash(added.secret_hash)
        assert found is not None
        assert found.key == added
        assert store_fixture.is_close(found.read_at, await store_fixture.store.now())
    assert await keys.by_hash(bytes(32)) is None


async def test_a_key_is_found_by_its_id(store_fixture: StoreFixture) -> None:
    keys = store_fixture.store.keys
    one, other = await key(store_fixture, "one"), await key(store_fixture, "other")
    for added in (one, other):
        assert await keys.add(added, 2)
    assert await keys.revoke("other")
    found, revoked = await keys.by_id("one"), await keys.by_id("other")
    assert found is not None
    assert found.key == one
    assert store_fixture.is_close(found.read_at, await store_fixture.store.now())
    assert revoked is not None
    assert revoked.key.revoked_at is not None
    assert await keys.by_id("none") is None


async def test_every_key_is_listed_oldest_first(store_fixture: StoreFixture) -> None:
    first, second, third = [await key(store_fixture, name, name) for name in ("c", "a", "b")]
    first, third = replace(first, created_at=1), replace(third, created_at=2**40)
    for added in (third, second, first):
        await store_fixture.store.keys.add(added, 1)
    assert [key.id for key in await store_fixture.store.keys.list_all()] == ["c", "b", "a"]


async def test_a_principal_has_a_limited_number_of_live_keys(store_fixture: StoreFixture) -> None:
    keys = store_fixture.store.keys
    one, two, three = [await key(store_fixture, name) for name in ("1", "2", "3")]
    assert [await keys.add(one, 2), await keys.add(two, 2), await keys.add(three, 2)] == [True, True, False]
    assert await keys.by_hash(three.secret_hash) is None
    assert await keys.add(await key(store_fixture, "4", "bob"), 2)
    assert await keys.revoke("1")
    assert await keys.add(three, 2)


async def test_an_expired_key_does_not_count(store_fixture: StoreFixture) -> None:
    keys = store_fixture.store.keys
    assert await keys.add(await key(store_fixture, "1", lives_for=MINUTE), 1)
    assert not await keys.add(await key(store_fixture, "2"), 1)
    await store_fixture.advance_time(61)
    assert await keys.add(await key(store_fixture, "2"), 1)


async def test_of_concurrently_added_keys_only_the_limit_is_stored(
    store_fixture: StoreFixture, stores: list[Store]
) -> None:
    keys_to_add = [await key(store_fixture, f"{index}") for index in range(10)]
    stored = await asyncio.gather(*(stores[p % 2].keys.add(key_to_add, 2) for p, key_to_add in enumerate(keys_to_add)))
    assert sum(stored) == 2
    assert {key.id for key in await store_fixture.store.keys.list_all()} == {
        key_to_add.id for key_to_add, was_stored in zip(keys_to_add, stored, strict=True) if was_stored
    }


async def test_a_revoked_key_is_kept_and_not_live(store_fixture: StoreFixture) -> None:
    keys = store_fixture.store.keys
    added = await key(store_fixture, "1")
    await keys.add(added, 2)
    assert await keys.revoke("1")
    found = await keys.by_hash(added.secret_hash)
    assert found is not None
    revoked, now = found.key, await store_fixture.store.now()
    assert store_fixture.is_close(revoked.revoked_at, now)
    assert not revoked.is_live(now)
    assert not await keys.revoke("1")
    assert not await keys.revoke("nobody")
    again = await keys.by_hash(added.secret_hash)
    assert again is not None
    assert again.key == revoked


async def test_an_expired_key_cannot_be_revoked(store_fixture: StoreFixture) -> None:
    await store_fixture.store.keys.add(await key(store_fixture, "1", lives_for=MINUTE), 2)
    await store_fixture.advance_time(61)
    assert not await store_fixture.store.keys.revoke("1")


async def test_the_last_use_is_recorded(store_fixture: StoreFixture) -> None:
    keys = store_fixture.store.keys
    for name in ("1", "2", "3"):
        await keys.add(await key(store_fixture, name, name), 2)
    await keys.record_use(["3", "1", "nobody"])
    now = await store_fixture.store.now()
    by_id = {key.id: key.last_used_at for key in await keys.list_all()}
    assert store_fixture.is_close(by_id["1"], now)
    assert store_fixture.is_close(by_id["3"], now)
    assert by_id["2"] is None


async def test_has_live_reports_whether_a_live_key_exists(store_fixture: StoreFixture) -> None:
    keys = store_fixture.store.keys
    assert not await keys.has_live()
    await keys.add(await key(store_fixture, "1", lives_for=MINUTE), 2)
    await keys.add(await key(store_fixture, "2"), 2)
    assert await keys.has_live()
    assert await keys.revoke("2")
    assert await keys.has_live()
    await store_fixture.advance_time(61)
    assert not await keys.has_live()


async def test_a_secret_added_concurrently_is_stored_once(store_fixture: StoreFixture, stores: list[Store]) -> None:
    secret = secrets.token_bytes(32)
    keys_to_add = [replace(await key(store_fixture, f"{index}"), secret_hash=secret) for index in range(6)]
    assert all(
        await asyncio.gather(*(stores[p % 2].keys.add(key_to_add, 1) for p, key_to_add in enumerate(keys_to_add)))
    )
    (stored,) = await store_fixture.store.keys.list_all()
    assert stored.secret_hash == secret
    assert await store_fixture.store.keys.revoke(stored.id)
    assert await stores[1].keys.add(keys_to_add[0], 1)
    assert not await store_fixture.store.keys.has_live()
