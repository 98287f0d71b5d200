"""What a program sees of a real server, on every store."""

from __future__ import annotations

import asyncio
import itertools
import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import msgspec
import pytest
from peeklock_client import (
    AlreadySettled,
    Client,
    LockLost,
    Message,
    NewMessage,
    Queue,
    ReceiveContext,
    ReceiveState,
    Refusal,
    RetryLimits,
)
from peeklock_client.errors import MessageNotFound, NoReceiver, QueueNotFound, TransactionRolledBack
from peeklock_client.generated import requests
from pydantic import BaseModel

from tests.bounds import bounded
from tests.client.conftest import LONG_ON_EACH_STORE, new_queue

WAIT = 20.0
HELD = 40
BODIES = [
    None, True, 17, 2**60, -1.5, 7.0, "007", "", "\u2028", [], {}, {"a": [1, {"b": None}]}, b"", b"\x00\xff", b"text",
]  # fmt: skip


@dataclass
class Order:
    number: int
    due: datetime


class Model(BaseModel):
    name: str


async def test_a_server_on_this_host_is_reached_without_a_proxy(
    server_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    async with Client(server_url, retries=RetryLimits(attempts=1)) as client:
        await new_queue(client)


@pytest.mark.parametrize("body", BODIES, ids=repr)
async def test_a_body_arrives_as_it_was_sent(queue: Queue, body: Any) -> None:
    await queue.send(body)
    [received] = await queue.receive()
    assert (received.message.body, type(received.message.body)) == (body, type(body))
    await received.complete()


@pytest.mark.parametrize(("number", "read"), [("1e400", math.inf), ("-1e400", -math.inf), ("9" * 5000, math.inf)])
async def test_a_number_that_python_cannot_hold_hides_no_other_message(
    queue: Queue, server_url: str, number: str, read: float
) -> None:
    await queue.send("before")
    headers = {"Content-Type": "application/json"}
    async with httpx.AsyncClient(base_url=server_url, headers=headers) as http:
        sent = await http.post(f"/v1/queues/{queue.name}/messages", content=f'{{"body": {{"n": [{number}, 1.5]}}}}')
        assert sent.status_code == 201
    await queue.send({"due": datetime(2026, 1, 2, tzinfo=UTC)})
    received = await queue.receive(3)
    assert [context.message.body for context in received] == [
        "before", {"n": [read, 1.5]}, {"due": "2026-01-02T00:00:00Z"},
    ]  # fmt: skip
    assert all(isinstance(context.message.enqueued_at, datetime) for context in received)


async def test_objects_are_sent_as_json(queue: Queue) -> None:
    at = datetime(2026, 1, 2, tzinfo=UTC)
    await queue.send_batch([Order(1, at), Model(name="a")])
    first, second = await queue.receive(2)
    assert msgspec.convert(first.message.body, Order) == Order(1, at)
    assert second.message.body == {"name": "a"}


async def test_models_within_a_body_are_sent_as_json(queue: Queue) -> None:
    await queue.send({"models": [Model(name="a")]})
    [received] = await queue.receive()
    assert received.message.body == {"models": [{"name": "a"}]}


async def test_every_field_arrives(any_queue: Queue) -> None:
    properties = {"text": "a", "large": 2**60, "float": 7.0, "yes": True, "none": None}
    sent = NewMessage(
        1, message_id="m", correlation_id="c", subject="s", reply_to="r", to="t", group_id="g", priority=7,
        properties=properties, ttl_seconds=60,
    )  # fmt: skip
    assert (await any_queue.send(sent)).message_id == "m"
    [received] = await any_queue.receive()
    message = received.message
    assert (message.message_id, message.correlation_id, message.subject) == ("m", "c", "s")
    assert (message.reply_to, message.to, message.group_id, message.priority) == ("r", "t", "g", 7)
    assert message.properties == properties
    assert {name: type(value) for name, value in message.properties.items()} == {
        name: type(value) for name, value in properties.items()
    }
    assert message.expires_at is not None
    assert message.expires_at - message.enqueued_at == timedelta(seconds=60)
    await received.complete()


async def test_a_message_is_received_locked_and_completed(any_queue: Queue) -> None:
    await any_queue.send("work")
    [received] = await any_queue.receive(wait_seconds=WAIT)
    assert 0 < received.lock_seconds <= 30
    assert await any_queue.receive() == []
    await received.complete()
    assert (await any_queue.status()).counts.locked == 0


async def test_an_abandoned_message_comes_back(any_queue: Queue) -> None:
    await any_queue.send("work")
    [first] = await any_queue.receive()
    await first.abandon(reason="closed", properties={"tried": 1})
    [second] = await any_queue.receive()
    message = second.message
    assert (message.delivery_count, message.failure_count, message.last_failure) == (2, 1, "closed")
    assert message.properties == {"tried": 1}
    await second.abandon(count=False)
    [third] = await any_queue.receive()
    assert third.message.failure_count == 1
    await third.complete()


async def test_a_message_is_set_aside_with_its_reason(any_queue: Queue) -> None:
    await any_queue.send("bad")
    [received] = await any_queue.receive()
    await received.dead_letter("bad_address", "No such street.")
    [dead] = await any_queue.receive(source="dead_letter")
    assert (dead.message.dead_letter_reason, dead.message.dead_letter_description) == ("bad_address", "No such street.")
    await dead.complete()


async def test_a_deferred_message_is_received_by_its_number(any_queue: Queue) -> None:
    sent = await any_queue.send("later")
    [received] = await any_queue.receive()
    await received.defer()
    assert await any_queue.receive() == []
    assert sent.sequence_number is not None
    [deferred] = await any_queue.receive(sequence_numbers=[sent.sequence_number])
    await deferred.complete()


async def test_a_stale_token_settles_nothing(any_queue: Queue) -> None:
    await any_queue.send("work")
    [received] = await any_queue.receive()
    await any_queue._api.purge_queue(any_queue.name, requests.PurgeQueue(states=["locked"]))
    with pytest.raises(LockLost) as lost:
        await received.complete()
    assert lost.value.cause == "settled_by_administrator"
    assert (received.state, received.in_doubt) == (ReceiveState.FAULTED, False)


async def test_a_settled_delivery_cannot_be_settled_in_another_way(queue: Queue) -> None:
    await queue.send("work")
    [received] = await queue.receive()
    await queue._api.complete_lock(queue.name, received.lock_token, requests.CompleteLock())
    with pytest.raises(AlreadySettled) as refused:
        await received.abandon()
    assert refused.value.outcome == "completed"


async def test_a_lock_is_renewed(queue: Queue) -> None:
    await queue.send("work")
    [received] = await queue.receive(lock_seconds=5)
    await received.renew(60)
    assert received.lock_seconds > 30
    await received.complete()


async def test_what_is_received_and_deleted_is_gone(queue: Queue) -> None:
    await queue.send("once")
    assert [message.body for message in await queue.receive_and_delete(wait_seconds=WAIT)] == ["once"]
    assert await queue.receive() == []


async def test_a_receiver_gets_back_what_it_holds(any_queue: Queue) -> None:
    await any_queue.send_batch([1, 2])
    held = await any_queue.receive(2, receiver_id="worker")
    recovered = await any_queue.recover("worker")
    assert [one.message.body for one in recovered] == [1, 2]
    with pytest.raises(LockLost):
        await held[0].complete()
    for one in recovered:
        await one.complete()


async def test_messages_are_browsed_page_by_page(queue: Queue) -> None:
    await queue.send_batch([*range(150)])
    seen: list[Message[Any]] = [message async for message in queue.browse(states=["available"])]
    assert [message.body for message in seen] == [*range(150)]
    assert await queue.purge() == 150


async def test_a_purge_and_its_plan_choose_messages(queue: Queue) -> None:
    for number in range(5):
        await queue.send(number, properties={"number": number})
    chosen = "message.properties.number >= 2"
    plan = await queue.plan_purge(filter=chosen)
    assert (plan.count, plan.complete, len(plan.sample)) == (3, True, 3)
    assert await queue.purge(filter=chosen, limit=1) == 1
    assert await queue.purge(states=["deferred"]) == 0
    assert await queue.purge(filter=chosen) == 2
    assert (await queue.status()).counts.available == 2


async def test_dead_letters_are_redriven_as_planned(client: Client, queue: Queue) -> None:
    other = await new_queue(client)
    await queue.send_batch([1, 2, 3])
    for received in await queue.receive(3):
        await received.dead_letter("broken")
    plan = await queue.plan_redrive()
    assert (plan.count, [message.dead_letter_reason for message in plan.sample]) == (3, ["broken"] * 3)
    assert await queue.redrive(limit=2) == 2
    assert await queue.redrive(to_queue=other.name) == 1
    assert [(await one.status()).counts.available for one in (queue, other)] == [2, 1]


async def test_messages_move_to_another_queue_in_the_background(client: Client, queue: Queue) -> None:
    other = await new_queue(client)
    await queue.send_batch([1, 2, 3])
    assert (await queue.plan_move(other.name)).count == 3
    started = await queue.move(other.name)
    assert (started.state, started.found) == ("running", 3)
    for _ in bounded("the task ends"):
        task = await queue.move_task(started.id)
        if task.state != "running":
            break
        await asyncio.sleep(0.05)
    assert (task.state, task.moved) == ("completed", 3)
    assert await queue.move_tasks() == [task]
    assert sorted(received.message.body for received in await other.receive(3)) == [1, 2, 3]


async def test_a_move_is_cancelled(client: Client, queue: Queue) -> None:
    other = await new_queue(client)
    await queue.send_batch([1, 2])
    started = await queue.move(other.name, rate_per_second=0.001)
    assert (await queue.cancel_move(started.id)).state == "cancelled"


async def test_a_queue_says_why_it_is_stalled_and_where_a_message_is(queue: Queue) -> None:
    assert (await queue.explain()).reason == "empty"
    sent = await queue.send("one")
    assert sent.sequence_number is not None
    assert (await queue.explain_message(sent.sequence_number)).reason == "next"


async def test_a_setting_is_changed_and_the_others_are_kept(queue: Queue) -> None:
    before = await queue.status()
    after = await queue.update(requests.QueuePatch(max_delivery_count=3))
    assert (after.max_delivery_count, after.lock_duration_seconds) == (3, before.lock_duration_seconds)
    restored = await queue.update(requests.QueuePatch(max_delivery_count=None))
    assert restored.max_delivery_count == before.max_delivery_count


async def test_a_change_of_settings_can_keep_locks(queue: Queue) -> None:
    await queue.send("one")
    [received] = await queue.receive(wait_seconds=WAIT)
    await queue.update(requests.QueuePatch(lock_duration_seconds=60), keep_locks=True)
    await received.complete()


async def test_create_keeps_the_settings_of_an_existing_queue(client: Client) -> None:
    queue = await new_queue(client)
    assert not await queue.create(requests.QueueSettingsBody(lock_duration_seconds=5))
    assert (await queue.status()).lock_duration_seconds == 30
    await queue.delete()
    with pytest.raises(QueueNotFound):
        await queue.status()


@pytest.mark.behaviour("S0.20", "S0.21", "S0.22", "S0.23")
@pytest.mark.parametrize("step", ["complete", "abandon"])
@LONG_ON_EACH_STORE
async def test_what_races_with_a_fault_is_gone_or_comes_back(any_client: Client, any_queue: Queue, step: str) -> None:
    """The first has its fault at once. When half have ended, the others have theirs, with requests on their way."""
    half = asyncio.Event()

    async def race(number: int, received: ReceiveContext[Any]) -> None:
        settling = asyncio.ensure_future(getattr(received, step)())
        settling.add_done_callback(lambda _: half.set() if sum(one.has_ended for one in held) > HELD // 2 else None)
        if number:
            await half.wait()
        received.fault()
        await asyncio.wait([settling])
        settling.exception()

    await any_queue.send_batch([*range(HELD)])
    held = await any_queue.receive(HELD, lock_seconds=5)
    await asyncio.gather(*itertools.starmap(race, enumerate(held)))
    clock = await new_queue(any_client)
    await clock.send("the locks have ended", delay_seconds=6)
    assert await clock.receive(wait_seconds=WAIT)
    back = {one.message.body for one in await any_queue.receive(HELD, wait_seconds=WAIT if step == "abandon" else 0)}
    ended = {one.message.body for one in held if one.state is not ReceiveState.FAULTED}
    doubted = {one.message.body for one in held if one.state is ReceiveState.FAULTED}
    assert ended
    assert doubted
    assert all(one.in_doubt for one in held if one.state is ReceiveState.FAULTED)
    assert ended <= back if step == "abandon" else not ended & back
    assert doubted <= back or step == "complete"
    counts = (await any_queue.status()).counts
    assert (counts.available, counts.locked) == (0, len(back))


# ---- transactions ----------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("S0.2", "S0.8")
async def test_a_transaction_takes_effect_with_its_commit(any_client: Client, any_queue: Queue) -> None:
    results = await new_queue(any_client)
    await any_queue.send("work")
    [received] = await any_queue.receive()
    async with await any_client.transaction() as transaction:
        await results.send("done", transaction=transaction)
        await received.complete(transaction=transaction)
        assert await results.receive() == []
    [result] = await results.receive()
    assert (result.message.body, (await any_queue.status()).counts.locked) == ("done", 0)
    await result.complete()


async def test_an_error_rolls_a_transaction_back(any_client: Client, any_queue: Queue) -> None:
    transaction = await any_client.transaction()
    await any_queue.send("never", transaction=transaction)
    with pytest.raises(ZeroDivisionError):
        async with transaction:
            raise ZeroDivisionError
    assert await any_queue.receive() == []
    with pytest.raises(TransactionRolledBack):
        await transaction.commit()


@pytest.mark.behaviour("S0.8")
async def test_a_rolled_back_transaction_returns_its_receives(any_client: Client, any_queue: Queue) -> None:
    """Each can be settled at once, with its own lock."""
    await any_queue.send_batch([*range(4)])
    received = await any_queue.receive(4)
    steps = ("complete", "abandon", "dead_letter", "defer")
    transaction = await any_client.transaction()
    for one, step in zip(received, steps, strict=True):
        await getattr(one, step)(transaction=transaction)
    assert not any(one.is_active for one in received)
    with pytest.raises(ZeroDivisionError):
        async with transaction:
            raise ZeroDivisionError
    assert {one.state for one in received} == {ReceiveState.RECEIVED}
    for one in received:
        await one.complete()
    counts = (await any_queue.status()).counts
    assert (counts.locked, counts.available, counts.dead_lettered, counts.deferred) == (0, 0, 0, 0)


async def test_a_block_may_roll_its_transaction_back(client: Client, queue: Queue) -> None:
    await queue.send("work")
    [received] = await queue.receive()
    async with await client.transaction() as transaction:
        await received.complete(transaction=transaction)
        await transaction.rollback()
    assert (transaction.committed, received.state) == (None, ReceiveState.RECEIVED)
    await received.complete()
    assert received.outcome == "completed"


async def test_a_commit_after_the_rollback_returns_its_receives(client: Client, queue: Queue) -> None:
    await queue.send("work")
    [received] = await queue.receive()
    transaction = await client.transaction()
    await received.complete(transaction=transaction)
    await client.api.rollback_transaction(transaction.id, requests.EndTransaction())
    with pytest.raises(TransactionRolledBack):
        await transaction.commit()
    await received.complete()
    assert received.outcome == "completed"


@pytest.mark.behaviour("S0.25")
async def test_the_doubt_of_a_receive_does_not_spread_to_its_transaction(client: Client, queue: Queue) -> None:
    await queue.send("work")
    [received] = await queue.receive()
    async with await client.transaction() as transaction:
        completing = asyncio.ensure_future(received.complete(transaction=transaction))
        await asyncio.sleep(0)
        received.fault()
        with pytest.raises(Exception, match="faulted"):
            await completing
    assert received.in_doubt
    assert transaction.committed is not None
    assert transaction.committed.state == "committed"


# ---- topics, and requests with replies -------------------------------------------------------------------------------


async def test_a_topic_copies_to_its_subscriptions(any_client: Client, any_queue: Queue) -> None:
    topic = any_client.topic(f"topic-{any_queue.name}")
    await any_client.api.put_topic(topic.name, requests.TopicSettingsBody())
    copies = await topic.subscribe("all")
    assert (await topic.publish({"order": 17})).matched == 1
    assert [result.matched for result in await topic.publish_batch([1, 2])] == [1, 1]
    assert [one.message.body for one in await copies.receive(3)] == [{"order": 17}, 1, 2]


async def test_a_request_gets_the_reply_of_its_receiver(any_queue: Queue) -> None:
    asked = asyncio.ensure_future(any_queue.request([8, 9], wait_seconds=WAIT))
    [received] = await any_queue.receive(wait_seconds=WAIT)
    await received.complete(reply={"total": sum(received.message.body)})
    assert await asked == {"total": 17}


async def test_a_request_without_a_receiver_is_refused(queue: Queue) -> None:
    with pytest.raises(NoReceiver):
        await queue.request(1, wait_seconds=0.1)


# ---- refusals --------------------------------------------------------------------------------------------------------


async def test_a_refusal_names_the_field(queue: Queue) -> None:
    with pytest.raises(Refusal, match="`priority` must be an integer of at most 9"):
        await queue.send(1, priority=10)


async def test_an_unknown_token_is_not_found(queue: Queue) -> None:
    await queue.send(1)
    [received] = await queue.receive()
    received.lock_token = "99." + "0" * 32
    with pytest.raises(MessageNotFound):
        await received.complete()


async def test_fields_go_with_the_message_or_with_the_call(queue: Queue) -> None:
    with pytest.raises(TypeError, match="on the NewMessage"):
        await queue.send(NewMessage(1), priority=3)
