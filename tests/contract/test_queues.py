"""Queues are created once, found by name and id, changed only if unchanged since read, and listed by name."""

import asyncio

import pytest

from app.broker.administration.range_pages import page_of_ranges
from app.broker.ports.store import Store
from app.domain.access import Grant, Right
from app.domain.instant import HOUR, MINUTE, SECOND
from app.domain.queue import REVOCATION_PERIOD, QueueSettings, QueueStatus
from app.domain.refusals import InvalidRequest, TooManyQueues
from app.domain.retry import ExponentialDelay
from tests.bounds import bounded
from tests.contract.store_fixture import StoreFixture, completion

SETTINGS = QueueSettings(
    lock_duration=7 * SECOND,
    max_delivery_count=3,
    default_ttl=HOUR,
    dead_letter_on_expiry=True,
    duplicate_detection_window=HOUR,
    retry=ExponentialDelay(first=SECOND, factor=1.5, longest=HOUR, jitter=0.25),
    archive_retention=0,
    max_message_bytes=5,
    max_messages=6,
    status=QueueStatus.RECEIVE_DISABLED,
    default_delay=90 * SECOND,
    default_wait=20 * SECOND,
    labels={"sqs:tag": "ünïcode with 'quotes', \\ and 🦀", "": ""},
    description="ünïcode with 'quotes', \\ and 🦀",
)


async def test_a_queue_is_created_once_and_found_as_created(store_fixture: StoreFixture) -> None:
    queues = store_fixture.store.queues
    queue, made = await queues.create("a", SETTINGS)
    assert made
    assert (queue.name, queue.settings, queue.version) == ("a", SETTINGS, 1)
    assert store_fixture.is_close(queue.created_at, await store_fixture.store.now())
    assert store_fixture.is_close(queue.updated_at, queue.created_at)
    again, made_again = await queues.create("a", QueueSettings())
    assert not made_again
    assert again == queue == await queues.by_name("a") == await queues.by_id(queue.id)
    assert queue.settings.status is SETTINGS.status  # which an equal text is not


async def test_a_missing_queue_is_not_found(store_fixture: StoreFixture) -> None:
    assert await store_fixture.store.queues.by_name("a") is None
    assert await store_fixture.store.queues.by_id(10**6) is None


@pytest.mark.parametrize("name", ["", "-a", "a b", "a ", "a\0"])
async def test_a_name_that_no_queue_can_have_is_refused_and_found_nowhere(
    store_fixture: StoreFixture, name: str
) -> None:
    with pytest.raises(InvalidRequest, match="is not a valid queue name"):
        await store_fixture.store.queues.create(name, QueueSettings())
    assert await store_fixture.store.queues.by_name(name) is None


async def test_of_concurrent_creations_of_a_queue_one_succeeds(
    store_fixture: StoreFixture, stores: list[Store]
) -> None:
    for name in ("a", "b", "c"):
        answers = await asyncio.gather(*(stores[p % 2].queues.create(name, QueueSettings()) for p in range(10)))
        assert sum(made for _, made in answers) == 1
        assert len({queue.id for queue, _ in answers}) == 1


async def test_concurrent_creations_of_queues_never_exceed_the_limit(
    store_fixture: StoreFixture, stores: list[Store]
) -> None:
    makes = [store.queues.create(f"queue-{index}", QueueSettings(), 3) for index in range(20) for store in stores]
    for end in await asyncio.gather(*makes, return_exceptions=True):
        assert isinstance(end, tuple | TooManyQueues)
    assert await store_fixture.execute("SELECT COUNT(*) FROM queue") == [(3,)]


async def test_concurrent_creations_of_the_last_allowed_queue_all_get_it(
    store_fixture: StoreFixture, stores: list[Store]
) -> None:
    makes = [store.queues.create("last", QueueSettings(), 1) for store in stores * 8]
    made = await asyncio.gather(*makes)
    assert [is_new for _, is_new in made].count(True) == 1
    assert len({queue.id for queue, _ in made}) == 1


async def test_names_are_compared_exactly(store_fixture: StoreFixture) -> None:
    made = [await store_fixture.store.queues.create(name, QueueSettings()) for name in ("a", "A", "a-b", "a_b", "a.b")]
    assert len({queue.id for queue, was_made in made if was_made}) == 5
    found = await store_fixture.store.queues.by_name("A")
    assert found is not None
    assert found.name == "A"


async def test_pages_are_ordered_by_code_point(store_fixture: StoreFixture) -> None:
    names = ["b", "B", "a1", "a-1", "a.1", "a_1", "a", "Z", "0", "aB", "ab"]
    for name in names:
        await store_fixture.store.queues.create(name, QueueSettings())
    listed: list[str] = []
    for _ in bounded("a page is empty", len(names)):
        page = await store_fixture.store.queues.page(listed[-1] if listed else "", 4)
        assert len(page) <= 4
        if not page:
            break
        listed += [queue.name for queue in page]
    assert listed == sorted(names)


