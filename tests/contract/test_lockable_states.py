"""A message can be locked where it waits to be taken, and in no other state."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import pytest

from app.broker.ports.attempts import Attempt
from app.domain.instant import HOUR, MINUTE
from app.domain.message import Message, MessageState
from app.domain.queue import Queue, QueueSettings
from tests.contract.store_fixture import StoreFixture, abandonment, claim, completion
from tests.contract.test_groups import grouped

Preparation: TypeAlias = Callable[[StoreFixture, Queue], Awaitable[int]]
"""Leaves a message in some state. Returns its sequence number."""

Way: TypeAlias = Callable[[StoreFixture, Queue, int], Awaitable[list[Message]]]
"""Tries to lock a message of this number."""


async def available(store_fixture: StoreFixture, queue: Queue) -> int:
    (number,) = await store_fixture.send(queue, b"body")
    return number


async def locked(store_fixture: StoreFixture, queue: Queue) -> int:
    return (await store_fixture.locked(queue)).sequence_number


async def scheduled(store_fixture: StoreFixture, queue: Queue) -> int:
    (number,) = await store_fixture.send(queue, b"body", delay=HOUR)
    return number


async def blocked(store_fixture: StoreFixture, queue: Queue) -> int:
    await store_fixture.store.send([grouped(queue, "a")])
    await store_fixture.claim(queue)
    (receipt,) = await store_fixture.store.send([grouped(queue, "a")])
    return receipt.sequence_number


async def settled(store_fixture: StoreFixture, queue: Queue, state: MessageState) -> int:
    message = await store_fixture.locked(queue)
    assert await store_fixture.store.move([abandonment(message, state=state)]) == [True]
    return message.sequence_number


async def deferred(store_fixture: StoreFixture, queue: Queue) -> int:
    return await settled(store_fixture, queue, MessageState.DEFERRED)


async def dead_lettered(store_fixture: StoreFixture, queue: Queue) -> int:
    return await settled(store_fixture, queue, MessageState.DEAD_LETTERED)


async def next_message(store_fixture: StoreFixture, queue: Queue, _: int) -> list[Message]:
    return await store_fixture.claim(queue)


async def next_message_once(store_fixture: StoreFixture, queue: Queue, number: int) -> list[Message]:
    attempt = Attempt(number.to_bytes(32, "big"), b"f" * 32, MINUTE)
    return (await store_fixture.store.claim_or_replay(claim(queue), attempt)).result


async def next_dead_letter(store_fixture: StoreFixture, queue: Queue, _: int) -> list[Message]:
    return await store_fixture.claim(queue, source=MessageState.DEAD_LETTERED)


def by_number(source: MessageState) -> Way:
    """Lock by number from one state, as receives of deferred messages, from groups and through filters do."""

    async def claim_by_number(store_fixture: StoreFixture, queue: Queue, number: int) -> list[Message]:
        return await store_fixture.store.claim_by_number(claim(queue, source=source), [number])

    return claim_by_number


WAYS: dict[str, Way] = {
    "next": next_message,
    "next, once": next_message_once,
    "next dead letter": next_dead_letter,
    "available, by number": by_number(MessageState.AVAILABLE),
    "deferred, by number": by_number(MessageState.DEFERRED),
    "dead-lettered, by number": by_number(MessageState.DEAD_LETTERED),
}

STATES: dict[MessageState, tuple[Preparation, set[str]]] = {
    MessageState.AVAILABLE: (available, {"next", "next, once", "available, by number"}),
    MessageState.LOCKED: (locked, set()),
    MessageState.SCHEDULED: (scheduled, set()),
    MessageState.DEFERRED: (deferred, {"deferred, by number"}),
    MessageState.DEAD_LETTERED: (dead_lettered, {"next dead letter", "dead-lettered, by number"}),
    MessageState.BLOCKED: (blocked, set()),
}
"""How a message gets into each state, and the ways to lock it there."""


def test_every_state_is_tried() -> None:
    assert STATES.keys() == set(MessageState)


@pytest.mark.behaviour("S1.46")
@pytest.mark.parametrize("state", STATES, ids=[state.label for state in STATES])
async def test_only_a_message_that_waits_to_be_taken_can_be_locked(
    store_fixture: StoreFixture, state: MessageState
) -> None:
    prepare, lockable = STATES[state]
    for name, way in WAYS.items():
        queue = await store_fixture.queue(QueueSettings(group_in_flight=1))
        number = await prepare(store_fixture, queue)
        before = await store_fixture.store.read(queue.id, number)
        assert before is not None
        assert before.state is state
        taken = await way(store_fixture, queue, number)
        after = await store_fixture.store.read(queue.id, number)
        assert after is not None
        if name in lockable:
            assert [(message.sequence_number, message.home_state) for message in taken] == [(number, state)], name
            assert after.state is MessageState.LOCKED, name
        else:
            assert taken == [], name
            assert (after.state, after.lock_token, after.delivery_count) == (
                state, before.lock_token, before.delivery_count,
            ), name  # fmt: skip


@pytest.mark.behaviour("S1.46")
async def test_a_message_that_has_ended_or_expired_is_not_locked(store_fixture: StoreFixture, queue: Queue) -> None:
    message = await store_fixture.locked(queue)
    assert await store_fixture.store.remove([completion(queue, message)]) == [True]
    (expired,) = await store_fixture.send(queue, b"body", ttl=MINUTE)
    await store_fixture.advance_time(61)
    for number in (message.sequence_number, expired):
        for way in WAYS.values():
            assert await way(store_fixture, queue, number) == []
