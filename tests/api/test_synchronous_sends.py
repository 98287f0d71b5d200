"""A synchronous send is answered with the settlement of its message, and stores nothing that no receiver accepts."""

import asyncio

import pytest

from app.domain.synchronous_send import MAX_WAIT_SECONDS
from app.maintenance.schedule import wake_receivers
from app.wire.message_fields import DEFAULT_WAIT_SECONDS
from tests.api.api_server import MAX_WAIT, ApiServer, problem
from tests.api.synchronous_senders import PATH, Sender, assert_nothing_is_stored, sending
from tests.virtual_clock import run_ready_tasks


@pytest.mark.behaviour("S1.1", "S1.55")
async def test_the_sender_gets_the_acknowledgment_and_the_reply(api: ApiServer) -> None:
    async with sending(api) as sender:
        (message,) = await api.receive()
        assert (message["body"], message["delivery"]) == ("question", "synchronous")
        assert not sender.task.done()
        done = await api.settle(message, "complete", reply={"total": 17})
        assert done.json() == {"outcome": "completed", "sequence_number": 1, "replayed": False}
        response = await sender.answer()
    assert response.status_code == 200
    answer = response.json()
    assert answer.pop("message_id") == message["message_id"]
    assert answer == {"outcome": "completed", "sequence_number": 1, "reply": {"total": 17}}
    assert await api.counts() == {}


async def test_without_a_reply_the_answer_has_none(api: ApiServer) -> None:
    async with sending(api) as sender:
        (message,) = await api.receive()
        await api.settle(message, "complete")
        assert "reply" not in (await sender.answer()).json()


async def test_a_reply_of_null_is_a_reply(api: ApiServer) -> None:
    async with sending(api) as sender:
        (message,) = await api.receive()
        await api.settle(message, "complete", reply=None)
        assert (await sender.answer()).json()["reply"] is None


async def test_a_receiver_that_waits_is_woken_for_a_synchronous_send(api: ApiServer) -> None:
    await api.request_json("PUT", "/queues/orders", {})
    receiving = asyncio.ensure_future(api.receive(wait_seconds=20))
    await run_ready_tasks()
    async with sending(api) as sender:
        (message,) = await receiving
        await api.settle(message, "complete")
        assert (await sender.answer()).status_code == 200


@pytest.mark.behaviour("S1.2")
async def test_a_send_without_a_receiver_is_refused_and_nothing_is_stored(api: ApiServer) -> None:
    async with sending(api) as sender:
        assert await api.counts() == {"available": 1}
        await api.clock.advance(9.9)
        assert not sender.task.done()
        await api.clock.advance(0.1)
        problem(await sender.answer(), 409, "no-receiver")
    await assert_nothing_is_stored(api)


REFUSALS = {"abandon": "abandoned", "dead-letter": "dead_lettered", "defer": "deferred"}


@pytest.mark.behaviour("S1.2", "S1.74")
@pytest.mark.parametrize("verb", REFUSALS)
async def test_a_refusal_of_the_receiver_ends_the_message(api: ApiServer, verb: str) -> None:
    async with sending(api) as sender:
        (message,) = await api.receive()
        done = (await api.settle(message, verb)).json()
        assert done == {"outcome": REFUSALS[verb], "sequence_number": 1, "replayed": False}
        refused = problem(await sender.answer(), 409, "not-accepted")
        assert REFUSALS[verb] in refused["detail"]
        assert (await api.settle(message, verb)).json()["replayed"] is True
    await assert_nothing_is_stored(api)


async def test_a_receiver_that_releases_the_message_has_not_taken_it(api: ApiServer) -> None:
    async with sending(api) as sender:
        (message,) = await api.receive()
        assert (await api.settle(message, "release")).json()["outcome"] == "released"
        problem(await sender.answer(), 409, "no-receiver")
    await assert_nothing_is_stored(api)


@pytest.mark.behaviour("S1.78")
async def test_a_receiver_that_does_not_settle_in_time_loses_the_message(api: ApiServer) -> None:
    async with sending(api) as sender:
        (message,) = await api.receive()
        await api.clock.advance(10)
        problem(await sender.answer(), 504, "no-answer")
        lost = problem(await api.settle(message, "complete", reply="late"), 410, "lock-lost")
        assert lost["cause"] == "withdrawn"
    await assert_nothing_is_stored(api)


