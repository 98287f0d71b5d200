"""A work unit: its settlements and sends take effect together, or not at all."""

import asyncio
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from app.broker.ports.attempts import Attempt
from app.broker.ports.sending import QueueGone
from app.broker.ports.settling import Admitted, Extension
from app.broker.ports.store import Store
from app.broker.ports.transactions import SettlementsFailed
from app.domain.instant import HOUR, MINUTE, SECOND
from app.domain.message import Message, MessageState
from app.domain.queue import Queue, QueueSettings
from app.domain.refusals import KeyReused
from app.domain.settlement import NO_EXPIRED_GENERATION, Outcome, Settled, fence_above
from app.domain.work_unit import WorkUnit, WorkUnitResult
from tests.contract.store_fixture import (
    LOCK_DURATION,
    ServerFixture,
    StoreFixture,
    abandonment,
    bodies,
    completion,
    draft,
    token,
)
from tests.contract.test_groups import counts, fifo, grouped, send

__all__ = ["fifo"]

ATTEMPT = Attempt(key=b"k" * 32, fingerprint=b"f" * 32, retention=HOUR)


async def locked(store_fixture: StoreFixture, queue: Queue, *contents: bytes) -> list[Message]:
    """Send messages and receive them."""
    await store_fixture.send(queue, *contents)
    return await store_fixture.claim(queue, len(contents))


async def execute(
    store_fixture: StoreFixture, *settlements: Any, drafts: Any = (), attempt: Attempt | None = None
) -> WorkUnitResult:
    """Carry out a work unit."""
    return (await store_fixture.store.execute(WorkUnit(settlements, drafts), attempt)).result


async def assert_unchanged(store_fixture: StoreFixture, *messages: Message) -> None:
    """Assert that these messages are locked under the same tokens, and that no queue has another message."""
    rows = await store_fixture.store.locked_messages([token(message) for message in messages])
    assert None not in rows
    assert await store_fixture.execute("SELECT COUNT(*) FROM message") == [(len(messages),)]


# ---- together --------------------------------------------------------------------------------------------------------


async def test_settlements_and_sends_take_effect_together(store_fixture: StoreFixture, queue: Queue) -> None:
    other = await store_fixture.queue()
    first, second, third = await locked(store_fixture, queue, b"1", b"2", b"3")
    result = await execute(
        store_fixture,
        completion(queue, first),
        abandonment(second),
        abandonment(third, state=MessageState.DEAD_LETTERED, outcome=Outcome.DEAD_LETTERED),
        drafts=[draft(other, b"a"), draft(queue, b"b"), draft(other, b"c")],
    )
    assert result.settled == [
        Settled(first.sequence_number, Outcome.COMPLETED, None),
        Settled(second.sequence_number, Outcome.ABANDONED, MessageState.AVAILABLE),
        Settled(third.sequence_number, Outcome.DEAD_LETTERED, MessageState.DEAD_LETTERED),
    ]
    assert [receipt.state for receipt in result.receipts] == [MessageState.AVAILABLE] * 3
    assert bodies(await store_fixture.claim(other)) == [b"a", b"c"]
    assert bodies(await store_fixture.claim(queue)) == [b"2", b"b"]
    assert await store_fixture.archived(first.sequence_number, "outcome") == [("completed",)]
    assert await store_fixture.state(third) is MessageState.DEAD_LETTERED


@pytest.mark.behaviour("S1.83")
async def test_messages_of_a_unit_are_delivered_in_its_order(store_fixture: StoreFixture, queue: Queue) -> None:
    contents = [b"%d" % number for number in range(20)]
    await execute(store_fixture, drafts=[draft(queue, body) for body in contents])
    assert bodies(await store_fixture.claim(queue)) == contents


async def test_a_unit_of_one_settlement_and_one_send_takes_effect(store_fixture: StoreFixture, queue: Queue) -> None:
    (message,) = await locked(store_fixture, queue, b"1")
    await execute(store_fixture, completion(queue, message), drafts=[draft(queue, b"2")])
    assert bodies(await store_fixture.claim(queue)) == [b"2"]


