"""A queue with a history records each transition of its messages once, in the transaction that makes it."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace as replaced
from typing import Any

import pytest

from app.broker.ports.attempts import Attempt
from app.broker.ports.maintaining import Edit, Redrive, UnlockedRow, Withdrawal
from app.broker.ports.settling import Extension
from app.broker.ports.store import Store
from app.broker.ports.transactions import SettlementsFailed
from app.domain.delivery import Recovery
from app.domain.history import Event, MessageEvent
from app.domain.instant import DAY, HOUR, MINUTE, SECOND
from app.domain.message import Draft, Envelope, Message, MessageState
from app.domain.queue import Queue, QueueSettings, history_retention
from app.domain.settlement import ANY_LOCK, TTL_EXPIRED_REASON, Outcome
from app.domain.work_unit import WorkUnit
from tests.bounds import bounded
from tests.contract.store_fixture import (
    StoreFixture,
    abandonment,
    claim,
    completion,
    draft,
    expiry,
    token,
    with_wrong_token,
)

KEPT: dict[str, Any] = {"keeps_history": True}


@pytest.fixture
async def recorded(store_fixture: StoreFixture) -> Queue:
    """An empty queue with a history."""
    return await store_fixture.queue(QueueSettings(history=True))


async def send(store_fixture: StoreFixture, queue: Queue, count: int = 1, **fields: Any) -> list[int]:
    """Send messages as a server does to a queue with a history."""
    drafts = [draft(queue, **KEPT | fields) for _ in range(count)]
    return [receipt.sequence_number for receipt in await store_fixture.store.send(drafts)]


async def receive(store_fixture: StoreFixture, queue: Queue, most: int = 100, **fields: Any) -> list[Message]:
    """Receive as a server does from a queue with a history."""
    return await store_fixture.claim(queue, most, **KEPT | {"receiver_id": "worker"} | fields)


async def locked(store_fixture: StoreFixture, queue: Queue, **fields: Any) -> Message:
    """Send a message and receive it."""
    await send(store_fixture, queue, **fields)
    (message,) = await receive(store_fixture, queue)
    return message


async def history(store_fixture: StoreFixture, queue: Queue, number: int) -> list[MessageEvent]:
    """Return all events of a message."""
    return await store_fixture.store.history(queue.id, number, 0, 1000)


async def last(store_fixture: StoreFixture, message: Message) -> tuple[Any, ...]:
    """Return what the last event of a message says about the end of a delivery."""
    *_, event = await store_fixture.store.history(message.queue_id, message.sequence_number, 0, 1000)
    return event.event, event.outcome, event.state, event.receiver_id, event.delivery_count, event.reason


def names(events: Sequence[MessageEvent]) -> list[Event]:
    """Return what happened, in order."""
    return [event.event for event in events]


async def count_rows(store_fixture: StoreFixture) -> int:
    """Return how many events are stored."""
    ((count,),) = await store_fixture.execute("SELECT COUNT(*) FROM message_event")
    return count


# ---- each transition -------------------------------------------------------------------------------------------------


async def test_a_completed_message_was_sent_delivered_and_settled(store_fixture: StoreFixture, recorded: Queue) -> None:
    message = await locked(store_fixture, recorded)
    assert await store_fixture.store.remove([completion(recorded, message, **KEPT)]) == [True]
    sent, delivered, settled = await history(store_fixture, recorded, message.sequence_number)
    assert (sent.event, sent.state, sent.receiver_id) == (Event.SENT, MessageState.AVAILABLE, None)
    assert (delivered.event, delivered.state, delivered.receiver_id, delivered.delivery_count) == (
        Event.DELIVERED,
        MessageState.LOCKED,
        "worker",
        1,
    )
    assert (settled.event, settled.outcome, settled.state, settled.receiver_id, settled.delivery_count) == (
        Event.SETTLED,
        Outcome.COMPLETED,
        None,
        "worker",
        1,
    )
    assert sent.at <= delivered.at <= settled.at
    assert sent.number < delivered.number < settled.number


async def test_each_of_many_messages_of_one_statement_is_recorded_once(
    store_fixture: StoreFixture, recorded: Queue
) -> None:
    sent = await send(store_fixture, recorded, 5)
    messages = await receive(store_fixture, recorded)
    assert (
        await store_fixture.store.remove([completion(recorded, message, **KEPT) for message in messages]) == [True] * 5
    )
    for number in sent:
        assert names(await history(store_fixture, recorded, number)) == [Event.SENT, Event.DELIVERED, Event.SETTLED]


async def test_each_delivery_names_its_own_receiver(store_fixture: StoreFixture, recorded: Queue) -> None:
    first = await locked(store_fixture, recorded)
    await store_fixture.store.move([abandonment(first, last_failure="printer on fire", **KEPT)])
    assert await last(store_fixture, first) == (
        Event.SETTLED, Outcome.ABANDONED, MessageState.AVAILABLE, "worker", 1, "printer on fire",
    )  # fmt: skip
    (second,) = await receive(store_fixture, recorded, receiver_id="other")
    await store_fixture.store.remove([completion(recorded, second, **KEPT)])
    assert await last(store_fixture, second) == (Event.SETTLED, Outcome.COMPLETED, None, "other", 2, None)


@pytest.mark.parametrize(
    ("fields", "state", "reason"),
    [
        ({"state": MessageState.SCHEDULED, "delay": MINUTE, "last_failure": "slow"}, MessageState.SCHEDULED, "slow"),
        ({"state": MessageState.DEFERRED, "outcome": Outcome.DEFERRED}, MessageState.DEFERRED, None),
        (
            {"state": MessageState.DEAD_LETTERED, "last_failure": "bad", "dead_letter_reason": "too often"},
            MessageState.DEAD_LETTERED,
            "too often",
        ),
    ],
    ids=["delayed", "deferred", "dead-lettered"],
)
async def test_a_settlement_is_recorded_with_the_state_after_it(
    store_fixture: StoreFixture, recorded: Queue, fields: dict[str, Any], state: MessageState, reason: str | None
) -> None:
    message = await locked(store_fixture, recorded)
    move = abandonment(message, **fields, **KEPT)
    assert await store_fixture.store.move([move]) == [True]
    assert await last(store_fixture, message) == (Event.SETTLED, move.outcome, state, "worker", 1, reason)


async def test_the_end_of_a_lock_is_recorded_as_a_release(store_fixture: StoreFixture, recorded: Queue) -> None:
    message = await locked(store_fixture, recorded)
    await store_fixture.advance_time(31)
    assert await store_fixture.store.release([expiry(message, last_failure="lock_expired", **KEPT)]) == [True]
    assert await last(store_fixture, message) == (
        Event.RELEASED, Outcome.LOCK_EXPIRED, MessageState.AVAILABLE, "worker", 1, "lock_expired",
    )  # fmt: skip


async def test_each_renewal_is_recorded(store_fixture: StoreFixture, recorded: Queue) -> None:
    message = await locked(store_fixture, recorded)
    extension = Extension(token(message), recorded.id, MINUTE, -1, keeps_history=True)
    await store_fixture.store.extend([extension])
    await store_fixture.store.extend([extension, extension])
    found = await history(store_fixture, recorded, message.sequence_number)
    assert names(found) == [Event.SENT, Event.DELIVERED, *[Event.RENEWED] * 3]
    assert {event.receiver_id for event in found[1:]} == {"worker"}


async def test_a_delivery_by_number_is_recorded(store_fixture: StoreFixture, recorded: Queue) -> None:
    message = await locked(store_fixture, recorded)
    await store_fixture.store.move(
        [abandonment(message, state=MessageState.DEFERRED, outcome=Outcome.DEFERRED, failures=0, **KEPT)]
    )
    wanted = claim(recorded, 1, source=MessageState.DEFERRED, receiver_id="second", **KEPT)
    (again,) = await store_fixture.store.claim_by_number(wanted, [message.sequence_number])
    assert await last(store_fixture, again) == (Event.DELIVERED, None, MessageState.LOCKED, "second", 2, None)


async def test_a_delivery_from_the_dead_letters_is_recorded(store_fixture: StoreFixture, recorded: Queue) -> None:
    message = await locked(store_fixture, recorded)
    await store_fixture.store.move([abandonment(message, state=MessageState.DEAD_LETTERED, **KEPT)])
    (again,) = await receive(store_fixture, recorded, source=MessageState.DEAD_LETTERED)
    assert await last(store_fixture, again) == (Event.DELIVERED, None, MessageState.LOCKED, "worker", 2, None)


async def test_a_recovery_is_recorded_as_a_delivery(store_fixture: StoreFixture, recorded: Queue) -> None:
    message = await locked(store_fixture, recorded)
    recovered = await store_fixture.store.recover(Recovery(recorded.id, "worker", 10, MINUTE))
    await store_fixture.store.remove([completion(recorded, recovered.messages[0], **KEPT)])
    found = await history(store_fixture, recorded, message.sequence_number)
    assert names(found) == [Event.SENT, Event.DELIVERED, Event.DELIVERED, Event.SETTLED]
    assert [event.delivery_count for event in found] == [None, 1, 2, 2]


async def test_a_scheduled_message_becomes_due(store_fixture: StoreFixture, recorded: Queue) -> None:
    (number,) = await send(store_fixture, recorded, delay=MINUTE)
    await store_fixture.advance_time(61)
    await store_fixture.store.promote(10)
    found = await history(store_fixture, recorded, number)
    assert [(event.event, event.state) for event in found] == [
        (Event.SENT, MessageState.SCHEDULED),
        (Event.DUE, MessageState.AVAILABLE),
    ]


async def test_an_edit_is_recorded(store_fixture: StoreFixture, recorded: Queue) -> None:
    (number,) = await send(store_fixture, recorded)
    (message,) = await store_fixture.store.browse(recorded.id, [MessageState.AVAILABLE], 0, 10)
    assert await store_fixture.store.edit(Edit(message, delay=MINUTE)) is not None
    assert await store_fixture.store.edit(Edit(message, priority=9)) is None
    found = await history(store_fixture, recorded, number)
    assert [(event.event, event.state) for event in found[1:]] == [(Event.EDITED, MessageState.SCHEDULED)]


async def test_a_cancellation_and_a_restore_are_recorded(store_fixture: StoreFixture, recorded: Queue) -> None:
    (number,) = await send(store_fixture, recorded)
    (message,) = await store_fixture.store.browse(recorded.id, [MessageState.AVAILABLE], 0, 10)
    assert await store_fixture.store.cancel(message, recorded)
    assert await last(store_fixture, message) == (Event.CANCELLED, Outcome.CANCELLED, None, None, None, None)
    (receipt,) = await store_fixture.store.restore(recorded, [number])
    assert names(await history(store_fixture, recorded, receipt.sequence_number)) == [Event.RESTORED]


async def test_purges_are_recorded(store_fixture: StoreFixture, recorded: Queue) -> None:
    held = await locked(store_fixture, recorded)
    (unlocked,) = await send(store_fixture, recorded)
    row = UnlockedRow(unlocked, recorded.id, MessageState.AVAILABLE)
    withdrawal = Withdrawal(row, recorded.name, Outcome.PURGED, HOUR)
    assert await store_fixture.store.withdraw([withdrawal, withdrawal]) == [True, False]
    removal = completion(recorded, held, outcome=Outcome.PURGED, fence=ANY_LOCK, is_in_group=True, **KEPT)
    assert await store_fixture.store.remove_locked(recorded.id, [removal]) == [True]
    assert names(await history(store_fixture, recorded, unlocked)) == [Event.SENT, Event.PURGED]
    assert await last(store_fixture, held) == (Event.PURGED, Outcome.PURGED, None, "worker", 1, None)


async def test_the_end_of_a_time_to_live_is_recorded(store_fixture: StoreFixture, recorded: Queue) -> None:
    removed, dead_lettered = await send(store_fixture, recorded, 2, ttl=MINUTE)
    await store_fixture.advance_time(61)
    row = UnlockedRow(removed, recorded.id, MessageState.AVAILABLE)
    assert await store_fixture.store.expire([Withdrawal(row, recorded.name, Outcome.EXPIRED, HOUR)]) == [True]
    row = UnlockedRow(dead_lettered, recorded.id, MessageState.AVAILABLE)
    assert await store_fixture.store.dead_letter([row], TTL_EXPIRED_REASON) == [True]
    *_, first = await history(store_fixture, recorded, removed)
    *_, second = await history(store_fixture, recorded, dead_lettered)
    assert (first.event, first.state, first.reason) == (Event.EXPIRED, None, None)
    assert (second.event, second.state, second.reason) == (
        Event.EXPIRED,
        MessageState.DEAD_LETTERED,
        TTL_EXPIRED_REASON,
    )


async def dead_letter(store_fixture: StoreFixture, queue: Queue) -> int:
    """Send a message and dead-letter it."""
    message = await locked(store_fixture, queue)
    await store_fixture.store.move([abandonment(message, state=MessageState.DEAD_LETTERED, **KEPT)])
    return message.sequence_number


async def test_a_redrive_is_recorded_and_the_history_follows_the_message(
    store_fixture: StoreFixture, recorded: Queue
) -> None:
    other = await store_fixture.queue(QueueSettings(history=True))
    number = await dead_letter(store_fixture, recorded)
    row = UnlockedRow(number, recorded.id, MessageState.DEAD_LETTERED)
    assert await store_fixture.store.redrive([Redrive(row, other.id)]) == [True]
    found = await history(store_fixture, other, number)
    assert names(found) == [Event.SENT, Event.DELIVERED, Event.SETTLED, Event.REDRIVEN]
    assert await history(store_fixture, recorded, number) == []


async def test_an_admission_to_a_group_is_recorded(store_fixture: StoreFixture) -> None:
    queue = await store_fixture.queue(QueueSettings(history=True, group_in_flight=1))

    def grouped() -> Draft:
        return draft(queue, envelope=Envelope(f"id-{next(ids)}", group_id="a"), is_in_group=True, **KEPT)

    ids = iter(range(10))
    first, second = numbers_of = [
        receipt.sequence_number for receipt in await store_fixture.store.send([grouped(), grouped()])
    ]
    (message,) = await receive(store_fixture, queue)
    await store_fixture.store.remove([completion(queue, message, is_in_group=True, **KEPT)])
    assert numbers_of[0] == message.sequence_number
    found = [(event.event, event.state) for event in await history(store_fixture, queue, second)]
    assert found == [(Event.SENT, MessageState.BLOCKED), (Event.ADMITTED, MessageState.AVAILABLE)]
    assert names(await history(store_fixture, queue, first)) == [Event.SENT, Event.DELIVERED, Event.SETTLED]


async def test_an_admission_after_a_cancellation_is_recorded(store_fixture: StoreFixture) -> None:
    queue = await store_fixture.queue(QueueSettings(history=True, group_in_flight=1))
    drafts = [draft(queue, envelope=Envelope(name, group_id="a"), is_in_group=True, **KEPT) for name in "ab"]
    first, second = await store_fixture.store.send(drafts)
    message = await store_fixture.store.read(queue.id, first.sequence_number)
    assert message is not None
    assert await store_fixture.store.cancel(message, queue)
    assert names(await history(store_fixture, queue, second.sequence_number)) == [Event.SENT, Event.ADMITTED]


async def test_a_redrive_records_what_else_it_admits(store_fixture: StoreFixture) -> None:
    queue = await store_fixture.queue(QueueSettings(history=True, group_in_flight=1))
    drafts = [draft(queue, envelope=Envelope(name, group_id="a"), is_in_group=True, **KEPT) for name in "abc"]
    first, _, last = (receipt.sequence_number for receipt in await store_fixture.store.send(drafts))
    (message,) = await receive(store_fixture, queue)
    set_aside = abandonment(message, state=MessageState.DEAD_LETTERED, is_in_group=True, **KEPT)
    assert await store_fixture.store.move([set_aside]) == [True]
    wider = await store_fixture.store.queues.change(queue, replaced(queue.settings, group_in_flight=3))
    assert wider is not None
    redrive = Redrive(UnlockedRow(first, queue.id, MessageState.DEAD_LETTERED), queue.id)
    assert await store_fixture.store.redrive([redrive]) == [True]
    assert names(await history(store_fixture, wider, first))[-1] is Event.REDRIVEN
    assert names(await history(store_fixture, wider, last)) == [Event.SENT, Event.ADMITTED]


async def test_a_work_unit_is_recorded_with_its_settlements_and_sends(
    store_fixture: StoreFixture, recorded: Queue
) -> None:
    message = await locked(store_fixture, recorded)
    stale = completion(recorded, with_wrong_token(message), is_in_group=True, **KEPT)
    with pytest.raises(SettlementsFailed):
        await store_fixture.store.execute(WorkUnit([stale], [draft(recorded, **KEPT)]), None)
    unit = WorkUnit([completion(recorded, message, is_in_group=True, **KEPT)], [draft(recorded, **KEPT)])
    once = await store_fixture.store.execute(unit, None)
    sent = once.result.receipts[0].sequence_number
    assert names(await history(store_fixture, recorded, message.sequence_number))[2:] == [Event.SETTLED]
    assert names(await history(store_fixture, recorded, sent)) == [Event.SENT]
    assert await count_rows(store_fixture) == 4


@pytest.mark.parametrize("limit", [2, None])
async def test_an_admission_after_a_change_of_the_limit_is_recorded(
    store_fixture: StoreFixture, limit: int | None
) -> None:
    queue = await store_fixture.queue(QueueSettings(history=True, group_in_flight=1))
    envelopes = [Envelope(f"id-{number}", group_id="a") for number in range(2)]
    drafts = [draft(queue, envelope=envelope, is_in_group=True, **KEPT) for envelope in envelopes]
    _, second = await store_fixture.store.send(drafts)
    assert await store_fixture.store.queues.change(queue, replaced(queue.settings, group_in_flight=limit))
    assert await store_fixture.store.admit_after_changes(10)
    assert names(await history(store_fixture, queue, second.sequence_number)) == [Event.SENT, Event.ADMITTED]


# ---- requests with an Idempotency-Key, and duplicates ----------------------------------------------------------------


async def test_a_repeated_attempt_is_recorded_once(store_fixture: StoreFixture, recorded: Queue) -> None:
    sending, receiving = (Attempt(bytes([number]) * 32, bytes(32), DAY) for number in range(2))
    same = draft(recorded, **KEPT)
    first, again = [await store_fixture.store.send_or_replay([same], sending) for _ in range(2)]
    for _ in range(2):
        await store_fixture.store.claim_or_replay(claim(recorded, 1, **KEPT), receiving)
    assert first.result == again.result
    number = first.result[0].sequence_number
    assert names(await history(store_fixture, recorded, number)) == [Event.SENT, Event.DELIVERED]


async def test_a_duplicate_is_not_recorded(store_fixture: StoreFixture, recorded: Queue) -> None:
    same = draft(recorded, duplicate_window=MINUTE, **KEPT)
    first, again = [(await store_fixture.store.send([same]))[0] for _ in range(2)]
    assert first.sequence_number == again.sequence_number
    assert names(await history(store_fixture, recorded, first.sequence_number)) == [Event.SENT]


# ---- nothing happened ------------------------------------------------------------------------------------------------


async def test_requests_without_effect_record_nothing(store_fixture: StoreFixture, recorded: Queue) -> None:
    message = await locked(store_fixture, recorded)
    guessed = with_wrong_token(message)
    before = await count_rows(store_fixture)
    assert await store_fixture.store.remove([completion(recorded, guessed, **KEPT)]) == [False]
    assert await store_fixture.store.move([abandonment(guessed, **KEPT)]) == [False]
    assert await store_fixture.store.release([expiry(message, **KEPT)]) == [False]
    assert await store_fixture.store.extend(
        [Extension(token(guessed), recorded.id, MINUTE, -1, keeps_history=True)]
    ) == [None]
    assert await receive(store_fixture, recorded) == []
    assert await count_rows(store_fixture) == before


async def test_a_queue_without_a_history_records_nothing(store_fixture: StoreFixture, queue: Queue) -> None:
    """The row of the queue decides, so a request from before the setting was changed records nothing either."""
    message = await locked(store_fixture, queue)
    await store_fixture.store.extend([Extension(token(message), queue.id, MINUTE, -1, keeps_history=True)])
    await store_fixture.store.move([abandonment(message, state=MessageState.DEAD_LETTERED, fence=ANY_LOCK, **KEPT)])
    row = UnlockedRow(message.sequence_number, queue.id, MessageState.DEAD_LETTERED)
    await store_fixture.store.redrive([Redrive(row, queue.id)])
    (again,) = await receive(store_fixture, queue)
    await store_fixture.store.remove([completion(queue, again, **KEPT)])
    (number,) = await send(store_fixture, queue)
    row = UnlockedRow(number, queue.id, MessageState.AVAILABLE)
    await store_fixture.store.withdraw([Withdrawal(row, queue.name, Outcome.PURGED, HOUR)])
    await store_fixture.store.restore(queue, [number])
    assert await count_rows(store_fixture) == 0


async def test_a_changed_setting_counts_for_later_transitions(store_fixture: StoreFixture, queue: Queue) -> None:
    message = await store_fixture.locked(queue, receiver_id="before")
    changed = await store_fixture.store.queues.change(queue, replaced(queue.settings, history=True))
    assert changed is not None
    await store_fixture.store.move([abandonment(message, **KEPT)])
    (again,) = await receive(store_fixture, changed)
    await store_fixture.store.queues.change(changed, replaced(queue.settings, history=False))
    await store_fixture.store.remove([completion(queue, again, **KEPT)])
    settled, delivered = await history(store_fixture, queue, message.sequence_number)
    assert (settled.event, settled.receiver_id) == (Event.SETTLED, None)
    assert (delivered.event, delivered.receiver_id) == (Event.DELIVERED, "worker")


async def test_an_end_names_no_receiver_of_an_earlier_delivery(store_fixture: StoreFixture, recorded: Queue) -> None:
    message = await locked(store_fixture, recorded)
    await store_fixture.store.move([abandonment(message)])  # by a process that has not heard of the history
    (again,) = await store_fixture.claim(recorded, 1, receiver_id="unheard")
    await store_fixture.store.remove([completion(recorded, again, **KEPT)])
    assert await last(store_fixture, again) == (Event.SETTLED, Outcome.COMPLETED, None, None, None, None)


# ---- side by side ----------------------------------------------------------------------------------------------------


async def test_one_of_many_settlements_of_a_delivery_is_recorded(
    store_fixture: StoreFixture, stores: list[Store], recorded: Queue
) -> None:
    sent = await send(store_fixture, recorded, 20)
    messages = await receive(store_fixture, recorded)
    effective = await asyncio.gather(
        *(store.remove([completion(recorded, message, **KEPT)]) for message in messages for store in stores * 2),
        *(store.move([abandonment(message, state=MessageState.DEFERRED, **KEPT)]) for message in messages for store in stores),
    )  # fmt: skip
    histories = [await history(store_fixture, recorded, number) for number in sent]
    settled = [sum(event.event is Event.SETTLED for event in events) for events in histories]
    assert sum(map(sum, effective)) == sum(settled)
    assert set(settled) <= {0, 1}
    in_queue = await store_fixture.store.read_many(recorded.id, sent)
    assert sum(message.state is MessageState.LOCKED for message in in_queue) == settled.count(0)


async def test_every_delivery_of_many_receivers_is_recorded_once(
    store_fixture: StoreFixture, stores: list[Store], recorded: Queue
) -> None:
    plain = await store_fixture.queue()
    sent = await send(store_fixture, recorded, 20)
    await store_fixture.send(plain, b"1", b"2")

    async def lifecycle(store: Store, worker: int) -> None:
        while messages := await store.claim(claim(recorded, 3, receiver_id=f"worker {worker}", **KEPT)):
            await store.remove([completion(recorded, message, **KEPT) for message in messages])
            await store.claim(claim(plain, 1))

    await asyncio.gather(*(lifecycle(store, worker) for worker in range(4) for store in stores))
    while left := await receive(store_fixture, recorded):
        await store_fixture.store.remove([completion(recorded, message, **KEPT) for message in left])
    for number in sent:
        events = await history(store_fixture, recorded, number)
        assert names(events) == [Event.SENT, Event.DELIVERED, Event.SETTLED]
        assert events[1].receiver_id == events[2].receiver_id
    assert await count_rows(store_fixture) == 60


async def test_messages_of_a_cancelled_receiver_are_recorded_as_released(
    store_fixture: StoreFixture, recorded: Queue
) -> None:
    (number,) = await send(store_fixture, recorded)
    receiving = asyncio.create_task(receive(store_fixture, recorded, 1))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    receiving.cancel()
    await asyncio.gather(receiving, return_exceptions=True)
    found: list[Event] = []
    for _ in bounded("what was delivered is released"):
        found = names(await history(store_fixture, recorded, number))
        if found[-1] is not Event.DELIVERED:
            break
        await asyncio.sleep(0.01)
    assert found in ([Event.SENT], [Event.SENT, Event.DELIVERED, Event.RELEASED])


# ---- reading ---------------------------------------------------------------------------------------------------------


async def test_a_history_is_read_in_pages(store_fixture: StoreFixture, recorded: Queue) -> None:
    message = await locked(store_fixture, recorded)
    await store_fixture.store.remove([completion(recorded, message, **KEPT)])
    whole = await history(store_fixture, recorded, message.sequence_number)
    first = await store_fixture.store.history(recorded.id, message.sequence_number, 0, 2)
    rest = await store_fixture.store.history(recorded.id, message.sequence_number, first[-1].number, 2)
    assert [*first, *rest] == whole


@pytest.mark.fence("queue")
async def test_a_history_is_read_in_its_own_queue(store_fixture: StoreFixture) -> None:
    recorded = await store_fixture.queue(QueueSettings(history=True))
    (number,) = await send(store_fixture, recorded)
    other = await store_fixture.queue(QueueSettings(history=True))
    assert await history(store_fixture, other, number) == []


# ---- deletion --------------------------------------------------------------------------------------------------------


async def ended(store_fixture: StoreFixture, queue: Queue) -> int:
    """Record a whole life of three events."""
    message = await locked(store_fixture, queue)
    await store_fixture.store.remove([completion(queue, message, **KEPT)])
    return message.sequence_number


async def empty_archive(store_fixture: StoreFixture) -> None:
    """Remove every message from the archive, as at the end of its retention."""
    await store_fixture.execute("DELETE FROM archive_seal")
    await store_fixture.execute("DELETE FROM archive")


async def test_a_history_is_kept_as_long_as_the_archive(store_fixture: StoreFixture) -> None:
    queue = await store_fixture.queue(QueueSettings(history=True, archive_retention=DAY))
    message = await locked(store_fixture, queue)
    await store_fixture.advance_time(DAY // SECOND - 60)
    await store_fixture.store.release([expiry(message, **KEPT)])
    (again,) = await receive(store_fixture, queue)
    await store_fixture.store.remove([completion(queue, again, **KEPT)])
    await store_fixture.advance_time(120)
    await empty_archive(store_fixture)
    await store_fixture.store.delete_expired(500)
    assert len(await history(store_fixture, queue, message.sequence_number)) == 5
    await store_fixture.advance_time(2 * DAY // SECOND)
    await store_fixture.store.delete_expired(500)
    assert await count_rows(store_fixture) == 0


@pytest.mark.fence("time")
async def test_events_within_their_time_stay_as_they_are(store_fixture: StoreFixture) -> None:
    recorded = await store_fixture.queue(QueueSettings(history=True))
    number = await ended(store_fixture, recorded)
    await empty_archive(store_fixture)
    for _ in range(2):
        await store_fixture.store.delete_expired(500)
        await store_fixture.advance_time(2 * DAY // SECOND)
    await store_fixture.store.delete_expired(500)
    assert len(await history(store_fixture, recorded, number)) == 3


async def test_the_history_of_a_message_in_a_queue_is_kept(store_fixture: StoreFixture, recorded: Queue) -> None:
    (number,) = await send(store_fixture, recorded)
    for _ in range(3):
        await store_fixture.advance_time(8 * DAY // SECOND)
        await store_fixture.store.delete_expired(500)
    assert names(await history(store_fixture, recorded, number)) == [Event.SENT]


async def test_a_queue_without_an_archive_keeps_a_history_for_an_hour(store_fixture: StoreFixture) -> None:
    queue = await store_fixture.queue(QueueSettings(history=True, archive_retention=0))
    number = await ended(store_fixture, queue)
    assert await store_fixture.archived(number, "outcome") == []
    await store_fixture.advance_time(59 * 60)
    await store_fixture.store.delete_expired(500)
    assert len(await history(store_fixture, queue, number)) == 3
    await store_fixture.advance_time(2 * 60)
    await store_fixture.store.delete_expired(500)
    assert await count_rows(store_fixture) == 0


async def test_a_history_that_was_switched_off_is_deleted_too(store_fixture: StoreFixture, recorded: Queue) -> None:
    message = await locked(store_fixture, recorded)
    await store_fixture.store.queues.change(recorded, replaced(recorded.settings, history=False))
    await store_fixture.store.remove([completion(recorded, message, **KEPT)])
    await empty_archive(store_fixture)
    await store_fixture.advance_time(9 * DAY // SECOND)
    await store_fixture.store.delete_expired(500)
    assert await count_rows(store_fixture) == 0


async def test_deletion_is_done_in_small_steps(store_fixture: StoreFixture, recorded: Queue) -> None:
    for _ in range(3):
        await ended(store_fixture, recorded)
    await empty_archive(store_fixture)
    await store_fixture.store.delete_expired(4)
    assert await count_rows(store_fixture) == 9
    await store_fixture.advance_time(9 * DAY // SECOND)
    kept = await ended(store_fixture, recorded)
    await store_fixture.store.delete_expired(4)
    assert await count_rows(store_fixture) == 12 - 4
    await store_fixture.store.delete_expired(4)
    await store_fixture.store.delete_expired(4)
    assert await count_rows(store_fixture) == len(await history(store_fixture, recorded, kept)) == 3


def test_a_queue_without_a_history_has_no_retention_of_events() -> None:
    assert history_retention(QueueSettings()) is None


# ---- counts ----------------------------------------------------------------------------------------------------------


async def test_the_newest_events_of_a_queue_are_counted_by_minute(store_fixture: StoreFixture, recorded: Queue) -> None:
    store, other = store_fixture.store, await store_fixture.queue(QueueSettings(history=True))
    await send(store_fixture, recorded, 2)
    await send(store_fixture, other, 3)
    message, _ = await receive(store_fixture, recorded)
    await store.remove([completion(recorded, message, **KEPT)])
    counts = await store.history_by_minute(recorded.id, 1000)
    assert all(one.minute % MINUTE == 0 for one in counts)
    newest = await store.now()
    assert newest - 10 * MINUTE < counts[0].minute <= counts[-1].minute <= newest
    totals = Counter[tuple[Event, Outcome | None]]()
    for one in counts:
        totals[one.event, one.outcome] += one.count
    assert totals == {
        (Event.SENT, None): 2,
        (Event.DELIVERED, None): 2,
        (Event.SETTLED, Outcome.COMPLETED): 1,
    }
    assert sum(one.count for one in await store.history_by_minute(recorded.id, 1)) == 1
    assert await store.history_by_minute(other.id, 3) == []
