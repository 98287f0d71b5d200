"""Commits: a message completed, its results sent and a state advanced, by many callers at the same time."""

import asyncio
import secrets
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from app.broker.ports.attempts import Attempt, AttemptResult
from app.broker.ports.sending import QueueGone
from app.broker.ports.store import Store
from app.broker.ports.transactions import SettlementsFailed
from app.domain.instant import DAY, HOUR, MINUTE
from app.domain.message import Draft, Message, MessageState
from app.domain.queue import Queue, QueueSettings
from app.domain.settlement import Outcome
from app.domain.state import AddedVersion, StateChange
from app.domain.state_refusals import VersionConflict
from app.domain.work_unit import WorkUnit, WorkUnitResult
from tests.contract.store_fixture import PostgresqlFixture, ServerFixture, StoreFixture, bodies, completion, draft
from tests.contract.test_groups import grouped
from tests.virtual_clock import run_advancing

MANY = 20


def change(key: str, if_version: int, message: Message | None = None, value: bytes = b"{}") -> StateChange:
    """A change of a state by the processing of a message."""
    message_id = None if message is None else message.envelope.message_id
    return StateChange(key, if_version, value, b"null", message_id, b"d" * 32)


def unit(queue: Queue, message: Message, *drafts: Draft, state: StateChange | None = None) -> WorkUnit:
    """A unit that completes a message."""
    return WorkUnit([completion(queue, message)], drafts, [] if state is None else [state])


async def commit(store: Store, work_unit: WorkUnit, attempt: Attempt | None = None) -> AttemptResult[WorkUnitResult]:
    """Carry out a unit under an attempt of its own, unless one is given."""
    return await store.execute(work_unit, attempt or new_attempt())


def new_attempt() -> Attempt:
    """An attempt that was never made."""
    return Attempt(secrets.token_bytes(32), b"f" * 32, HOUR)


async def commit_all(store: Store, units: Sequence[WorkUnit]) -> list[Any]:
    """Carry out these units at the same time, each under an attempt of its own. Return their results or errors."""
    return await asyncio.gather(*(commit(store, one) for one in units), return_exceptions=True)


async def held(store_fixture: StoreFixture, queue: Queue, count: int) -> list[Message]:
    """Send messages and receive them."""
    await store_fixture.send(queue, *(b"%d" % number for number in range(count)))
    return await store_fixture.claim(queue, count)


async def newest(store: Store, key: str) -> int:
    """Return the number of the newest version of a state, 0 without one."""
    found = await store.states.newest(key)
    return 0 if found is None else found.number


def names(results: Sequence[object]) -> list[str]:
    """Return the name of each error, and "done" for each result."""
    return [type(result).__name__ if isinstance(result, Exception) else "done" for result in results]


# ---- many at the same time -------------------------------------------------------------------------------------------