async def test_a_queue_without_an_archive_keeps_a_tombstone(store_fixture: StoreFixture) -> None:
    queue = await store_fixture.queue(QueueSettings(archive_retention=0))
    (message,) = await locked(store_fixture, queue, b"1")
    await execute(store_fixture, completion(queue, message))
    (tombstone,) = await store_fixture.store.tombstones([token(message)])
    assert tombstone is not None
    assert tombstone.outcome is Outcome.COMPLETED


# ---- or not at all ---------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("S0.8")
@pytest.mark.parametrize("lost", range(3))
async def test_one_settlement_without_effect_undoes_the_unit(
    store_fixture: StoreFixture, queue: Queue, lost: int
) -> None:
    messages = await locked(store_fixture, queue, b"1", b"2", b"3")
    settlements: list[Any] = [
        completion(queue, messages[0]),
        abandonment(messages[1]),
        abandonment(messages[2], state=MessageState.DEFERRED, outcome=Outcome.DEFERRED),
    ]
    wrong = replace(settlements[lost].token, secret=b"?" * 16)
    settlements[lost] = replace(settlements[lost], token=wrong)
    with pytest.raises(SettlementsFailed) as failed:
        await execute(store_fixture, *settlements, drafts=[draft(queue)])
    assert failed.value.tokens == {wrong}
    await assert_unchanged(store_fixture, *messages)


