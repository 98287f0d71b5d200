"""Versioned states: one version for each message, and the same result for its duplicates."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from app.broker.ports.attempts import Attempt
from app.broker.ports.sending import QueueGone
from app.broker.ports.store import Store
from app.broker.ports.transactions import SettlementsFailed
from app.domain.instant import DAY, HOUR, SECOND
from app.domain.queue import Queue
from app.domain.state import LoadedState, StateChange, StateVersion
from app.domain.state_refusals import ResultDiffers, VersionConflict
from app.domain.work_unit import WorkUnit, WorkUnitResult
from app.store.shared.database import Database
from app.store.shared.states import StateRecords
from tests.contract.store_fixture import (
    PostgresqlFixture,
    StoreFixture,
    bodies,
    completion,
    draft,
    token,
    with_wrong_token,
)

KEY = "game.17"
MANY = 1000


def change(message_id: str | None, if_version: int, value: bytes = b"{}", **fields: Any) -> StateChange:
    """A change of the state of `KEY`."""
    values: dict[str, Any] = {"metadata": b"null", "result_digest": b"d" * 32} | fields
    return StateChange(values.pop("key", KEY), if_version, value, message_id=message_id, **values)


async def commit(
    store: Store, *changes: StateChange, settlements: Any = (), drafts: Any = (), attempt: Attempt | None = None
) -> WorkUnitResult:
    """Carry out a unit that changes states."""
    return (await store.execute(WorkUnit(settlements, drafts, changes), attempt)).result


async def numbers_and_values(store: Store, key: str = KEY) -> list[tuple[int, bytes]]:
    """Return the versions that are kept."""
    kept = [await store.states.version(key, one.number) for one in await store.states.history(key, 0, MANY)]
    return [(one.number, one.value) for one in kept if one is not None]


async def trim_all(store: Store, retention: int = DAY) -> int:
    """Run trims until nothing is left to remove. Return how many versions they removed."""
    removed = 0
    while count := await store.states.delete_old_versions(retention, MANY):
        removed += count
    return removed


def loaded(state: LoadedState) -> tuple[int, bytes | None]:
    """Return the number and the captured metadata."""
    return (0 if state.version is None else state.version.number), state.captured


# ---- versions --------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("S4.9", "S4.10")
async def test_a_version_has_its_value_its_metadata_and_its_message(store_fixture: StoreFixture) -> None:
    store = store_fixture.store
    result = await commit(store, change("A", 0, b'{"target": 1}', metadata=b'{"seed": 7}'))
    assert [(version.number, version.duplicate) for version in result.versions] == [(1, False)]
    newest = await store.states.newest(KEY)
    assert newest is not None
    assert newest == StateVersion(1, b'{"target": 1}', b'{"seed": 7}', "A", newest.created_at)
    assert store_fixture.is_close(newest.created_at, await store.now())


async def test_a_key_without_versions_has_no_state(store_fixture: StoreFixture) -> None:
    states = store_fixture.store.states
    assert await states.newest(KEY) is None
    assert await states.version(KEY, 1) is None
    assert await states.history(KEY, 0, MANY) == []
    assert loaded(await states.before_message(KEY, "A")) == (0, None)


@pytest.mark.behaviour("S4.1")
async def test_each_version_can_be_read(store_fixture: StoreFixture) -> None:
    store = store_fixture.store
    for number in range(5):
        await commit(store, change(f"m{number}", number, b"%d" % number))
    for number in range(1, 6):
        version = await store.states.version(KEY, number)
        assert version is not None
        assert version.value == b"%d" % (number - 1)
    assert await store.states.version(KEY, 6) is None


@pytest.mark.behaviour("S4.12")
async def test_a_message_that_changes_nothing_adds_a_version(store_fixture: StoreFixture) -> None:
    store = store_fixture.store
    await commit(store, change("A", 0, b"same"))
    await commit(store, change("B", 1, b"same"))
    assert loaded(await store.states.before_message(KEY, "B")) == (1, b"null")


@pytest.mark.behaviour("S4.20")
async def test_the_history_lists_versions_page_by_page(store_fixture: StoreFixture) -> None:
    store = store_fixture.store
    for number in range(3):
        await commit(store, change(f"m{number}", number, b"x" * number, metadata=b"%d" % number))
    first, second = await store.states.history(KEY, 0, 2)
    (third,) = await store.states.history(KEY, second.number, 2)
    found = [(one.number, one.message_id, one.metadata, one.value_bytes) for one in (first, second, third)]
    assert found == [(1, "m0", b"0", 0), (2, "m1", b"1", 1), (3, "m2", b"2", 2)]


async def test_states_are_listed_by_key_page_by_page(store_fixture: StoreFixture) -> None:
    store = store_fixture.store
    for key in ("b", "a.2", "a", "A", "deleted"):
        await commit(store, change(None, 0, key=key))
    await commit(store, change(None, 1, key="a"))
    await store.states.delete("deleted")
    first = await store.states.page("", 3)
    assert [(one.key, one.number) for one in first] == [("A", 1), ("a", 2), ("a.2", 1)]
    assert store_fixture.is_close(first[0].updated_at, await store.now())
    assert [one.key for one in await store.states.page("a.2", 3)] == ["b"]


async def test_states_of_other_keys_are_independent(store_fixture: StoreFixture) -> None:
    store = store_fixture.store
    await commit(store, change("A", 0, b"1"))
    await commit(store, change("A", 0, b"2", key="game.18"))
    await commit(store, change("A", 0, b"3", key="GAME.17"))
    assert await numbers_and_values(store) == [(1, b"1")]
    assert await numbers_and_values(store, "game.18") == [(1, b"2")]
    assert await numbers_and_values(store, "GAME.17") == [(1, b"3")]


@pytest.mark.parametrize("value", [b"", b"\x00\xff'\\", b'"\xc3\xa9\\u0000"', b"x" * (1 << 20)])
async def test_a_value_is_kept_byte_for_byte(store_fixture: StoreFixture, value: bytes) -> None:
    await commit(store_fixture.store, change("A", 0, value, metadata=value[: 1 << 14]))
    newest = await store_fixture.store.states.newest(KEY)
    assert newest is not None
    assert (newest.value, newest.metadata) == (value, value[: 1 << 14])


@pytest.mark.parametrize("other", ["a", "A ", "A\x7f", "Ä"])
async def test_message_ids_are_compared_byte_by_byte(store_fixture: StoreFixture, other: str) -> None:
    await commit(store_fixture.store, change("A", 0))
    assert not (await commit(store_fixture.store, change(other, 1))).is_duplicate
    newest = await store_fixture.store.states.newest(KEY)
    assert newest is not None
    assert newest.message_id == other


# ---- conflicts -------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("S4.7", "S4.8")
@pytest.mark.parametrize("if_version", [0, 1, 3])
async def test_a_change_of_another_version_than_the_newest_has_no_effect(
    store_fixture: StoreFixture, queue: Queue, if_version: int
) -> None:
    store = store_fixture.store
    await commit(store, change("A", 0))
    await commit(store, change("B", 1))
    message = await store_fixture.locked(queue)
    with pytest.raises(VersionConflict) as conflict:
        await commit(
            store, change("C", if_version), settlements=[completion(queue, message)], drafts=[draft(queue, b"ghost")]
        )
    assert conflict.value.current_version == 2
    assert await store_fixture.execute("SELECT COUNT(*) FROM message") == [(1,)]
    assert await store_fixture.state(message) is not None
    assert len(await store.states.history(KEY, 0, MANY)) == 2


async def test_a_change_of_an_unknown_version_leaves_no_state(store_fixture: StoreFixture) -> None:
    with pytest.raises(VersionConflict) as conflict:
        await commit(store_fixture.store, change("A", 1), change("A", 0, key="other"))
    assert conflict.value.current_version == 0
    assert await store_fixture.execute("SELECT COUNT(*) FROM state") == [(0,)]


async def test_a_unit_that_fails_adds_no_version(store_fixture: StoreFixture, queue: Queue) -> None:
    message = await store_fixture.locked(queue)
    with pytest.raises(SettlementsFailed):
        await commit(store_fixture.store, change("A", 0), settlements=[completion(queue, with_wrong_token(message))])
    deleted = await store_fixture.queue()
    await store_fixture.store.queues.delete(deleted)
    with pytest.raises(QueueGone):
        await commit(store_fixture.store, change("A", 0), drafts=[draft(deleted)])
    assert await store_fixture.execute("SELECT COUNT(*) FROM state") == [(0,)]
    assert await store_fixture.execute("SELECT COUNT(*) FROM state_version") == [(0,)]


async def test_a_unit_changes_several_states_or_none(store_fixture: StoreFixture) -> None:
    store = store_fixture.store
    result = await commit(store, change(None, 0, key="b"), change(None, 0, key="a"))
    assert [version.number for version in result.versions] == [1, 1]
    with pytest.raises(VersionConflict):
        await commit(store, change(None, 1, key="a"), change(None, 7, key="b"))
    assert len(await store.states.history("a", 0, MANY)) == 1


# ---- duplicates ------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("S4.3", "S4.4", "S4.11")
async def test_a_duplicate_loads_the_version_before_its_first_processing(store_fixture: StoreFixture) -> None:
    store = store_fixture.store
    for number, message_id in enumerate("ADB"):
        await commit(store, change(message_id, number, b"%d" % number, metadata=message_id.encode()))
    states = store.states
    assert loaded(await states.before_message(KEY, "A")) == (0, b"A")
    assert loaded(await states.before_message(KEY, "D")) == (1, b"D")
    assert loaded(await states.before_message(KEY, "B")) == (2, b"B")
    assert loaded(await states.before_message(KEY, "new")) == (3, None)


@pytest.mark.behaviour("S4.5", "S4.6")
async def test_a_duplicate_is_completed_and_gets_the_first_result(store_fixture: StoreFixture, queue: Queue) -> None:
    store, target = store_fixture.store, await store_fixture.queue()
    first = await store_fixture.locked(queue)
    result = await commit(
        store, change("A", 0), settlements=[completion(queue, first)], drafts=[draft(target, b"1"), draft(target, b"2")]
    )
    await commit(store, change("B", 1))
    again = await store_fixture.locked(queue)
    repeated = await commit(
        store, change("A", 0, b"other"), settlements=[completion(queue, again)], drafts=[draft(target, b"other")]
    )
    assert repeated.is_duplicate
    assert [version.number for version in repeated.versions] == [1]
    assert [(one.sequence_number, one.message_id) for one in repeated.receipts] == [
        (one.sequence_number, one.message_id) for one in result.receipts
    ]
    assert all(receipt.duplicate for receipt in repeated.receipts)
    assert bodies(await store_fixture.claim(target)) == [b"1", b"2"]
    assert await store_fixture.state(again) is None
    assert await numbers_and_values(store) == [(1, b"{}"), (2, b"{}")]


@pytest.mark.parametrize("if_version", [1, 2, 3])
async def test_a_duplicate_that_ran_on_another_version_is_refused(store_fixture: StoreFixture, if_version: int) -> None:
    store = store_fixture.store
    await commit(store, change("A", 0))
    await commit(store, change("B", 1))
    with pytest.raises(VersionConflict) as conflict:
        await commit(store, change("A", if_version))
    assert conflict.value.current_version == 2


@pytest.mark.behaviour("S4.2")
async def test_a_verified_duplicate_with_another_result_has_no_effect(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    store = store_fixture.store
    await commit(store, change("A", 0, result_digest=b"1" * 32))
    message = await store_fixture.locked(queue)
    with pytest.raises(ResultDiffers):
        await commit(
            store,
            change("A", 0, result_digest=b"2" * 32, verifies=True),
            settlements=[completion(queue, message)],
        )
    assert await store_fixture.state(message) is not None
    same = await commit(store, change("A", 0, result_digest=b"1" * 32, verifies=True))
    assert same.is_duplicate


async def test_a_repeated_attempt_gets_its_versions_again(store_fixture: StoreFixture) -> None:
    attempt = Attempt(b"k" * 32, b"f" * 32, HOUR)
    first = await commit(store_fixture.store, change("A", 0), attempt=attempt)
    assert await commit(store_fixture.store, change("A", 0), attempt=attempt) == first
    assert await store_fixture.store.find_execution_result(attempt) == first


# ---- concurrency -----------------------------------------------------------------------------------------------------


def outcomes(results: list[Any]) -> list[str]:
    """Return in order of the alphabet how each call ended."""
    names = []
    for result in results:
        if isinstance(result, BaseException):
            names.append(type(result).__name__)
        else:
            names.append("duplicate" if result.is_duplicate else "added")
    return sorted(names)


@pytest.mark.behaviour("S4.24")
async def test_two_processors_of_one_message_add_one_version(
    store_fixture: StoreFixture, queue: Queue, stores: list[Store]
) -> None:
    for number in range(8):
        message, target = await store_fixture.locked(queue), await store_fixture.queue()
        one = change(f"m{number}", number)
        calls = [
            commit(store, one, settlements=[completion(queue, message)], drafts=[draft(target)])
            for store in [*stores, *stores]
        ]
        results = outcomes(await asyncio.gather(*calls, return_exceptions=True))
        assert results.count("added") == 1
        assert set(results) <= {"added", "SettlementsFailed"}
        assert len(await store_fixture.claim(target)) == 1
    assert len(await numbers_and_values(store_fixture.store)) == 8


@pytest.mark.behaviour("S4.24")
@pytest.mark.parametrize("is_first", [True, False])
async def test_two_processors_of_duplicates_add_one_version(
    store_fixture: StoreFixture, queue: Queue, stores: list[Store], is_first: bool
) -> None:
    for number in range(8):
        key, target = (f"key{number}", await store_fixture.queue())
        base = 0
        if not is_first:
            await commit(store_fixture.store, change("earlier", 0, key=key))
            base = 1
        copies = [await store_fixture.locked(queue) for _ in range(4)]
        results = await asyncio.gather(
            *(
                commit(
                    stores[index % len(stores)],
                    change("X", base, key=key),
                    settlements=[completion(queue, copy)],
                    drafts=[draft(target)],
                )
                for index, copy in enumerate(copies)
            )
        )
        assert outcomes(list(results)) == ["added", "duplicate", "duplicate", "duplicate"]
        assert len({result.receipts[0].sequence_number for result in results}) == 1
        assert len(await store_fixture.claim(target)) == 1
        assert len(await numbers_and_values(store_fixture.store, key)) == base + 1


async def test_one_of_concurrent_changes_of_a_version_takes_effect(
    store_fixture: StoreFixture, stores: list[Store]
) -> None:
    for number in range(8):
        results = await asyncio.gather(
            *(commit(stores[index % len(stores)], change(f"m{number}.{index}", number)) for index in range(4)),
            return_exceptions=True,
        )
        assert outcomes(list(results)) == ["VersionConflict"] * 3 + ["added"]


async def test_units_that_change_the_same_states_do_not_deadlock(
    store_fixture: StoreFixture, stores: list[Store]
) -> None:
    keys = ["a", "b", "c"]
    for key in keys:
        await commit(store_fixture.store, change(None, 0, key=key))
    for number in range(1, 9):
        changes = [change(None, number, key=key) for key in keys]
        results = await asyncio.gather(
            *(
                commit(stores[index % len(stores)], *(changes if index % 2 else reversed(changes)))
                for index in range(4)
            ),
            return_exceptions=True,
        )
        assert outcomes(list(results)) == ["VersionConflict"] * 3 + ["added"]


async def test_a_change_waits_for_another_one_and_then_reads_its_version(store_fixture: StoreFixture) -> None:
    if not isinstance(store_fixture, PostgresqlFixture):
        pytest.skip("SQLite has one writer, and MariaDB does not list a SELECT that waits")
    await commit(store_fixture.store, change("A", 0))
    advance = "UPDATE state SET number = 2"
    async with store_fixture.open_transaction(advance, commits=True):
        waiting = asyncio.create_task(commit(store_fixture.store, change("B", 1)))
        await store_fixture.wait_until_blocked()
    with pytest.raises(VersionConflict):
        await waiting


async def test_a_state_deleted_during_a_change_begins_again(store_fixture: StoreFixture, stores: list[Store]) -> None:
    for _ in range(8):
        await store_fixture.store.states.delete(KEY)
        await commit(store_fixture.store, change("A", 0))
        *results, was_deleted = await asyncio.gather(
            *(commit(store, change("B", version)) for store in stores for version in (0, 1)),
            stores[-1].states.delete(KEY),
            return_exceptions=True,
        )
        assert was_deleted is True
        assert set(outcomes(list(results))) <= {"added", "duplicate", "VersionConflict"}
        kept = await store_fixture.store.states.history(KEY, 0, MANY)
        assert [one.number for one in kept] in ([], [1])


class ActingDatabase:
    """A database that acts once after the statement of this name."""

    def __init__(self, database: Any, name: str, act: Callable[[], Awaitable[None]]) -> None:
        self._database, self._name, self._acts = database, name, [act]

    async def fetch(self, name: str, /, **values: Any) -> Any:
        found_rows = await self._database.fetch(name, **values)
        if name == self._name and self._acts:
            await self._acts.pop()()
        return found_rows


async def test_a_state_that_begins_again_while_it_is_loaded_is_not_mixed_with_the_old_one(
    store_fixture: StoreFixture,
) -> None:
    store = store_fixture.store
    await commit(store, change("A", 0, b"old"))
    await commit(store, change("B", 1, metadata=b'"captured"'))

    async def begin_again() -> None:
        assert await store.states.delete(KEY)
        await commit(store, change("X", 0, b"new"))

    states = StateRecords(cast("Database", ActingDatabase(store.states._database, "captured", begin_again)))
    state = await states.before_message(KEY, "B")
    assert loaded(state) == (1, b'"captured"')
    assert state.version is not None
    assert state.version.value == b"old"


# ---- deletion and retention ------------------------------------------------------------------------------------------


async def test_a_deleted_state_begins_with_version_1_again(store_fixture: StoreFixture) -> None:
    store = store_fixture.store
    await commit(store, change("A", 0))
    await commit(store, change("B", 1))
    assert await store.states.delete(KEY)
    assert not await store.states.delete(KEY)
    assert await store.states.newest(KEY) is None
    result = await commit(store, change("A", 0, b"again"))
    assert not result.is_duplicate
    assert await numbers_and_values(store) == [(1, b"again")]


async def test_versions_of_deleted_states_are_removed_in_portions(store_fixture: StoreFixture) -> None:
    store = store_fixture.store
    for number in range(5):
        await commit(store, change(f"m{number}", number))
    await commit(store, change("A", 0, key="kept"))
    await store.states.delete(KEY)
    assert [await store.states.delete_old_versions(DAY, 2) for _ in range(4)] == [2, 2, 1, 0]
    assert await store_fixture.execute("SELECT state_key FROM state") == [("kept",)]
    assert await store_fixture.execute("SELECT COUNT(*) FROM state_version") == [(1,)]


@pytest.mark.behaviour("S4.17", "S4.18")
@pytest.mark.fence("time")
async def test_replaced_versions_are_removed_after_their_time(store_fixture: StoreFixture) -> None:
    store = store_fixture.store
    for number in range(3):
        await commit(store, change(f"old{number}", number, b"%d" % number))
    assert await trim_all(store) == 0
    await store_fixture.advance_time(DAY // SECOND + 1)
    await commit(store, change("new", 3, b"3"))
    assert await trim_all(store) == 2
    assert await numbers_and_values(store) == [(3, b"2"), (4, b"3")]


async def test_the_newest_version_is_never_removed(store_fixture: StoreFixture) -> None:
    store = store_fixture.store
    await commit(store, change("A", 0, b"a"))
    await commit(store, change("B", 1, b"b"))
    await store_fixture.advance_time(10 * DAY // SECOND)
    assert await trim_all(store) == 1
    await store_fixture.advance_time(10 * DAY // SECOND)
    assert await trim_all(store) == 0
    assert await numbers_and_values(store) == [(2, b"b")]


async def test_versions_are_removed_in_portions_oldest_first(store_fixture: StoreFixture) -> None:
    store = store_fixture.store
    for number in range(6):
        await commit(store, change(f"m{number}", number))
    await store_fixture.advance_time(2 * DAY // SECOND)
    assert await store.states.delete_old_versions(DAY, 2) == 2
    assert [number for number, _ in await numbers_and_values(store)] == [3, 4, 5, 6]
    assert await trim_all(store) == 3


@pytest.mark.behaviour("S4.19")
async def test_a_duplicate_older_than_the_versions_kept_is_a_new_message(store_fixture: StoreFixture) -> None:
    store = store_fixture.store
    for number, message_id in enumerate("AB"):
        await commit(store, change(message_id, number))
    await store_fixture.advance_time(DAY // SECOND - 60)
    await trim_all(store)
    assert loaded(await store.states.before_message(KEY, "B")) == (1, b"null")
    assert (await commit(store, change("B", 1))).is_duplicate
    await store_fixture.advance_time(61)
    await trim_all(store)
    assert loaded(await store.states.before_message(KEY, "B")) == (2, None)
    assert not (await commit(store, change("B", 2))).is_duplicate
    assert [number for number, _ in await numbers_and_values(store)] == [2, 3]


async def test_times_of_versions_ascend_when_the_clock_is_set_back(store_fixture: StoreFixture) -> None:
    store = store_fixture.store
    await commit(store, change("A", 0))
    await store_fixture.execute(f"UPDATE state SET updated_at = updated_at + {HOUR}")
    await commit(store, change("B", 1))
    first, second = await store.states.history(KEY, 0, MANY)
    assert second.created_at >= first.created_at + HOUR


async def test_only_one_process_at_a_time_removes_versions(store_fixture: StoreFixture, stores: list[Store]) -> None:
    for number in range(9):
        await commit(store_fixture.store, change(f"m{number}", number))
    await store_fixture.advance_time(2 * DAY // SECOND)
    counts = await asyncio.gather(*(store.states.delete_old_versions(DAY, 3) for store in [*stores, *stores]))
    assert set(counts) <= {0, 2, 3}
    assert sum(counts) + await trim_all(store_fixture.store) == 8
    assert len(await numbers_and_values(store_fixture.store)) == 1


# ---- the message that is processed -----------------------------------------------------------------------------------


async def test_the_message_id_of_a_held_message_is_known(store_fixture: StoreFixture, queue: Queue) -> None:
    await store_fixture.store.send([draft(queue, message_id="order-17")])
    (message,) = await store_fixture.claim(queue)
    assert await store_fixture.store.locked_message_id(queue.id, token(message)) == "order-17"


@pytest.mark.fence("token")
async def test_a_token_that_holds_no_message_has_no_message_id(store_fixture: StoreFixture, queue: Queue) -> None:
    message = await store_fixture.locked(queue)
    wrong = token(with_wrong_token(message))
    assert await store_fixture.store.locked_message_id(queue.id, wrong) is None


@pytest.mark.fence("queue")
async def test_a_token_of_another_queue_has_no_message_id(store_fixture: StoreFixture, queue: Queue) -> None:
    message = await store_fixture.locked(queue)
    other = await store_fixture.queue()
    assert await store_fixture.store.locked_message_id(other.id, token(message)) is None