@pytest.mark.behaviour("S1.78")
async def test_a_receiver_whose_lock_ends_has_not_answered(api: ApiServer) -> None:
    async with sending(api, wait_seconds=40) as sender:
        await api.receive(lock_seconds=5)
        await api.advance_time(6)
        problem(await sender.answer(), 504, "no-answer")
    await assert_nothing_is_stored(api)


async def test_a_late_settlement_of_an_ended_lock_ends_the_message(api: ApiServer) -> None:
    async with sending(api, wait_seconds=40) as sender:
        (message,) = await api.receive(lock_seconds=5)
        await api.clock.advance(6)
        problem(await api.settle(message, "complete"), 410, "lock-lost")
        problem(await sender.answer(), 504, "no-answer")
    await assert_nothing_is_stored(api)


async def test_a_renewed_lock_is_settled(api: ApiServer) -> None:
    async with sending(api, wait_seconds=40) as sender:
        (message,) = await api.receive(lock_seconds=5)
        await api.clock.advance(4)
        assert (await api.settle(message, "renew", lock_seconds=20)).is_success
        await api.clock.advance(4)
        assert (await api.settle(message, "complete", reply=1)).is_success
        assert (await sender.answer()).json()["reply"] == 1


async def test_a_settlement_in_a_batch_may_carry_a_reply(api: ApiServer) -> None:
    async with sending(api) as sender:
        (message,) = await api.receive()
        settlement = {"action": "complete", "lock_token": message["lock_token"], "reply": [1]}
        await api.request_json("POST", "/queues/orders/settle", {"settlements": [settlement]})
        assert (await sender.answer()).json()["reply"] == [1]


@pytest.mark.behaviour("S1.55")
async def test_receive_and_delete_accepts_the_message(api: ApiServer) -> None:
    async with sending(api) as sender:
        (message,) = await api.receive(mode="receive_and_delete")
        assert message["body"] == "question"
        assert (await sender.answer()).json()["outcome"] == "received"


@pytest.mark.behaviour("S1.75")
async def test_a_receiver_with_a_filter_takes_the_message(api: ApiServer) -> None:
    async with sending(api, subject="total") as sender:
        assert await api.receive(filter="message.subject == 'other'") == []
        (message,) = await api.receive(filter="message.subject == 'total'")
        assert message["delivery_count"] == 1, "the filter that it did not match delivered nothing"
        await api.settle(message, "complete")
        assert (await sender.answer()).status_code == 200


async def test_an_ordinary_message_discards_the_reply(api: ApiServer) -> None:
    await api.send(body="order")
    (message,) = await api.receive()
    assert "delivery" not in message
    assert (await api.settle(message, "complete", reply=1)).json()["outcome"] == "completed"


async def test_a_message_is_browsed_while_its_sender_waits(api: ApiServer) -> None:
    async with sending(api):
        (shown,) = (await api.request_json("GET", PATH))["items"]
        assert (shown["state"], shown["delivery"]) == ("available", "synchronous")


async def test_an_explanation_says_that_the_sender_waits(api: ApiServer) -> None:
    async with sending(api):
        available = await api.request_json("GET", f"{PATH}/1/explain")
        waits = f"Its sender waits for the settlement, until {available['expires_at']}."
        assert (available["reason"], available["text"].endswith(waits)) == ("next", True)
        await api.receive()
        locked = await api.request_json("GET", f"{PATH}/1/explain")
        assert "deliverable_at" not in locked
        assert locked["text"].endswith(f"Without a settlement or a renewal it is then removed. {waits}")
        assert (await api.request_json("GET", "/queues/orders/explain"))["next_deliverable_at"] is None


# ---- acknowledgments with the delivery and after it -------------------------------------------------------------------


@pytest.mark.behaviour("S1.56")
async def test_an_acceptance_with_the_delivery_settles_what_was_refused_before(api: ApiServer) -> None:
    await api.send(body="order")
    (refused,) = await api.receive()
    await api.settle(refused, "abandon")
    (accepted,) = await api.receive(mode="receive_and_delete")
    assert accepted["failure_count"] == 1
    assert await api.counts() == {}
    assert (await api.settle(refused, "abandon")).json()["replayed"] is True


