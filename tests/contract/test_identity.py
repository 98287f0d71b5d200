"""A database has a unique identity that never changes."""

import re

from app.broker.ports import Store
from app.store.open import open_store
from tests.contract.store_fixture import StoreFixture
from tests.virtual_clock import VirtualClock


async def test_every_process_sees_the_same_identity(store_fixture: StoreFixture, stores: list[Store]) -> None:
    (identity,) = {await store.database_id() for store in stores}
    assert re.fullmatch("[0-9a-f]{32}", identity)


async def test_separately_created_databases_have_different_identities() -> None:
    one, other = await open_store("sqlite://", VirtualClock()), await open_store("sqlite://", VirtualClock())
    assert await one.database_id() != await other.database_id()
    for store in (one, other):
        await store.close()
