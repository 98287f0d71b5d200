"""Expired messages are archived or dead-lettered as their queue is set, and old rows are deleted."""

import pytest

from app.broker.settling.outcomes import complete
from app.broker.settling.settle import settle_one
from app.domain.instant import SECOND, to_seconds
from app.domain.message import MessageState
from app.domain.refusals import MessageNotFound
from app.domain.state import DEFAULT_RETENTION, NextState, state_change
from app.domain.work_unit import WorkUnit
from app.maintenance.retention import (
    BATCH_SIZE,
    DELETE_DELAY_SECONDS,
    VERSIONS_DELAY_SECONDS,
    delete_expired,
    delete_old_versions,
    expire_overdue,
)
from app.maintenance.seal import ArchiveSealer
from tests.bounds import bounded
from tests.maintenance.harness import BrokerHarness


async def test_an_expired_message_moves_to_the_archive(harness: BrokerHarness) -> None:
    queue = await harness.queue()
    (number,) = await harness.send(queue, ttl=10 * SECOND)
    (lasting,) = await harness.send(queue)
    await harness.clock.advance(9.9)
    await expire_overdue(harness.broker.administration)
    assert await harness.state(queue, number) is MessageState.AVAILABLE
    await harness.clock.advance(0.1)
    await expire_overdue(harness.broker.administration)
    assert await harness.state(queue, number) is None
    assert await harness.state(queue, lasting) is MessageState.AVAILABLE
    assert harness.counters["messages_expired"] == 1


async def test_an_expired_message_is_dead_lettered_if_its_queue_is_set_so(harness: BrokerHarness) -> None:
    queue = await harness.queue(dead_letter_on_expiry=True)
    (number,) = await harness.send(queue, ttl=SECOND)
    await harness.clock.advance(1)
    await expire_overdue(harness.broker.administration)
    message = await harness.read(queue, number)
    assert (message.state, message.dead_letter_reason) == (MessageState.DEAD_LETTERED, "ttl_expired")
    await harness.clock.advance(3600)
    await expire_overdue(harness.broker.administration)
    assert harness.counters["messages_expired"] == 1, "it stays in the dead-letter queue"


async def test_an_expired_message_of_a_deleted_queue_moves_to_the_archive(harness: BrokerHarness) -> None:
    queue = await harness.queue(dead_letter_on_expiry=True)
    (number,) = await harness.send(queue, ttl=SECOND)
    assert await harness.broker.store.queues.delete(queue)
    await harness.clock.advance(1)
    await expire_overdue(harness.broker.administration)
    assert await harness.state(queue, number) is None
    assert harness.counters["messages_expired"] == 1


async def test_a_locked_message_does_not_expire(harness: BrokerHarness) -> None:
    queue = await harness.queue()
    await harness.send(queue, ttl=SECOND)
    (message,) = await harness.receive(queue)
    await harness.clock.advance(5)
    await expire_overdue(harness.broker.administration)
    assert await harness.state(queue, message.sequence_number) is MessageState.LOCKED


async def test_the_expiry_of_messages_does_not_rest_after_a_full_batch(harness: BrokerHarness) -> None:
    queue = await harness.queue()
    await harness.send(queue, count=BATCH_SIZE + 1, ttl=SECOND)
    await harness.clock.advance(1)
    assert await expire_overdue(harness.broker.administration) == 0.0
    assert await expire_overdue(harness.broker.administration) is None
    assert harness.counters["messages_expired"] == BATCH_SIZE + 1


async def test_a_settled_message_is_known_until_its_archive_batch_is_removed(harness: BrokerHarness) -> None:
    queue = await harness.queue(archive_retention=60 * SECOND)
    token = await harness.send_and_lock(queue)
    await settle_one(harness.broker.settling, queue, complete(queue, token))
    await harness.clock.advance(59)
    assert await delete_expired(harness.broker.administration) == DELETE_DELAY_SECONDS
    assert (await settle_one(harness.broker.settling, queue, complete(queue, token))).replayed
    await harness.clock.advance(3601)
    await delete_expired(harness.broker.administration)
    assert (await settle_one(harness.broker.settling, queue, complete(queue, token))).replayed, "it is not sealed yet"
    sealing = ArchiveSealer(harness.broker.administration, 10)
    for _ in bounded("sealing rests"):
        if await sealing.step():
            break
    await delete_expired(harness.broker.administration)
    with pytest.raises(MessageNotFound):
        await settle_one(harness.broker.settling, queue, complete(queue, token))


@pytest.mark.behaviour("S4.17", "S4.22")
async def test_old_versions_of_states_are_removed_and_counted(harness: BrokerHarness) -> None:
    store = harness.broker.store
    for number in range(3):
        change = state_change(NextState("game.17", number, b"1", b"null"), f"m{number}")
        await store.execute(WorkUnit(states=[change]), None)
    assert await delete_old_versions(harness.broker.administration, DEFAULT_RETENTION) == VERSIONS_DELAY_SECONDS
    assert len(await store.states.history("game.17", 0, 10)) == 3
    await harness.clock.advance(to_seconds(DEFAULT_RETENTION) + 1)
    assert await delete_old_versions(harness.broker.administration, DEFAULT_RETENTION) == VERSIONS_DELAY_SECONDS
    assert [one.number for one in await store.states.history("game.17", 0, 10)] == [3]
    assert harness.counters["versions_removed"] == 2


async def test_the_removal_of_versions_does_not_rest_after_a_full_batch(harness: BrokerHarness) -> None:
    store = harness.broker.store
    for number in range(BATCH_SIZE + 2):
        change = state_change(NextState("game.17", number, b"1", b"null"), f"m{number}")
        await store.execute(WorkUnit(states=[change]), None)
    await store.states.delete("game.17")
    assert await delete_old_versions(harness.broker.administration, DEFAULT_RETENTION) == 0.0
    assert await delete_old_versions(harness.broker.administration, DEFAULT_RETENTION) == VERSIONS_DELAY_SECONDS
    assert harness.counters["versions_removed"] == BATCH_SIZE + 2


async def test_the_deletion_of_old_rows_does_not_rest_after_a_full_batch(harness: BrokerHarness) -> None:
    queue = await harness.queue()
    await harness.send(queue, count=BATCH_SIZE + 1)
    await harness.broker.store.queues.delete(queue)
    assert await delete_expired(harness.broker.administration) == 0.0
    assert await delete_expired(harness.broker.administration) == DELETE_DELAY_SECONDS
    assert harness.counters["rows_forgotten"] == BATCH_SIZE + 1