@pytest.mark.parametrize("patterns", [("b*",), ("a", "b-1", "b.*"), ("B*", "b_*", "zz*", "0", "-*", "\x01*", "~*")])
async def test_ranges_of_names_are_listed_alike(store_fixture: StoreFixture, patterns: tuple[str, ...]) -> None:
    names = ["a", "b", "B", "b-1", "b.1", "b.2", "b_1", "b1", "c", "0"]
    for name in names:
        await store_fixture.store.queues.create(name, QueueSettings())
    grant = Grant(frozenset({Right.BROWSE}), patterns)
    found: list[str] = []
    after: str | None = ""
    for _ in bounded("a page has no next one"):
        page, after = await page_of_ranges(store_fixture.store.queues.page, grant.ranges(Right.BROWSE), after or "", 2)
        found += [queue.name for queue in page]
        if after is None:
            break
    assert found == [name for name in sorted(names) if grant.allows(Right.BROWSE, name)]


async def test_a_change_is_a_new_version(store_fixture: StoreFixture) -> None:
    queue, _ = await store_fixture.store.queues.create("a", QueueSettings())
    await store_fixture.advance_time(10)
    changed = await store_fixture.store.queues.change(queue, SETTINGS)
    assert changed is not None
    assert (changed.id, changed.name, changed.settings, changed.version) == (queue.id, "a", SETTINGS, 2)
    assert store_fixture.is_close(changed.updated_at, changed.created_at + 10 * SECOND)
    assert await store_fixture.store.queues.by_name("a") == changed


async def test_a_change_that_revokes_locks_is_recorded_until_they_are_revoked(store_fixture: StoreFixture) -> None:
    queues = store_fixture.store.queues
    first, second = await store_fixture.queue(), await store_fixture.queue()
    for queue in (first, second):
        await store_fixture.locked(queue)
    first = await queues.change(first, QueueSettings(description="what no holder relies on"))
    assert first is not None
    assert await queues.revocations(10) == []
    await queues.change(first, QueueSettings(lock_duration=7 * SECOND))
    await store_fixture.advance_time(1)
    changed = await queues.change(second, QueueSettings(max_delivery_count=3))
    assert changed is not None
    revocation, later_revocation = await queues.revocations(10)
    assert (revocation.queue_id, later_revocation.queue_id) == (first.id, second.id)
    assert await queues.revocations(1) == [revocation]
    await queues.end_revocation(revocation)
    await store_fixture.advance_time(1)
    await queues.change(changed, QueueSettings(max_delivery_count=4))
    await queues.end_revocation(later_revocation)  # which is outdated now
    (last,) = await queues.revocations(10)
    assert last.queue_id == second.id
    assert store_fixture.is_close(last.granted_until, await store_fixture.store.now())


async def test_a_revocation_lasts_until_no_lock_from_before_it_can_appear(store_fixture: StoreFixture) -> None:
    """A receive that was under way during the change commits its locks later."""
    queues = store_fixture.store.queues
    queue = await store_fixture.queue()
    assert await queues.change(queue, QueueSettings(max_delivery_count=3))
    assert await queues.revocations(10) == []
    await store_fixture.advance_time(1)
    locked = await store_fixture.locked(queue)
    assert await queues.revocations(10) == []
    await store_fixture.execute(f"UPDATE message SET last_delivered_at = last_delivered_at - {MINUTE}")
    (revocation,) = await queues.revocations(10)
    assert not revocation.is_over
    assert await store_fixture.store.remove([completion(queue, locked)]) == [True]
    await store_fixture.advance_time(REVOCATION_PERIOD / SECOND)
    (revocation,) = await queues.revocations(10)
    assert revocation.is_over
    await queues.end_revocation(revocation)
    assert await queues.revocations(10) == []


async def test_a_change_revokes_locks_granted_before_the_clock_was_set_back(store_fixture: StoreFixture) -> None:
    queue = await store_fixture.queue()
    await store_fixture.locked(queue)
    await store_fixture.advance_time(-60)
    assert await store_fixture.store.queues.change(queue, QueueSettings(max_delivery_count=3)) is not None
    (revocation,) = await store_fixture.store.queues.revocations(10)
    assert revocation.is_over
    assert len(await store_fixture.store.locks_of_queue(queue.id, revocation.granted_until, 10)) == 1


@pytest.mark.fence("version")
async def test_a_queue_that_has_changed_since_is_neither_changed_nor_deleted(store_fixture: StoreFixture) -> None:
    queues = store_fixture.store.queues
    original, _ = await queues.create("a", QueueSettings())
    changed = await queues.change(original, SETTINGS)
    assert await queues.change(original, QueueSettings()) is None
    assert not await queues.delete(original)
    assert await queues.by_name("a") == changed
    assert changed is not None
    assert await queues.delete(changed)
    assert await queues.by_name("a") is None
    assert await queues.change(changed, SETTINGS) is None
    assert not await queues.delete(changed)


async def test_of_concurrent_changes_one_takes_effect(store_fixture: StoreFixture, stores: list[Store]) -> None:
    queue, _ = await store_fixture.store.queues.create("a", QueueSettings())
    changes_wanted = [QueueSettings(description=f"{index}") for index in range(8)]
    changes = (stores[index % 2].queues.change(queue, settings) for index, settings in enumerate(changes_wanted))
    (only,) = [changed for changed in await asyncio.gather(*changes) if changed]
    assert await store_fixture.store.queues.by_name("a") == only
    assert only.version == 2


async def test_a_change_or_deletion_affects_one_queue(store_fixture: StoreFixture) -> None:
    queues = store_fixture.store.queues
    (one, _), (two, _), (three, _) = [await queues.create(name, QueueSettings()) for name in ("a", "b", "c")]
    await queues.change(one, SETTINGS)
    await queues.delete(two)
    assert await queues.by_name("c") == three
    assert await queues.by_name("b") is None
