"""Explanations: why a message is not delivered, how it ended, and why a queue is stalled."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from app.domain.access import Right
from app.domain.explanation import MAX_MESSAGES_AHEAD, MessageReason
from app.wire.explanations import MessageExplanationView
from tests.api.api_server import ApiServer, problem
from tests.api.transaction_requests import commit, locked, open_transaction, roll_back
from tests.bounds import bounded


async def explained(api: ApiServer, number: int = 1) -> Any:
    return await api.request_json("GET", f"/queues/orders/messages/{number}/explain")


async def explained_queue(api: ApiServer) -> Any:
    return await api.request_json("GET", "/queues/orders/explain")


async def settings(api: ApiServer, **values: Any) -> None:
    await api.request_json("PUT", "/queues/orders", values)


class TestMessages:
    """Each reason with its fields and its sentences."""

    async def test_the_next_message(self, api: ApiServer) -> None:
        await api.send(body=1)
        explanation = await explained(api)
        text = explanation.pop("text")
        assert text == "The message is available, and it is next. No receiver waits on this server."
        del explanation["deliverable_at"]
        assert explanation == {
            "state": "available",
            "reason": "next",
            "messages_ahead": 0,
            "receivers_waiting": False,
        }

    async def test_a_message_behind_others(self, api: ApiServer) -> None:
        for priority in (4, 4, 9):
            await api.send(priority=priority)
        first, second = await explained(api, 1), await explained(api, 2)
        assert (first["reason"], first["messages_ahead"]) == ("behind_others", 1)
        assert first["text"].startswith("The message is available, and 1 message is delivered before it.")
        assert second["text"].startswith("The message is available, and 2 messages are delivered before it.")

    async def test_many_messages_ahead_are_counted_up_to_a_limit(self, api: ApiServer) -> None:
        await settings(api)
        await api.request_json("POST", "/queues/orders/messages/batch", {"messages": [{}] * MAX_MESSAGES_AHEAD})
        await api.send()
        await api.send()
        explanation = await explained(api, MAX_MESSAGES_AHEAD + 2)
        assert explanation["messages_ahead"] == MAX_MESSAGES_AHEAD
        assert "and at least 1,000 messages are delivered before it" in explanation["text"]

    async def test_a_message_that_no_waiting_filter_matches(self, api: ApiServer) -> None:
        await api.send(subject="a")
        receiver = asyncio.create_task(api.receive(wait_seconds=20, filter="message.subject == 'b'"))
        explanation: Any = None
        for _ in bounded("a receiver waits"):
            explanation = await explained(api)
            if explanation["receivers_waiting"]:
                break
            await asyncio.sleep(0)
        assert "gets the message unless its filter does not match" in explanation["text"]
        await api.send(subject="b")
        assert [message["sequence_number"] for message in await receiver] == [2]

    async def test_a_message_in_a_paused_queue(self, api: ApiServer) -> None:
        await api.send()
        await settings(api, status="receive_disabled")
        explanation = await explained(api)
        assert explanation["reason"] == "queue_paused"
        assert "deliverable_at" not in explanation
        assert explanation["text"].endswith("The queue has the status receive_disabled, so no message can be received.")

    async def test_a_blocked_message(self, api: ApiServer) -> None:
        await settings(api, group_in_flight=1, retry={"kind": "fixed", "delay_seconds": 5})
        for _ in range(3):
            await api.send(group_id="customer-17")
        explanation = await explained(api, 2)
        assert (explanation["state"], explanation["reason"]) == ("blocked", "blocked")
        assert (explanation["behind"], explanation["messages_ahead"]) == (1, 0)
        assert "deliverable_at" not in explanation
        assert explanation["text"] == (
            "The message is blocked in its group customer-17 behind message 1, which is available and must be received and "
            "settled first."
        )
        await api.receive()
        text = (await explained(api, 3))["text"]
        assert text == (
            "The message is blocked in its group customer-17 behind message 1, which a receiver without an id holds and "
            "must settle first, and 1 message is blocked before it."
        )
        assert "then waits for its retry delay" in (await explained(api, 1))["text"]
        assert "1 message is locked and 2 blocked behind messages" in (await explained_queue(api))["text"]

    async def test_a_message_in_a_queue_with_redelivery_on_request(self, api: ApiServer) -> None:
        await settings(api, redelivery="on_request")
        await api.send()
        await api.receive(receiver_id="worker-1")
        explanation = await explained(api)
        assert (explanation["reason"], explanation["holder"]) == ("locked_on_request", "worker-1")
        assert (
            explanation["text"] == "The receiver worker-1 holds the message until it settles it or asks for it again."
        )
        assert not {"locked_until", "deliverable_at"} & explanation.keys()
        assert (await explained_queue(api))["next_lock_ends_at"] is None

    async def test_a_scheduled_message_of_a_group(self, api: ApiServer) -> None:
        await settings(api, group_in_flight=1)
        await api.send(group_id="a", delay_seconds=60)
        text = (await explained(api))["text"]
        assert text.endswith("Then it may be blocked behind other messages of its group a.")

    async def test_a_locked_message_and_the_end_of_its_lock(self, api: ApiServer) -> None:
        await settings(api, retry={"kind": "fixed", "delay_seconds": 5})
        await api.send()
        (held,) = await api.receive(receiver_id="worker-1")
        explanation = await explained(api)
        assert (explanation["state"], explanation["reason"]) == ("locked", "locked")
        assert (explanation["holder"], explanation["locked_until"]) == ("worker-1", held["locked_until"])
        assert explanation["deliverable_at"] > explanation["locked_until"]
        assert explanation["text"] == (
            f"The receiver worker-1 holds the message until {held['locked_until']}. Without a settlement or a renewal it "
            f"can be received again at {explanation['deliverable_at']} at the latest."
        )
        await api.clock.advance(31)
        late = await explained(api)
        assert late["reason"] == "lock_ended"
        assert late["text"].startswith(f"The receiver worker-1 held the message until {held['locked_until']}.")

    async def test_a_lock_whose_end_dead_letters_the_message(self, api: ApiServer) -> None:
        await settings(api, max_delivery_count=1)
        await api.send()
        await api.receive()
        explanation = await explained(api)
        assert "holder" not in explanation
        assert "deliverable_at" not in explanation
        assert explanation["text"].startswith("A receiver without an id holds the message until")
        assert "it is then dead-lettered, because it has failed as often as the queue allows" in explanation["text"]

    async def test_a_lock_whose_end_returns_the_message_to_the_dead_letters(self, api: ApiServer) -> None:
        await api.send()
        (message,) = await api.receive()
        await api.settle(message, "dead-letter")
        await api.receive(source="dead_letter")
        assert (await explained(api))["text"].endswith("it then returns to where it was.")

    async def test_a_scheduled_message(self, api: ApiServer) -> None:
        await api.send(delay_seconds=60, ttl_seconds=5)
        explanation = await explained(api)
        assert (explanation["state"], explanation["reason"]) == ("scheduled", "scheduled")
        assert explanation["due_at"] == explanation["deliverable_at"] < explanation["expires_at"]
        assert explanation["text"] == f"The message is scheduled and due at {explanation['due_at']}."
        await api.clock.advance(61)
        due = await explained(api)
        assert due["reason"] == "due"
        assert due["text"].startswith(f"The message was due at {explanation['due_at']}")

    async def test_a_message_that_expires_before_its_retry(self, api: ApiServer) -> None:
        await settings(api, retry={"kind": "fixed", "delay_seconds": 60})
        await api.send(ttl_seconds=30)
        (message,) = await api.receive()
        await api.settle(message, "abandon", reason="busy")
        explanation = await explained(api)
        assert explanation["reason"] == "retry_delayed"
        assert "deliverable_at" not in explanation
        assert explanation["text"] == (
            f"The message has failed 1 time, at last with the reason busy. It is due again at {explanation['due_at']}. "
            f"Its time to live ends before that, at {explanation['expires_at']}."
        )

    @pytest.mark.parametrize(("dead_letters", "change"), [(False, "removes"), (True, "dead-letters")])
    async def test_a_message_past_its_time_to_live(self, api: ApiServer, dead_letters: bool, change: str) -> None:
        await settings(api, dead_letter_on_expiry=dead_letters)
        await api.send(ttl_seconds=5)
        await api.clock.advance(6)
        explanation = await explained(api)
        assert explanation["reason"] == "time_to_live_ended"
        assert f"a background pass {change} it" in explanation["text"]

    async def test_messages_that_are_set_aside(self, api: ApiServer) -> None:
        await api.send()
        await api.send()
        deferred, dead = await api.receive(max_messages=2)
        await api.settle(deferred, "defer")
        await api.settle(dead, "dead-letter", reason="bad", description="no such customer")
        aside, refused = await explained(api, 1), await explained(api, 2)
        assert (aside["reason"], refused["reason"]) == ("deferred", "dead_lettered")
        assert "names its sequence number 1 gets it" in aside["text"]
        assert (refused["dead_letter_reason"], refused["dead_letter_description"]) == ("bad", "no such customer")
        assert refused["text"] == (
            f"The message was dead-lettered at {refused['dead_lettered_at']} with the reason bad (no such customer). It "
            "must be redriven, or received from the dead letters."
        )

    async def test_nothing_changes(self, api: ApiServer) -> None:
        await api.send()
        before = await api.request_json("GET", "/queues/orders/messages/1")
        await explained(api)
        await explained_queue(api)
        assert await api.request_json("GET", "/queues/orders/messages/1") == before

    async def test_an_unknown_message_or_queue_is_not_found(self, api: ApiServer) -> None:
        problem(await api.request("GET", "/queues/orders/messages/1/explain"), 404, "queue-not-found")
        problem(await api.request("GET", "/queues/orders/explain"), 404, "queue-not-found")
        await settings(api)
        problem(await api.request("GET", "/queues/orders/messages/1/explain"), 404, "message-not-found")
        problem(await api.request("GET", "/queues/orders/messages/0/explain"), 422, "invalid-request")


class TestTransactions:
    """A settlement that waits for the commit of an open transaction is named, with what must happen."""

    async def test_a_message_whose_settlement_waits_for_a_commit(self, api: ApiServer) -> None:
        message = await locked(api)
        opened = await api.request_json("POST", "/transactions", {})
        await api.settle(message, "complete", transaction_id=opened["id"])
        explanation = await explained(api)
        assert (explanation["state"], explanation["reason"]) == ("locked", "in_transaction")
        assert explanation["waiting_settlement"] == {
            "outcome": "completed",
            "expires_at": opened["expires_at"],
            "transaction_id": opened["id"],
        }
        assert explanation["deliverable_at"] > opened["expires_at"]
        assert explanation["text"] == (
            "A receiver without an id holds the message, and its settlement (completed) waits for the commit of transaction "
            f"{opened['id']}, until {opened['expires_at']} at the latest. Without the commit it can be received again at "
            f"{explanation['deliverable_at']} at the latest."
        )
        await commit(api, opened["id"])
        assert (await explained(api))["outcome"] == "completed"

    async def test_a_message_after_a_rollback_or_a_deadline(self, api: ApiServer) -> None:
        message, other = await locked(api), await locked(api)
        first, second = await open_transaction(api), await open_transaction(api, timeout_seconds=1)
        await api.settle(message, "defer", transaction_id=first)
        await api.settle(other, "defer", transaction_id=second)
        await roll_back(api, first)
        await api.clock.advance(1)
        for number in (1, 2):
            explanation = await explained(api, number)
            assert (explanation["reason"], "waiting_settlement" in explanation) == ("locked", False)
        assert (await explained_queue(api))["waiting_settlements"] == 0

    async def test_a_message_on_request_whose_settlement_waits(self, api: ApiServer) -> None:
        await settings(api, redelivery="on_request")
        await api.send()
        (message,) = await api.receive(receiver_id="worker-1")
        await api.settle(message, "dead-letter", transaction_id=await open_transaction(api))
        explanation = await explained(api)
        assert explanation["reason"] == "in_transaction"
        assert "its settlement (dead-lettered) waits for" in explanation["text"]
        assert explanation["text"].endswith(
            "Without the commit the receiver holds it until it settles it or asks for it again."
        )

    async def test_a_message_behind_one_whose_settlement_waits(self, api: ApiServer) -> None:
        await settings(api, group_in_flight=1)
        await api.send(group_id="a")
        await api.send(group_id="a")
        (message,) = await api.receive()
        transaction = await open_transaction(api)
        await api.settle(message, "complete", transaction_id=transaction)
        explanation = await explained(api, 2)
        assert (explanation["reason"], explanation["waiting_settlement"]["transaction_id"]) == ("blocked", transaction)
        assert (
            f"behind message 1, whose settlement (completed) waits for the commit of transaction {transaction}, until"
            in explanation["text"]
        )

    async def test_another_client_sees_no_id_of_the_transaction(self, api_with_keys: ApiServer) -> None:
        api = api_with_keys
        owner = {"authorization": f"Bearer {await api.new_key(*Right, principal='owner')}"}
        viewer = {"authorization": f"Bearer {await api.new_key(Right.BROWSE, principal='viewer')}"}
        await api.request_json("POST", "/queues/orders/messages", {}, headers=owner)
        (message,) = (await api.request_json("POST", "/queues/orders/messages/receive", {}, headers=owner))["messages"]
        opened = await api.request_json("POST", "/transactions", {}, headers=owner)
        body = {"transaction_id": opened["id"]}
        await api.request_json("POST", f"/queues/orders/locks/{message['lock_token']}/complete", body, headers=owner)
        for path in ("/queues/orders/messages/1/explain", "/queues/orders/explain"):
            explanation = await api.request_json("GET", path, headers=viewer)
            assert "waits for the commit of a transaction of another client, until" in explanation["text"]
            waiting = explanation.get("waiting_settlement") or explanation["next_waiting_settlement"]
            assert waiting == {"outcome": "completed", "expires_at": opened["expires_at"]}

    async def test_a_queue_tells_how_many_settlements_wait(self, api: ApiServer) -> None:
        messages = [await locked(api) for _ in range(3)]
        later, sooner = await open_transaction(api), await open_transaction(api, timeout_seconds=20)
        await api.settle(messages[0], "complete", transaction_id=later)
        await api.settle(messages[1], "abandon", transaction_id=sooner)
        explanation = await explained_queue(api)
        assert (explanation["reason"], explanation["waiting_settlements"]) == ("all_locked", 2)
        waiting = explanation["next_waiting_settlement"]
        assert (waiting["outcome"], waiting["transaction_id"]) == ("abandoned", sooner)
        assert (
            "2 settlements wait for commits. The first settlement (abandoned) waits for the commit of transaction "
            f"{sooner}, until {waiting['expires_at']} at the latest." in explanation["text"]
        )
        await commit(api, sooner)
        assert (
            f" The settlement (completed) waits for the commit of transaction {later}"
            in (await explained_queue(api))["text"]
        )

    async def test_a_queue_to_which_sends_wait_for_a_commit(self, api: ApiServer) -> None:
        transaction = await open_transaction(api)
        await api.send(transaction_id=transaction)
        explanation = await explained_queue(api)
        assert (explanation["reason"], explanation["counts"]["uncommitted"]) == ("all_uncommitted", 1)
        assert explanation["text"] == "The queue is empty, and 1 send to it must be committed first."
        await commit(api, transaction)
        assert (await explained_queue(api))["counts"]["uncommitted"] == 0


class TestEnds:
    """A message that has left its queue tells how, when and by whom."""

    async def complete(self, api: ApiServer) -> None:
        await api.send()
        (message,) = await api.receive(receiver_id="worker-1")
        await api.settle(message, "complete")

    async def test_a_completed_message_with_its_receiver(self, api: ApiServer) -> None:
        await self.complete(api)
        explanation = await explained(api)
        at = explanation["settled_at"]
        assert explanation == {
            "state": "ended",
            "reason": "ended",
            "text": f"The receiver worker-1 completed the message at {at}.",
            "outcome": "completed",
            "settled_at": at,
            "receiver_id": "worker-1",
        }

    async def test_a_completed_message_of_a_queue_without_an_archive(self, api: ApiServer) -> None:
        await settings(api, archive_retention_seconds=0)
        await self.complete(api)
        explanation = await explained(api)
        assert (explanation["outcome"], "receiver_id" in explanation) == ("completed", False)

    @pytest.mark.parametrize(
        ("end", "outcome", "sentence"),
        [
            (("POST", "/queues/orders/purge", {}), "purged", "A purge, or the deletion of the queue, removed"),
            (("DELETE", "/queues/orders/messages/1", None), "cancelled", "The message was cancelled"),
            (
                ("POST", "/queues/orders/messages/receive", {"mode": "receive_and_delete"}),
                "received",
                "A receiver without an id received the message",
            ),
        ],
    )
    async def test_how_a_message_ended(
        self, api: ApiServer, end: tuple[str, str, Mapping[str, Any] | None], outcome: str, sentence: str
    ) -> None:
        await api.send()
        await api.request_json(*end)
        explanation = await explained(api)
        assert explanation["outcome"] == outcome
        assert explanation["text"].startswith(sentence)

    async def test_an_expired_message(self, api: ApiServer) -> None:
        await api.send(ttl_seconds=5)
        await api.advance_time(6)
        explanation = await explained(api)
        assert explanation["outcome"] == "expired"
        assert "because its time to live had ended" in explanation["text"]


class TestQueues:
    """Why a queue is stalled."""

    async def test_an_empty_queue(self, api: ApiServer) -> None:
        await settings(api)
        explanation = await explained_queue(api)
        assert explanation == {
            "reason": "empty",
            "text": "The queue is empty.",
            "status": "active",
            "sends": "accepted",
            "counts": explanation["counts"],
            "receivers_waiting": False,
            "receivers_holding_locks": 0,
            "waiting_settlements": 0,
            "next_waiting_settlement": None,
            "next_lock_ends_at": None,
            "next_due_at": None,
            "next_deliverable_at": None,
        }

    @pytest.mark.parametrize(
        ("status", "reason", "sentences"),
        [
            ("send_disabled", "sends_disabled", "The queue is empty. Sends are refused"),
            ("receive_disabled", "queue_paused", "The queue has the status receive_disabled, so no message"),
            ("disabled", "queue_paused", "The queue has the status disabled, so no message"),
        ],
    )
    async def test_a_queue_whose_status_refuses_requests(
        self, api: ApiServer, status: str, reason: str, sentences: str
    ) -> None:
        await settings(api, status=status)
        explanation = await explained_queue(api)
        assert (explanation["reason"], explanation["status"]) == (reason, status)
        assert explanation["text"].startswith(sentences)

    async def test_a_queue_that_is_full_and_has_no_receiver(self, api: ApiServer) -> None:
        await settings(api, max_messages=2)
        await api.send()
        await api.send()
        explanation = await explained_queue(api)
        assert (explanation["reason"], explanation["sends"]) == ("no_receiver", "full")
        assert explanation["text"] == (
            "2 messages are available, and no receiver holds a message. No receiver waits on this server. Sends are "
            "refused, because the queue holds as many messages as its max_messages allows."
        )

    async def test_a_queue_whose_messages_are_locked(self, api: ApiServer) -> None:
        await api.send()
        await api.send()
        (first,) = await api.receive(receiver_id="worker-1", lock_seconds=20)
        await api.receive(receiver_id="worker-2")
        explanation = await explained_queue(api)
        assert (explanation["reason"], explanation["receivers_holding_locks"]) == ("all_locked", 2)
        assert explanation["next_lock_ends_at"] == explanation["next_deliverable_at"] == first["locked_until"]
        assert explanation["text"] == (
            "No message is available, and 2 messages are locked by 2 receivers with an id; the first lock ends at "
            f"{first['locked_until']} at the latest. The next message can be received at {first['locked_until']} at the "
            "latest."
        )
        await api.send()
        busy = await explained_queue(api)
        assert busy["reason"] == "receivers_busy"
        assert busy["text"].startswith("1 message is available, and receivers hold 2.")

    async def test_a_queue_whose_messages_are_scheduled(self, api: ApiServer) -> None:
        await api.send(delay_seconds=120)
        await api.send(delay_seconds=60)
        explanation = await explained_queue(api)
        assert explanation["reason"] == "all_scheduled"
        assert explanation["next_due_at"] == explanation["next_deliverable_at"] == (await explained(api, 2))["due_at"]
        assert explanation["text"].startswith("No message is available or locked, and 2 messages are scheduled.")

    async def test_a_queue_whose_messages_are_set_aside(self, api: ApiServer) -> None:
        await api.send()
        (message,) = await api.receive()
        await api.settle(message, "defer")
        explanation = await explained_queue(api)
        assert explanation["reason"] == "set_aside"
        assert explanation["text"].startswith("1 message is deferred and 0 dead-lettered.")

    async def test_a_queue_whose_receivers_do_not_match(self, api: ApiServer) -> None:
        await api.send(subject="a")
        receiver = asyncio.create_task(api.receive(wait_seconds=20, filter="message.subject == 'b'"))
        explanation: Any = None
        for _ in bounded("a receiver waits"):
            explanation = await explained_queue(api)
            if explanation["receivers_waiting"]:
                break
            await asyncio.sleep(0)
        assert explanation["reason"] == "receivers_waiting"
        assert "receivers wait on this server" in explanation["text"]
        await api.send(subject="b")
        await receiver


async def test_every_reason_of_a_message_is_in_the_document(api: ApiServer) -> None:
    schemas = (await api.http.get("/openapi.json")).json()["components"]["schemas"]
    assert set(schemas["MessageReason"]["enum"]) == set(MessageReason)
    assert all(f"`{reason}`" in schemas["MessageReason"]["description"] for reason in MessageReason)
    assert set(schemas["MessageExplanationView"]["properties"]) == set(MessageExplanationView.__struct_fields__)