async def test_an_expired_lock_undoes_the_unit(store_fixture: StoreFixture, queue: Queue) -> None:
    (early,) = await locked(store_fixture, queue, b"early")
    await store_fixture.advance_time(LOCK_DURATION // SECOND - 1)
    (late,) = await locked(store_fixture, queue, b"late")
    await store_fixture.advance_time(2)
    with pytest.raises(SettlementsFailed) as failed:
        await execute(store_fixture, completion(queue, late), completion(queue, early), drafts=[draft(queue)])
    assert failed.value.tokens == {token(early)}
    await assert_unchanged(store_fixture, early, late)


async def test_a_renewed_lock_needs_a_fence_that_knows_of_it(store_fixture: StoreFixture, queue: Queue) -> None:
    (message,) = await locked(store_fixture, queue, b"1")
    await store_fixture.store.extend([Extension(token(message), queue.id, LOCK_DURATION, NO_EXPIRED_GENERATION)])
    with pytest.raises(SettlementsFailed):
        await execute(store_fixture, completion(queue, message))
    await execute(store_fixture, completion(queue, message, fence=fence_above(NO_EXPIRED_GENERATION)))
    assert await store_fixture.state(message) is None


async def test_a_send_to_a_deleted_queue_undoes_the_unit(store_fixture: StoreFixture, queue: Queue) -> None:
    deleted = await store_fixture.queue()
    await store_fixture.store.queues.delete(deleted)
    (message,) = await locked(store_fixture, queue, b"1")
    with pytest.raises(QueueGone):
        await execute(store_fixture, completion(queue, message), drafts=[draft(queue), draft(deleted)])
    await assert_unchanged(store_fixture, message)


async def test_a_message_that_another_transaction_holds_undoes_the_unit(
    store_fixture: StoreFixture, queue: Queue
) -> None:
    if not isinstance(store_fixture, ServerFixture):
        pytest.skip("SQLite has one writer")
    free, held = await locked(store_fixture, queue, b"free", b"held")
    lock = f"SELECT 1 FROM message WHERE sequence_number = {held.sequence_number} FOR UPDATE"
    async with store_fixture.open_transaction(lock):
        with pytest.raises(SettlementsFailed) as failed:
            await execute(store_fixture, completion(queue, free), completion(queue, held), drafts=[draft(queue)])
    assert failed.value.tokens == {token(held)}
    await assert_unchanged(store_fixture, free, held)


async def test_one_of_two_units_for_a_message_takes_effect(
    queue: Queue, stores: list[Store], store_fixture: StoreFixture
) -> None:
    for number in range(10):
        (message,) = await locked(store_fixture, queue, b"%d" % number)
        other = await store_fixture.queue()
        units = [WorkUnit([completion(queue, message)], [draft(other)]) for _ in stores * 4]
        calls = [stores[index % len(stores)].execute(unit, None) for index, unit in enumerate(units)]
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert sum(not isinstance(result, SettlementsFailed) for result in results) == 1
        assert len(await store_fixture.claim(other)) == 1


# ---- groups ----------------------------------------------------------------------------------------------------------


async def test_the_next_messages_of_the_groups_that_a_unit_leaves_follow(
    store_fixture: StoreFixture, fifo: Queue
) -> None:
    announced: list[Admitted] = []
    store_fixture.store.on_admitted = announced.extend
    await send(store_fixture, fifo, "a", b"a1", b"a2")
    await send(store_fixture, fifo, "b", b"b1", b"b2")
    first, second = await store_fixture.claim(fifo)
    announced.clear()
    later = {"state": MessageState.SCHEDULED, "delay": MINUTE}
    await execute(
        store_fixture, completion(fifo, first, is_in_group=True), abandonment(second, is_in_group=True, **later)
    )
    assert len(announced) == 2
    assert bodies(await store_fixture.claim(fifo)) == [b"a2", b"b2"]


async def test_a_message_that_a_unit_sends_stands_behind_those_of_its_group(
    store_fixture: StoreFixture, fifo: Queue
) -> None:
    await send(store_fixture, fifo, "a", b"1", b"2")
    (first,) = await store_fixture.claim(fifo)
    result = await execute(
        store_fixture, completion(fifo, first, is_in_group=True), drafts=[grouped(fifo, "a", b"3"), grouped(fifo, "b")]
    )
    assert [receipt.state for receipt in result.receipts] == [MessageState.BLOCKED, MessageState.AVAILABLE]
    assert await counts(store_fixture, fifo) == (2, 0, 1)


# ---- repeats ---------------------------------------------------------------------------------------------------------


async def test_a_repeat_of_the_attempt_gets_the_first_result(store_fixture: StoreFixture, queue: Queue) -> None:
    first, second = await locked(store_fixture, queue, b"1", b"2")
    settlements = (completion(queue, first), abandonment(second))
    unit = WorkUnit(settlements, [draft(queue, b"sent")])
    once = await store_fixture.store.execute(unit, ATTEMPT)
    again = await store_fixture.store.execute(unit, ATTEMPT)
    assert (once.replayed, again.replayed) == (False, True)
    assert again.result == once.result
    assert await store_fixture.store.find_execution_result(ATTEMPT) == once.result
    assert bodies(await store_fixture.claim(queue)) == [b"2", b"sent"]


async def test_an_attempt_that_failed_is_not_recorded(store_fixture: StoreFixture, queue: Queue) -> None:
    (message,) = await locked(store_fixture, queue, b"1")
    wrong = completion(queue, replace(message, lock_token=b"?" * 16))
    with pytest.raises(SettlementsFailed):
        await execute(store_fixture, wrong, drafts=[draft(queue)], attempt=ATTEMPT)
    assert await store_fixture.store.find_execution_result(ATTEMPT) is None
    await execute(store_fixture, completion(queue, message), attempt=ATTEMPT)


async def test_another_unit_under_the_same_attempt_is_refused(store_fixture: StoreFixture, queue: Queue) -> None:
    await execute(store_fixture, drafts=[draft(queue)], attempt=ATTEMPT)
    other = Attempt(ATTEMPT.key, b"g" * 32, HOUR)
    with pytest.raises(KeyReused):
        await execute(store_fixture, drafts=[draft(queue)], attempt=other)


async def test_a_draft_that_repeats_a_message_id_is_not_stored_again(store_fixture: StoreFixture) -> None:
    queue = await store_fixture.queue(QueueSettings(duplicate_detection_window=HOUR))
    checked = partial(draft, queue, duplicate_window=HOUR)
    await store_fixture.store.send([checked(b"1", "same")])
    (message,) = await store_fixture.claim(queue)
    result = await execute(
        store_fixture, completion(queue, message), drafts=[checked(b"2", "same"), checked(b"3", "new")]
    )
    assert [receipt.duplicate for receipt in result.receipts] == [True, False]
    assert bodies(await store_fixture.claim(queue)) == [b"3"]