@pytest.mark.behaviour("S1.57")
async def test_a_refusal_is_noted_unless_the_delivery_was_accepted_before(api: ApiServer) -> None:
    await api.send(body="order")
    (message,) = await api.receive()
    await api.settle(message, "abandon", reason="busy")
    (again,) = await api.receive()
    assert (again["failure_count"], again["last_failure"]) == (1, "busy")
    await api.settle(again, "complete")
    problem(await api.settle(again, "abandon"), 409, "already-settled")
    assert await api.counts() == {}


@pytest.mark.behaviour("S1.77")
async def test_taking_and_then_refusing_counts_as_nothing(api: ApiServer) -> None:
    await api.send(body="order", subject="total")
    (before,) = (await api.request_json("GET", PATH))["items"]
    (message,) = await api.receive(filter="message.subject == 'total'")
    await api.settle(message, "release")
    assert (await api.request_json("GET", PATH))["items"] == [before]
    (again,) = await api.receive()
    assert (again["delivery_count"], again["failure_count"], again["redelivered"]) == (1, 0, False)


# ---- administrators --------------------------------------------------------------------------------------------------


async def test_an_administrator_neither_edits_nor_cancels_the_message(api: ApiServer) -> None:
    async with sending(api) as sender:
        problem(await api.request("PATCH", f"{PATH}/1", {"priority": 9}), 409, "synchronous-message")
        problem(await api.request("DELETE", f"{PATH}/1"), 409, "synchronous-message")
        assert not sender.task.done()


@pytest.mark.parametrize("is_locked", [False, True])
async def test_a_purge_ends_the_message(api: ApiServer, is_locked: bool) -> None:
    async with sending(api) as sender:
        held = await api.receive() if is_locked else []
        states = {"states": ["available", "locked"]}
        assert (await api.request_json("POST", "/queues/orders/purge", states))["removed"] == 1
        await wake_receivers(api.broker.wait_queue)
        problem(await sender.answer(), 409, "not-accepted")
        for message in held:
            problem(await api.settle(message, "complete"), 410, "lock-lost")
    await assert_nothing_is_stored(api)


async def test_a_change_of_settings_that_revokes_locks_ends_the_message(api: ApiServer) -> None:
    async with sending(api) as sender:
        (message,) = await api.receive()
        await api.request_json("PATCH", "/queues/orders", {"lock_duration_seconds": 60})
        problem(await sender.answer(), 409, "not-accepted")
        problem(await api.settle(message, "complete"), 410, "lock-lost")
    await assert_nothing_is_stored(api)


async def test_a_queue_that_dead_letters_expired_messages_keeps_none(api: ApiServer) -> None:
    await api.request_json("PUT", "/queues/orders", {"dead_letter_on_expiry": True})
    async with sending(api) as sender:
        sender.task.cancel()
        await api.advance_time(11)
        await assert_nothing_is_stored(api)


# ---- senders that go away --------------------------------------------------------------------------------------------


async def test_a_stopping_server_answers_the_sender(api: ApiServer) -> None:
    async with sending(api) as sender:
        await api.receive()
        api.broker.wait_queue.close()
        problem(await sender.answer(), 504, "no-answer")
    assert await api.counts() == {}


async def test_a_sender_that_is_cancelled_withdraws_the_message(api: ApiServer) -> None:
    async with sending(api) as sender:
        sender.task.cancel()
        await asyncio.wait({sender.task})
        await run_ready_tasks()
        assert sender.task.cancelled()
        assert await api.counts() == {}


KEY = {"Idempotency-Key": "question-1"}


async def test_a_sender_that_disconnects_leaves_the_message_to_its_repeat(api: ApiServer) -> None:
    async with sending(api, headers=KEY) as sender:
        sender.task.cancel()
        await asyncio.wait({sender.task})
    (message,) = await api.receive()
    await api.settle(message, "complete", reply="yes")
    async with sending(api, headers=KEY) as repeat:
        assert (await repeat.answer()).json()["reply"] == "yes"