async def test_commits_of_many_callers_take_effect_each_with_its_own_results(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    targets = [await store_fixture.queue() for _ in range(2)]
    messages = await held(store_fixture, queue, MANY)
    units = [
        unit(
            queue,
            message,
            *(draft(target, b"%d" % index, f"{index}/{place}") for place, target in enumerate(targets)),
            state=change(f"key{index}", 0, message, b"%d" % index),
        )
        for index, message in enumerate(messages)
    ]
    store_fixture.batch_sizes.clear()
    results = await commit_all(store_fixture.store, units)
    assert names(results) == ["done"] * MANY
    for index, once in enumerate(results):
        assert [receipt.message_id for receipt in once.result.receipts] == [f"{index}/0", f"{index}/1"]
        assert once.result.versions == [AddedVersion(1)]
        version = await store_fixture.store.states.newest(f"key{index}")
        assert version is not None
        assert (version.value, version.message_id) == (b"%d" % index, messages[index].envelope.message_id)
    for target in targets:
        assert sorted(map(int, bodies(await store_fixture.claim(target)))) == list(range(MANY))
    assert await store_fixture.claim(queue) == []
    if isinstance(store_fixture, PostgresqlFixture):
        assert max(store_fixture.batch_sizes) == MANY


async def test_a_commit_in_conflict_has_no_effect_and_all_others_do(store_fixture: StoreFixture, queue: Queue) -> None:
    target = await store_fixture.queue()
    messages = await held(store_fixture, queue, 3)
    units = [
        unit(queue, message, draft(target, b"%d" % index), state=change(f"key{index}", int(index == 1), message))
        for index, message in enumerate(messages)
    ]
    assert names(await commit_all(store_fixture.store, units)) == ["done", "VersionConflict", "done"]
    assert sorted(bodies(await store_fixture.claim(target))) == [b"0", b"2"]
    assert [await newest(store_fixture.store, f"key{index}") for index in range(3)] == [1, 0, 1]
    assert await store_fixture.state(messages[1]) is MessageState.LOCKED


@pytest.mark.parametrize("version", [0, 1])
async def test_of_commits_of_one_state_one_takes_effect(
    store_fixture: StoreFixture, queue: Queue, stores: list[Store], version: int
) -> None:
    target = await store_fixture.queue()
    for number in range(6):
        key = f"key{number}"
        first, *messages = await held(store_fixture, queue, 7)
        if version:
            await commit(store_fixture.store, unit(queue, first, state=change(key, 0, first)))
        units = [unit(queue, message, draft(target), state=change(key, version, message)) for message in messages]
        calls = [commit(stores[index % len(stores)], one) for index, one in enumerate(units)]
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert sorted(names(results)) == ["VersionConflict"] * 5 + ["done"]
        assert await newest(store_fixture.store, key) == version + 1
        assert len(await store_fixture.claim(target)) == 1


async def test_of_commits_of_one_message_one_takes_effect(store_fixture: StoreFixture, queue: Queue) -> None:
    target = await store_fixture.queue()
    (message,) = await held(store_fixture, queue, 1)
    units = [unit(queue, message, draft(target), state=change(f"key{index}", 0, message)) for index in range(3)]
    results = await commit_all(store_fixture.store, units)
    assert sorted(names(results)) == ["SettlementsFailed"] * 2 + ["done"]
    assert len(await store_fixture.claim(target)) == 1
    assert sum([await newest(store_fixture.store, f"key{index}") for index in range(3)]) == 1


async def test_repeats_at_the_same_time_get_the_result_of_the_first(store_fixture: StoreFixture, queue: Queue) -> None:
    target = await store_fixture.queue()
    (message,) = await held(store_fixture, queue, 1)
    one = unit(queue, message, draft(target), state=change("key", 0, message))
    attempt = new_attempt()
    calls = asyncio.gather(*(commit(store_fixture.store, one, attempt) for _ in range(4)))
    results = await run_advancing(store_fixture.clock, calls)
    assert sorted(once.replayed for once in results) == [False, True, True, True]
    assert all(once.result == results[0].result for once in results)
    assert len(await store_fixture.claim(target)) == 1


async def test_a_commit_to_a_deleted_queue_has_no_effect_and_all_others_do(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    gone = await store_fixture.queue()
    await store_fixture.execute(f"DELETE FROM queue WHERE id = {gone.id}")
    target = await store_fixture.queue()
    messages = await held(store_fixture, queue, 3)
    drafts = [draft(target, b"0"), draft(gone), draft(target, b"2")]
    units = [unit(queue, message, one) for message, one in zip(messages, drafts, strict=True)]
    assert names(await commit_all(store_fixture.store, units)) == ["done", "QueueGone", "done"]
    assert sorted(bodies(await store_fixture.claim(target))) == [b"0", b"2"]


# ---- what is stored --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 3])
@pytest.mark.parametrize("has_state", [False, True])
async def test_a_repeat_after_a_lost_answer_gets_it(
    store_fixture: StoreFixture, queue: Queue, count: int, has_state: bool
) -> None:
    (message,) = await held(store_fixture, queue, 1)
    drafts = [draft(queue, message_id=f'"\\ü\u2028{index}', delay=index and HOUR) for index in range(count)]
    one = unit(queue, message, *drafts, state=change("key", 0, message) if has_state else None)
    attempt = new_attempt()
    once = await commit(store_fixture.store, one, attempt)
    again = await commit(store_fixture.store, one, attempt)
    assert (once.replayed, again.replayed) == (False, True)
    assert again.result == once.result
    assert [receipt.message_id for receipt in once.result.receipts] == [one.envelope.message_id for one in drafts]
    assert [receipt.state for receipt in once.result.receipts] == [
        MessageState.SCHEDULED if index else MessageState.AVAILABLE for index in range(count)
    ]
    assert once.result.versions == ([AddedVersion(1)] if has_state else [])


async def test_a_duplicate_gets_the_receipts_of_the_first_processing(store_fixture: StoreFixture, queue: Queue) -> None:
    await store_fixture.store.send([draft(queue, message_id="same"), draft(queue, message_id="same")])
    first, second = await store_fixture.claim(queue)
    target = await store_fixture.queue()
    once = await commit(store_fixture.store, unit(queue, first, draft(target), state=change("key", 0, first)))
    again = await commit(store_fixture.store, unit(queue, second, draft(target), state=change("key", 0, second)))
    assert again.result.versions == [AddedVersion(1, duplicate=True)]
    assert again.result.receipts == [replace(receipt, duplicate=True) for receipt in once.result.receipts]
    assert len(await store_fixture.claim(target)) == 1


async def test_versions_follow_each_other_and_their_times_ascend(store_fixture: StoreFixture, queue: Queue) -> None:
    for number in range(3):
        (message,) = await held(store_fixture, queue, 1)
        await commit(store_fixture.store, unit(queue, message, state=change("key", number, message)))
        await store_fixture.execute(f"UPDATE state SET updated_at = updated_at + {HOUR}")
    first, second, third = await store_fixture.store.states.history("key", 0, MANY)
    assert [one.number for one in (first, second, third)] == [1, 2, 3]
    assert first.created_at + HOUR <= second.created_at <= third.created_at - HOUR
    replaced = await store_fixture.execute("SELECT replaced_at, created_at FROM state_version ORDER BY number")
    assert [row[0] for row in replaced] == [None, second.created_at, third.created_at]


@pytest.mark.parametrize("retention", [0, MINUTE, DAY])
async def test_a_committed_message_is_archived_or_leaves_a_tombstone(
    store_fixture: StoreFixture, retention: int
) -> None:
    queue = await store_fixture.queue(QueueSettings(archive_retention=retention))
    (message,) = await held(store_fixture, queue, 1)
    await commit(store_fixture.store, unit(queue, message))
    (tombstone,) = await store_fixture.store.tombstones([unit(queue, message).settlements[0].token])
    assert tombstone is not None
    assert tombstone.outcome is Outcome.COMPLETED
    assert await store_fixture.archived(message.sequence_number, "outcome") == [("completed",)] * bool(retention)


async def test_commits_to_queues_that_need_more_take_effect_with_it(store_fixture: StoreFixture) -> None:
    fifo = await store_fixture.queue(QueueSettings(group_in_flight=1))
    unique = await store_fixture.queue(QueueSettings(duplicate_detection_window=HOUR))
    recording = await store_fixture.queue(QueueSettings(history=True))
    await store_fixture.store.send([draft(unique, message_id="same", duplicate_window=HOUR)])
    source = await store_fixture.queue()
    messages = await held(store_fixture, source, 4)
    drafts = [
        grouped(fifo, "a", b"1"),
        grouped(fifo, "a", b"2"),
        draft(unique, message_id="same", duplicate_window=HOUR),
        draft(recording, keeps_history=True),
    ]
    results = [
        (await commit(store_fixture.store, unit(source, message, one))).result.receipts[0]
        for message, one in zip(messages, drafts, strict=True)
    ]
    assert [receipt.state for receipt in results[:2]] == [MessageState.AVAILABLE, MessageState.BLOCKED]
    assert results[2].duplicate
    events = await store_fixture.store.history(recording.id, results[3].sequence_number, 0, MANY)
    assert [event.event.value for event in events] == ["sent"]


# ---- without effect --------------------------------------------------------------------------------------------------


async def test_a_commit_from_another_version_is_refused(store_fixture: StoreFixture, queue: Queue) -> None:
    first, second = await held(store_fixture, queue, 2)
    await commit(store_fixture.store, unit(queue, first, state=change("key", 0, first)))
    with pytest.raises(VersionConflict):
        await commit(store_fixture.store, unit(queue, second, state=change("key", 5, second)))
    assert await newest(store_fixture.store, "key") == 1


@pytest.mark.fence("level")
async def test_a_commit_to_a_newer_queue_has_no_effect(store_fixture: StoreFixture, queue: Queue) -> None:
    newer = await store_fixture.queue()
    await store_fixture.need_newer_server(newer)
    (message,) = await held(store_fixture, queue, 1)
    with pytest.raises(QueueGone):
        await commit(store_fixture.store, unit(queue, message, draft(newer)))
    assert await store_fixture.state(message) is MessageState.LOCKED


@pytest.mark.fence("group")
async def test_no_message_stays_blocked_after_a_commit_that_does_not_know_of_the_group(
    store_fixture: StoreFixture,
) -> None:
    fifo = await store_fixture.queue(QueueSettings(group_in_flight=1))
    await store_fixture.store.send([grouped(fifo, "a", b"1"), grouped(fifo, "a", b"2")])
    (message,) = await store_fixture.claim(fifo)
    assert await store_fixture.store.remove([completion(fifo, message)]) == [False]
    (result,) = await commit_all(store_fixture.store, [unit(fifo, message, draft(await store_fixture.queue()))])
    assert bodies(await store_fixture.claim(fifo)) == ([] if isinstance(result, SettlementsFailed) else [b"2"])


# ---- rows that others hold -------------------------------------------------------------------------------------------


def server(store_fixture: StoreFixture) -> ServerFixture:
    """Return the fixture of a store whose rows another transaction can hold."""
    if not isinstance(store_fixture, ServerFixture):
        pytest.skip("SQLite has one writer")
    return store_fixture


async def test_a_commit_of_a_message_that_is_held_fails_and_all_others_take_effect(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    messages = await held(store_fixture, queue, 3)
    units = [unit(queue, message, state=change(f"key{index}", 0, message)) for index, message in enumerate(messages)]
    lock = f"SELECT 1 FROM message WHERE sequence_number = {messages[1].sequence_number} FOR UPDATE"
    async with server(store_fixture).open_transaction(lock):
        results = await commit_all(store_fixture.store, units)
    assert names(results) == ["done", "SettlementsFailed", "done"]
    assert await newest(store_fixture.store, "key1") == 0
    await commit(store_fixture.store, units[1])


HOLDERS = {
    "locked": "SELECT 1 FROM state WHERE state_key = 'key1' FOR UPDATE",
    "created": "INSERT INTO state (state_key, number, updated_at) VALUES ('new', 0, 0)",
}


@pytest.mark.parametrize("holder", HOLDERS)
async def test_only_commits_of_a_held_state_wait_for_it(store_fixture: StoreFixture, queue: Queue, holder: str) -> None:
    fixture = server(store_fixture)
    first, *messages = await held(store_fixture, queue, 4)
    await commit(store_fixture.store, unit(queue, first, state=change("key1", 0, first)))
    own = change("key1", 1) if holder == "locked" else change("new", 0)
    changes = [change("other", 0), own, change("another", 0)]
    units = [unit(queue, message, state=one) for message, one in zip(messages, changes, strict=True)]
    async with fixture.open_transaction(HOLDERS[holder]):
        before, waiting, after = (asyncio.create_task(commit(store_fixture.store, one)) for one in units)
        await asyncio.gather(before, after)
        assert not waiting.done()
    assert (await waiting).result.versions == [AddedVersion(own.if_version + 1)]


@pytest.mark.parametrize("store_fixture", ["postgresql", "mariadb"], indirect=True)
async def test_commits_of_one_held_state_wait_with_a_single_connection(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    fixture = server(store_fixture)
    first, *messages = await held(store_fixture, queue, 30)
    await commit(store_fixture.store, unit(queue, first, state=change("key1", 0, first)))
    units = [unit(queue, message, state=change("key1", 1, message)) for message in messages]
    async with fixture.open_transaction(HOLDERS["locked"]):
        waiting = asyncio.create_task(commit_all(store_fixture.store, units))
        # More than the store has connections would wait here without turns.
        await asyncio.gather(*(store_fixture.send(queue, b"free") for _ in range(5)))
        assert not waiting.done()
    results = await waiting
    assert sorted(names(results)) == ["VersionConflict"] * 28 + ["done"]
