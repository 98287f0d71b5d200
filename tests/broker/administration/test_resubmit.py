"""A resubmission replaces a dead letter by a new message. Both changes take effect, or neither."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from app.broker.administration.edit import edit
from app.broker.administration.resubmit import resubmit
from app.broker.ports.maintaining import Edit
from app.broker.receiving.receive import ReceiveRequest, receive
from app.broker.sending.send import send
from app.broker.settling.outcomes import dead_letter
from app.broker.settling.settle import settle_one
from app.domain.instant import HOUR
from app.domain.message import Envelope, Message, MessageHeaders, MessageState
from app.domain.queue import Queue, QueueSettings, QueueStatus
from app.domain.refusals import (
    Conflict,
    MessageLocked,
    MessageNotFound,
    MessageTooLarge,
    PreconditionFailed,
    ReceiveDisabled,
    StoreUnavailable,
)
from app.domain.sending import NewMessage
from app.domain.settlement import token_of
from app.maintenance.expiry import expire_locks
from tests.brokers import ChangedStore, OpenBroker, result_of
from tests.virtual_clock import VirtualClock

NEW = NewMessage(Envelope("", MessageHeaders(subject="repaired")))


async def messages(broker: OpenBroker, queue: Queue) -> list[Message]:
    """All messages of the queue."""
    return await broker.store.browse(queue.id, list(MessageState), 0, 10)


async def states(broker: OpenBroker, queue: Queue) -> list[tuple[MessageState, str | None]]:
    """The states and subjects of all messages."""
    return [(message.state, message.envelope.headers.subject) for message in await messages(broker, queue)]


@pytest.fixture
async def dead(broker: OpenBroker, queue: Queue) -> Message:
    await send(broker.sending, queue.name, [NewMessage(Envelope("", MessageHeaders(subject="broken")))])
    (received,) = (await receive(broker.receiving, queue, ReceiveRequest())).result
    await settle_one(broker.settling, queue, dead_letter(queue, token_of(received), "bad", None))
    (message,) = await messages(broker, queue)
    return message


async def replace_by_new(broker: OpenBroker, queue: Queue, dead: Message, new: NewMessage = NEW) -> int:
    """Resubmit a message as it was read; return the number of the new one."""
    number, etag = dead.sequence_number, dead.etag
    return (await resubmit(broker.administration, queue, number, etag, new, "console")).sequence_number


async def test_the_new_message_takes_the_place_of_the_old_one(broker: OpenBroker, queue: Queue, dead: Message) -> None:
    number = await replace_by_new(broker, queue, dead)
    (left,) = await messages(broker, queue)
    assert (left.sequence_number, left.state, left.envelope.headers.subject) == (
        number,
        MessageState.AVAILABLE,
        "repaired",
    )
    assert (left.delivery_count, left.failure_count, left.dead_letter_reason) == (0, 0, None)


async def test_a_repeat_has_no_effect(broker: OpenBroker, queue: Queue, dead: Message) -> None:
    await replace_by_new(broker, queue, dead)
    with pytest.raises(MessageNotFound):
        await replace_by_new(broker, queue, dead)
    assert len(await messages(broker, queue)) == 1


async def test_two_at_the_same_time_have_one_effect(broker: OpenBroker, queue: Queue, dead: Message) -> None:
    tries = (replace_by_new(broker, queue, dead), replace_by_new(broker, queue, dead))
    results = await asyncio.gather(*tries, return_exceptions=True)
    assert sorted(isinstance(result, int) for result in results) == [False, True]
    assert await states(broker, queue) == [(MessageState.AVAILABLE, "repaired")]


async def test_a_refused_message_leaves_the_dead_letter(broker: OpenBroker, queue: Queue, dead: Message) -> None:
    too_large = NewMessage(Envelope(""), body=bytes(queue.settings.max_message_bytes + 1))
    with pytest.raises(MessageTooLarge):
        await replace_by_new(broker, queue, dead, too_large)
    (left,) = await messages(broker, queue)
    assert (left.state, left.dead_letter_reason, left.etag) == (MessageState.DEAD_LETTERED, "bad", dead.etag)


@pytest.mark.parametrize("error", [StoreUnavailable("away"), asyncio.CancelledError()])
async def test_an_interruption_leaves_the_dead_letter(
    broker: OpenBroker, queue: Queue, dead: Message, error: BaseException
) -> None:
    async def fail(*_: object) -> Any:
        raise error

    store: Any = ChangedStore(broker.store, execute=fail)
    with pytest.raises(type(error)):
        await replace_by_new(replace(broker, store=store), queue, dead)
    assert await states(broker, queue) == [(MessageState.DEAD_LETTERED, "broken")]


async def test_after_a_crash_the_message_returns_to_the_dead_letters(
    broker: OpenBroker, queue: Queue, dead: Message, clock: VirtualClock
) -> None:
    async def crash(*_: object) -> Any:
        raise SystemError

    store: Any = ChangedStore(broker.store, execute=crash)
    with pytest.raises(SystemError):
        await replace_by_new(replace(broker, store=store), queue, dead)
    assert await states(broker, queue) == [(MessageState.LOCKED, "broken")]
    await clock.advance(queue.settings.lock_duration / 1_000_000 + 1)
    await expire_locks(broker.settling)
    assert await states(broker, queue) == [(MessageState.DEAD_LETTERED, "broken")]


def interrupted(broker: OpenBroker, happen: Callable[[], Awaitable[object]]) -> OpenBroker:
    """Return the broker with a store in which something happens between the read and the claim."""

    async def claim_after(*arguments: Any) -> Any:
        await happen()
        return await broker.store.claim_by_number(*arguments)

    store: Any = ChangedStore(broker.store, claim_by_number=claim_after)
    return replace(broker, store=store)


async def test_a_message_that_is_edited_meanwhile_stays(broker: OpenBroker, queue: Queue, dead: Message) -> None:
    number = dead.sequence_number
    changed = interrupted(
        broker, lambda: edit(broker.administration, queue, number, lambda seen: Edit(seen, properties=b"{}"))
    )
    with pytest.raises(PreconditionFailed):
        await replace_by_new(changed, queue, dead)
    assert await states(broker, queue) == [(MessageState.DEAD_LETTERED, "broken")]


async def test_a_message_that_is_received_meanwhile_stays(broker: OpenBroker, queue: Queue, dead: Message) -> None:
    from_dead_letters = ReceiveRequest(source=MessageState.DEAD_LETTERED)
    changed = interrupted(broker, lambda: result_of(receive(broker.receiving, queue, from_dead_letters)))
    for one in (changed, broker):
        with pytest.raises(MessageLocked):
            await replace_by_new(one, queue, dead)
    assert await states(broker, queue) == [(MessageState.LOCKED, "broken")]


async def test_another_etag_is_refused(broker: OpenBroker, queue: Queue, dead: Message) -> None:
    with pytest.raises(PreconditionFailed):
        await resubmit(broker.administration, queue, dead.sequence_number, "0" * 24, NEW, "console")
    assert await states(broker, queue) == [(MessageState.DEAD_LETTERED, "broken")]


async def test_only_a_dead_letter_is_resubmitted(broker: OpenBroker, queue: Queue) -> None:
    await send(broker.sending, queue.name, [NewMessage(Envelope(""))])
    (message,) = await messages(broker, queue)
    with pytest.raises(Conflict):
        await replace_by_new(broker, queue, message)


async def test_a_queue_that_delivers_nothing_refuses(broker: OpenBroker, queue: Queue, dead: Message) -> None:
    paused = replace(queue, settings=replace(queue.settings, status=QueueStatus.RECEIVE_DISABLED))
    with pytest.raises(ReceiveDisabled):
        await replace_by_new(broker, paused, dead)


async def test_a_new_id_is_no_duplicate_of_the_old_message(broker: OpenBroker) -> None:
    queue, _ = await broker.store.queues.create("unique", QueueSettings(duplicate_detection_window=HOUR))
    await send(broker.sending, queue.name, [NewMessage(Envelope("17"))])
    (received,) = (await receive(broker.receiving, queue, ReceiveRequest())).result
    await settle_one(broker.settling, queue, dead_letter(queue, token_of(received), "bad", None))
    (dead,) = await messages(broker, queue)
    await replace_by_new(broker, queue, dead)
    assert await states(broker, queue) == [(MessageState.AVAILABLE, "repaired")]