async def test_a_sender_that_disconnects_and_does_not_repeat_leaves_nothing(api: ApiServer) -> None:
    async with sending(api, headers=KEY) as sender:
        sender.task.cancel()
        await asyncio.wait({sender.task})
    await api.advance_time(11)
    await assert_nothing_is_stored(api)
    async with sending(api, headers=KEY) as repeat:
        problem(await repeat.answer(), 409, "no-receiver")


async def test_a_repeat_gets_the_first_outcome_and_reply(api: ApiServer) -> None:
    async with sending(api, headers=KEY) as sender:
        (message,) = await api.receive()
        await api.settle(message, "complete", reply="yes")
        first = await sender.answer()
    async with sending(api, headers=KEY) as repeat:
        again = await repeat.answer()
    assert again.json() == first.json()
    assert again.headers["idempotency-replayed"] == "true"
    assert await api.receive() == []


async def test_a_repeat_waits_for_the_first_message(api: ApiServer) -> None:
    async with sending(api, headers=KEY) as first, sending(api, headers=KEY) as second:
        (message,) = await api.receive(max_messages=10)
        await api.settle(message, "complete", reply="yes")
        assert (await first.answer()).json() == {**(await second.answer()).json()}


async def test_a_repeat_of_a_send_that_was_not_accepted_gets_the_same_answer(api: ApiServer) -> None:
    async with sending(api, headers=KEY) as sender:
        (message,) = await api.receive()
        await api.settle(message, "abandon")
        problem(await sender.answer(), 409, "not-accepted")
    async with sending(api, headers=KEY) as repeat:
        problem(await repeat.answer(), 409, "not-accepted")


async def test_a_repeat_gets_the_outcome_even_if_the_queue_refuses_sends_now(api: ApiServer) -> None:
    async with sending(api, headers=KEY) as sender:
        (message,) = await api.receive()
        await api.settle(message, "complete")
        await sender.answer()
    await api.request_json("PATCH", "/queues/orders", {"status": "send_disabled"})
    async with sending(api, headers=KEY) as repeat:
        again = await repeat.answer()
    assert (again.status_code, again.headers["idempotency-replayed"]) == (200, "true")


async def test_a_key_that_was_used_with_another_body_is_refused(api: ApiServer) -> None:
    async with sending(api, headers=KEY), sending(api, headers=KEY, body="other") as repeat:
        problem(await repeat.answer(), 422, "idempotency-key-reused")


# ---- limits ----------------------------------------------------------------------------------------------------------


async def test_the_server_caps_the_wait(api: ApiServer) -> None:
    async with sending(api, wait_seconds=MAX_WAIT_SECONDS) as sender:
        await api.clock.advance(MAX_WAIT)
        problem(await sender.answer(), 409, "no-receiver")


async def test_a_queue_with_room_for_one_message_takes_a_synchronous_send(api: ApiServer) -> None:
    await api.request_json("PUT", "/queues/orders", {"max_messages": 1})
    async with sending(api) as sender:
        (message,) = await api.receive()
        await api.settle(message, "complete")
        answer = await sender.answer()
    assert answer.json()["message_id"] == message["message_id"] != ""


async def test_a_sender_waits_twenty_seconds_unless_it_says_otherwise(api: ApiServer) -> None:
    await api.clock.advance(60)  # so that the clock and the time that has passed differ
    sender = asyncio.ensure_future(api.request("POST", PATH, {"delivery": "synchronous"}))
    await run_ready_tasks()
    await api.clock.advance(DEFAULT_WAIT_SECONDS - 0.1)
    assert not sender.done()
    await api.clock.advance(0.1)
    problem(await sender, 409, "no-receiver")


async def test_many_senders_without_receivers_leave_nothing(api: ApiServer) -> None:
    senders = [Sender(api) for _ in range(200)]
    await run_ready_tasks()
    assert await api.counts() == {"available": 200}
    await api.clock.advance(10)
    for sender in senders:
        problem(await sender.answer(), 409, "no-receiver")
    await assert_nothing_is_stored(api)


async def test_a_server_says_that_it_offers_synchronous_delivery(api: ApiServer) -> None:
    assert (await api.request_json("GET", "/capabilities"))["synchronous_delivery"] is True
