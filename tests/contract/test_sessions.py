"""A session stands for one API key until it expires or is ended. Only the digest of its secret is stored."""

import secrets

from app.domain.instant import HOUR
from app.domain.session import Session
from tests.contract.store_fixture import StoreFixture
from tests.contract.test_keys import key


async def session(store_fixture: StoreFixture, key_id: str, lives_for: int = HOUR) -> Session:
    """A new session."""
    now = await store_fixture.store.now()
    return Session(secrets.token_bytes(32), key_id, now, now + lives_for)


async def test_a_session_has_the_key_that_it_stands_for(store_fixture: StoreFixture) -> None:
    keys, sessions = store_fixture.store.keys, store_fixture.store.sessions
    one, other = await key(store_fixture, "one"), await key(store_fixture, "other")
    for added in (one, other):
        await keys.add(added, 2)
    of_one, of_other = await session(store_fixture, "one"), await session(store_fixture, "other")
    await sessions.add(of_one)
    await sessions.add(of_other)
    for added, stands_for in ((of_one, one), (of_other, other)):
        found = await sessions.key_of(added.secret_hash)
        assert found is not None
        assert found.key == stands_for
        assert store_fixture.is_close(found.read_at, await store_fixture.store.now())
    assert await sessions.key_of(bytes(32)) is None


async def test_a_session_shows_that_its_key_was_revoked(store_fixture: StoreFixture) -> None:
    keys, sessions = store_fixture.store.keys, store_fixture.store.sessions
    await keys.add(await key(store_fixture, "one"), 1)
    added = await session(store_fixture, "one")
    await sessions.add(added)
    await keys.revoke("one")
    found = await sessions.key_of(added.secret_hash)
    assert found is not None
    assert found.key.revoked_at is not None


async def test_an_ended_session_has_no_key(store_fixture: StoreFixture) -> None:
    sessions = store_fixture.store.sessions
    await store_fixture.store.keys.add(await key(store_fixture, "one"), 1)
    ended, kept = await session(store_fixture, "one"), await session(store_fixture, "one")
    await sessions.add(ended)
    await sessions.add(kept)
    await sessions.delete(ended.secret_hash)
    await sessions.delete(ended.secret_hash)
    assert await sessions.key_of(ended.secret_hash) is None
    assert await sessions.key_of(kept.secret_hash) is not None


async def test_an_expired_session_has_no_key_and_is_deleted(store_fixture: StoreFixture) -> None:
    sessions = store_fixture.store.sessions
    await store_fixture.store.keys.add(await key(store_fixture, "one"), 1)
    expired, kept = await session(store_fixture, "one", lives_for=60_000_000), await session(store_fixture, "one")
    await sessions.add(expired)
    await sessions.add(kept)
    assert await sessions.key_of(expired.secret_hash) is not None
    await store_fixture.advance_time(61)
    assert await sessions.key_of(expired.secret_hash) is None
    await sessions.add(await session(store_fixture, "one"))
    await sessions.add(expired)  # its place is free again
    assert await sessions.key_of(kept.secret_hash) is not None
