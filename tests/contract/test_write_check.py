"""Every store reports whether it accepts writes."""

from tests.contract.store_fixture import StoreFixture


async def test_a_check_leaves_nothing_in_the_database(store_fixture: StoreFixture) -> None:
    for _ in range(2):
        await store_fixture.store.check_writable()
    assert await store_fixture.execute("SELECT count(*) FROM attempt") == [(0,)]
