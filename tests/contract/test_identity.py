"""A database has a unique identity that never changes, and a store says how safe its messages are."""

import re

import pytest

from app.broker.ports.store import Store
from app.domain.queue import Queue
from app.store.open import open_store
from tests.contract.conftest import STORES
from tests.contract.store_fixture import StoreFixture, claim, completion, numbers
from tests.virtual_clock import VirtualClock


async def test_every_process_sees_the_same_identity(store_fixture: StoreFixture, stores: list[Store]) -> None:
    (identity,) = {await store.database_id() for store in stores}
    assert re.fullmatch("[0-9a-f]{32}", identity)


async def test_separately_created_databases_have_different_identities() -> None:
    one, other = await open_store("sqlite://", VirtualClock()), await open_store("sqlite://", VirtualClock())
    assert await one.database_id() != await other.database_id()
    for store in (one, other):
        await store.close()


ENGINES = {"sqlite": "sqlite", "memory": "sqlite", "postgresql": "postgresql", "postgresql-shared": "postgresql"}


@pytest.mark.behaviour("S1.23")
@pytest.mark.parametrize(
    ("store_fixture", "engine"), [(store, ENGINES.get(store, "mysql")) for store in STORES], indirect=["store_fixture"]
)
async def test_a_store_names_its_engine(store_fixture: StoreFixture, engine: str) -> None:
    assert store_fixture.store.engine == engine


@pytest.mark.parametrize(
    ("store_fixture", "risks"), [(store, int(store == "memory")) for store in STORES], indirect=["store_fixture"]
)
async def test_a_store_is_durable_unless_it_is_in_memory(store_fixture: StoreFixture, risks: int) -> None:
    assert len(await store_fixture.store.durability_risks()) == risks


@pytest.mark.behaviour("S1.23")
async def test_a_store_keeps_returns_and_removes_a_message(store_fixture: StoreFixture, queue: Queue) -> None:
    store = store_fixture.store
    (sent,) = await store_fixture.send(queue, b"kept")
    kept = await store.read(queue.id, sent)
    assert kept is not None
    assert kept.body == b"kept"
    (message,) = await store.claim(claim(queue))
    assert numbers([message]) == [sent]
    assert await store.remove([completion(queue, message)]) == [True]
    assert await store.read(queue.id, sent) is None
