"""Settling: a delivery ends once, and later settlements of it get its outcome."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import pytest

from app.domain.json_depth import MAX_JSON_DEPTH
from app.domain.refusals import StoreUnavailable
from app.wire.times import to_wire
from tests.api.api_server import ApiServer, pointers, problem

SETTLEMENTS = {
    "complete": {"outcome": "completed"},
    "abandon": {"outcome": "abandoned", "state": "available"},
    "dead-letter": {"outcome": "dead_lettered", "state": "dead_lettered"},
    "defer": {"outcome": "deferred", "state": "deferred"},
    "release": {"outcome": "released", "state": "available"},
}
DIFFERENT_SETTLEMENTS = [
    (first, second) for first in SETTLEMENTS for second in (*SETTLEMENTS, "renew") if first != second
]


async def locked(api: ApiServer, **message: Any) -> Any:
    await api.send(**message)
    (received,) = await api.receive()
    return received


@pytest.mark.behaviour("S3.21")
@pytest.mark.parametrize(("verb", "answer"), SETTLEMENTS.items())
async def test_a_settlement_returns_its_outcome(api: ApiServer, verb: str, answer: dict[str, str]) -> None:
    settled = await api.settle(await locked(api), verb)
    assert settled.status_code == 200
    assert settled.json() == {**answer, "sequence_number": 1, "replayed": False}


@pytest.mark.behaviour("S0.7", "S3.20")
async def test_a_completed_message_is_not_delivered_again(api: ApiServer) -> None:
    await api.settle(await locked(api), "complete")
    assert await api.counts() == {}
    problem(await api.request("GET", "/queues/orders/messages/1"), 404, "message-not-found")
    await api.advance_time(3600)
    assert await api.receive() == []


@pytest.mark.behaviour("S0.6", "S0.13")
@pytest.mark.parametrize("verb", SETTLEMENTS)
async def test_a_repeated_settlement_gets_the_first_answer_and_changes_nothing(api: ApiServer, verb: str) -> None:
    message = await locked(api)
    first = await api.settle(message, verb)
    before = await api.counts()
    again = await api.settle(message, verb)
    assert again.json() == {**first.json(), "replayed": True}
    assert await api.counts() == before
    if verb == "abandon":
        assert (await api.request_json("GET", "/queues/orders/messages/1"))["failure_count"] == 1


@pytest.mark.behaviour("S0.5", "S0.12")
@pytest.mark.parametrize(("first", "second"), DIFFERENT_SETTLEMENTS)
async def test_a_second_settlement_gets_the_outcome_of_the_first(api: ApiServer, first: str, second: str) -> None:
    message = await locked(api)
    await api.settle(message, first)
    before = await api.counts()
    refused = problem(await api.settle(message, second), 409, "already-settled")
    assert (refused["outcome"], refused["retryable"]) == (SETTLEMENTS[first]["outcome"], False)
    assert await api.counts() == before


@pytest.mark.behaviour("S0.14", "S0.20", "S3.17", "S3.22")
async def test_an_abandoned_message_returns_at_once_in_its_old_order(api: ApiServer) -> None:
    message = await locked(api, body="first")
    await api.send(body="second")
    await api.settle(message, "abandon", reason="busy")
    (again,) = await api.receive()
    assert (again["body"], again["redelivered"], again["last_failure"]) == ("first", True, "busy")
    assert (again["delivery_count"], again["failure_count"]) == (2, 1)
    assert again["lock_token"] != message["lock_token"]


async def test_a_failure_without_a_reason_does_not_keep_an_earlier_reason(api: ApiServer) -> None:
    message = await locked(api)
    await api.settle(message, "abandon", reason="busy")
    (message,) = await api.receive()
    await api.settle(message, "abandon", count=False)
    (message,) = await api.receive()
    assert message["last_failure"] == "busy"
    await api.settle(message, "abandon")
    (message,) = await api.receive()
    assert message["last_failure"] == "abandoned"


@pytest.mark.behaviour("S2.7", "S2.9", "S2.13", "S2.33")
async def test_an_abandoned_message_waits_for_its_delay(api: ApiServer) -> None:
    message = await locked(api)
    answer = await api.settle(message, "abandon", delay_seconds=10, reason="try_later")
    assert answer.json()["state"] == "scheduled"
    waiting = await api.request_json("GET", "/queues/orders/messages/1")
    assert (waiting["failure_count"], waiting["last_failure"]) == (1, "try_later")
    assert waiting["available_at"] == "2027-01-15T08:00:10.000000Z"
    await api.advance_time(9)
    assert await api.receive() == []
    await api.advance_time(1)
    assert len(await api.receive()) == 1


async def test_the_retry_policy_sets_the_delay_if_the_receiver_does_not(api: ApiServer) -> None:
    await api.request_json(
        "PUT", "/queues/orders", {"retry": {"kind": "linear", "first_seconds": 2, "step_seconds": 3}}
    )
    await api.send()
    for delay in (2, 5, 8):
        (message,) = await api.receive()
        assert (await api.settle(message, "abandon")).json()["state"] == "scheduled"
        await api.advance_time(delay - 0.5)
        assert await api.receive() == []
        await api.advance_time(0.5)


@pytest.mark.behaviour("S2.21")
async def test_an_uncounted_abandon_is_no_failure(api: ApiServer) -> None:
    message = await locked(api)
    await api.settle(message, "abandon", count=False)
    assert (await api.request_json("GET", "/queues/orders/messages/1"))["failure_count"] == 0


@pytest.mark.behaviour("S2.21", "S2.29")
async def test_a_released_message_returns_as_if_it_had_not_been_delivered(api: ApiServer) -> None:
    await api.request_json("PUT", "/queues/orders", {"max_delivery_count": 1, "history": True})
    await api.send(body="first")
    await api.send(body="second")
    for _ in range(3):
        (message,) = await api.receive(receiver_id="anna")
        assert (message["body"], message["delivery_count"], message["failure_count"]) == ("first", 1, 0)
        assert not message["redelivered"]
        assert message["first_delivered_at"] == to_wire(api.clock.now())
        await api.settle(message, "release")
        await api.advance_time(1)
    stored = await api.request_json("GET", "/queues/orders/messages/1")
    assert (stored["state"], stored["delivery_count"], stored["redelivered"]) == ("available", 0, False)
    assert "first_delivered_at" not in stored
    events = (await api.request_json("GET", "/queues/orders/messages/1/history"))["items"]
    assert [event["event"] for event in events[-2:]] == ["delivered", "released"]
    ended = events[-1]
    assert (ended["outcome"], ended["state"], ended["receiver_id"], ended["delivery_count"]) == (
        "released", "available", "anna", 1,
    )  # fmt: skip


@pytest.mark.behaviour("S2.21")
async def test_a_released_dead_letter_stays_one(api: ApiServer) -> None:
    await api.settle(await locked(api), "dead-letter", reason="bad")
    (dead,) = await api.receive(source="dead_letter")
    assert (await api.settle(dead, "release")).json()["state"] == "dead_lettered"
    (again,) = await api.receive(source="dead_letter")
    assert (again["delivery_count"], again["dead_letter_reason"]) == (2, "bad")


@pytest.mark.behaviour("S3.18", "S2.8")
async def test_the_last_failure_dead_letters_the_message(api: ApiServer) -> None:
    await api.request_json("PUT", "/queues/orders", {"max_delivery_count": 2})
    message = await locked(api)
    assert (await api.settle(message, "abandon")).json()["state"] == "available"
    (message,) = await api.receive()
    assert (await api.settle(message, "abandon")).json()["state"] == "dead_lettered"
    dead = await api.request_json("GET", "/queues/orders/messages/1")
    assert dead["dead_letter_reason"] == "max_delivery_count_exceeded"
    assert (dead["delivery_count"], dead["failure_count"]) == (2, 2)


@pytest.mark.behaviour("S3.19", "S3.24", "S2.6")
async def test_a_dead_letter_keeps_its_reason_and_properties(api: ApiServer) -> None:
    message = await locked(api, properties={"a": 1, "b": 2})
    await api.send("invoices")
    await api.settle(
        message, "dead-letter", reason="bad_address", description="No such street.", properties={"b": 3, "c": None}
    )
    (dead,) = await api.receive(source="dead_letter")
    assert (dead["dead_letter_reason"], dead["dead_letter_description"]) == ("bad_address", "No such street.")
    assert dead["properties"] == {"a": 1, "b": 3, "c": None}
    assert dead["dead_lettered_at"] == "2027-01-15T08:00:00.000000Z"
    assert await api.counts("invoices") == {"available": 1}


@pytest.mark.behaviour("S3.25")
async def test_a_deferred_message_is_received_only_by_number(api: ApiServer) -> None:
    message = await locked(api, body="later")
    deferred = (await api.settle(message, "defer", properties={"step": 2})).json()
    assert await api.receive() == []
    (again,) = await api.receive(sequence_numbers=[deferred["sequence_number"]])
    assert (again["body"], again["properties"]) == ("later", {"step": 2})
    await api.settle(again, "complete")
    assert await api.counts() == {}


@pytest.mark.behaviour("S3.15")
async def test_renewing_extends_only_the_lock_of_its_token(api: ApiServer) -> None:
    message = await locked(api)
    await api.advance_time(20)
    renewed = (await api.settle(message, "renew")).json()
    assert renewed == {"locked_until": "2027-01-15T08:00:50.000000Z", "lock_remaining_ms": 30_000}
    assert (await api.settle(message, "renew", lock_seconds=100)).json()["lock_remaining_ms"] == 100_000
    await api.advance_time(99)
    assert await api.receive() == []
    stranger = {"lock_token": message["lock_token"][:-1] + ("0" if message["lock_token"][-1] != "0" else "1")}
    problem(await api.settle(stranger, "renew"), 404, "message-not-found")
    assert (await api.settle(message, "complete")).status_code == 200


@pytest.mark.parametrize("renewed_before", [False, True])
async def test_an_exact_renewal_ends_the_lock_earlier(api: ApiServer, renewed_before: bool) -> None:
    message = await locked(api)
    if renewed_before:
        await api.settle(message, "renew", lock_seconds=600)
    changed = (await api.settle(message, "renew", lock_seconds=5, exact=True)).json()
    assert changed == {"locked_until": "2027-01-15T08:00:05.000000Z", "lock_remaining_ms": 5_000}
    await api.advance_time(4)
    assert await api.receive() == []
    assert (await api.settle(message, "renew", lock_seconds=5, exact=True)).json()["lock_remaining_ms"] == 5_000
    await api.advance_time(5)
    problem(await api.settle(message, "complete"), 410, "lock-lost")
    (again,) = await api.receive()
    assert again["sequence_number"] == message["sequence_number"]


async def test_an_exact_renewal_counts_from_now_for_the_duration_of_the_queue(api: ApiServer) -> None:
    message = await locked(api)
    await api.settle(message, "renew", lock_seconds=600)
    assert (await api.settle(message, "renew", exact=True)).json()["lock_remaining_ms"] == 30_000


async def test_a_batch_has_exact_renewals(api: ApiServer) -> None:
    messages = [await locked(api), await locked(api)]
    settlements = [
        {"action": "renew", "lock_token": message["lock_token"], "lock_seconds": 5, "exact": exact}
        for message, exact in zip(messages, (True, False), strict=True)
    ]
    answer = await api.request_json("POST", "/queues/orders/settle", {"settlements": settlements})
    assert [result["locked_until"] for result in answer["results"]] == [
        "2027-01-15T08:00:05.000000Z",
        "2027-01-15T08:00:05.000000Z",
    ]
    await api.advance_time(6)
    assert [message["sequence_number"] for message in await api.receive(max_messages=10)] == [
        messages[0]["sequence_number"]
    ]


@pytest.mark.behaviour("S3.23", "S2.20", "S0.21", "S2.23", "S0.1")
async def test_an_unsettled_message_is_delivered_again(api: ApiServer) -> None:
    await locked(api, body="again")
    await api.advance_time(29)
    assert await api.receive() == []
    await api.advance_time(1)
    (again,) = await api.receive()
    assert (again["body"], again["failure_count"], again["last_failure"]) == ("again", 1, "lock_expired")


@pytest.mark.behaviour("S3.26", "S3.29", "S3.34", "S0.24")
@pytest.mark.parametrize("verb", [*SETTLEMENTS, "renew"])
@pytest.mark.parametrize("swept", [True, False])
async def test_a_settlement_of_an_expired_lock_is_refused_with_410(api: ApiServer, verb: str, swept: bool) -> None:
    message = await locked(api)
    await (api.advance_time(31) if swept else api.clock.advance(31))
    lost = problem(await api.settle(message, verb), 410, "lock-lost")
    assert (lost["cause"], lost["delivered_again"], lost["retryable"]) == ("expired", False, False)
    assert lost["lost_at"] == message["locked_until"]
    assert await api.counts() == {"available": 1}


@pytest.mark.behaviour("S3.29")
async def test_a_late_settlement_learns_that_the_message_was_redelivered(api: ApiServer) -> None:
    message = await locked(api)
    await api.advance_time(31)
    await api.clock.advance(1)
    (second,) = await api.receive()
    lost = problem(await api.settle(message, "complete"), 410, "lock-lost")
    assert lost["delivered_again"] is True
    assert (await api.settle(second, "complete")).status_code == 200


async def test_a_late_settlement_learns_that_the_message_was_removed(api: ApiServer) -> None:
    message = await locked(api)
    await api.advance_time(31)
    await api.request_json("POST", "/queues/orders/purge")
    lost = problem(await api.settle(message, "complete"), 410, "lock-lost")
    assert (lost["lost_at"], lost["delivered_again"]) == (message["locked_until"], False)


@pytest.mark.behaviour("S3.33")
@pytest.mark.parametrize(
    "change", [{"lock_duration_seconds": 31}, {"max_delivery_count": 3}, {"status": "send_disabled"}]
)
async def test_a_change_that_locks_depend_on_revokes_them(api: ApiServer, change: dict[str, Any]) -> None:
    message = await locked(api)
    await api.request_json("PATCH", "/queues/orders", change)
    lost = problem(await api.settle(message, "complete"), 410, "lock-lost")
    assert lost["cause"] == "entity_changed"
    again = await api.request_json("GET", "/queues/orders/messages/1")
    assert (again["state"], again["failure_count"]) == ("available", 0)


@pytest.mark.parametrize("method", ["PATCH", "PUT"])
@pytest.mark.parametrize(
    "change", [{"lock_duration_seconds": 31}, {"max_delivery_count": 3}, {"status": "disabled"}], ids=str
)
async def test_a_change_that_keeps_locks_revokes_none(api: ApiServer, method: str, change: dict[str, Any]) -> None:
    message = await locked(api)
    await api.request_json(method, "/queues/orders", change, params={"keep_locks": "true"})
    await api.request_json(method, "/queues/orders", change)
    await api.advance_time(1)
    renewed = (await api.settle(message, "renew")).json()
    assert renewed["lock_remaining_ms"] == 1000 * change.get("lock_duration_seconds", 30)
    assert (await api.settle(message, "complete")).status_code == 200


@pytest.mark.parametrize("method", ["PATCH", "PUT"])
async def test_a_change_of_the_redelivery_keeps_no_locks(api: ApiServer, method: str) -> None:
    message = await locked(api)
    keeping = {"keep_locks": "true"}
    refused = await api.request(method, "/queues/orders", {"redelivery": "on_request"}, params=keeping)
    assert pointers(refused) == ["/redelivery"]
    assert "cannot keep locks" in refused.json()["detail"]
    assert (await api.request_json("GET", "/queues/orders"))["redelivery"] == "automatic"
    assert (await api.settle(message, "complete")).status_code == 200
    new = await api.request("PUT", "/queues/new", {"redelivery": "on_request"}, params=keeping)
    assert new.status_code == 201, "no receiver holds a lock"


@pytest.mark.parametrize("value", ["yes", "1.5", "", "TRUE ", "null"])
async def test_a_value_of_keep_locks_that_is_no_boolean_is_refused(api: ApiServer, value: str) -> None:
    message = await locked(api)
    refused = await api.request("PATCH", "/queues/orders", {"max_delivery_count": 3}, params={"keep_locks": value})
    problem(refused, 422, "invalid-request")
    assert (await api.settle(message, "complete")).status_code == 200


async def test_a_change_that_keeps_locks_obeys_its_precondition(api: ApiServer) -> None:
    await api.request_json("PUT", "/queues/orders", {})
    wanted = {"params": {"keep_locks": "true"}, "headers": {"If-Match": '"0"'}}
    stale = await api.request("PATCH", "/queues/orders", {"max_delivery_count": 3}, **wanted)
    problem(stale, 412, "precondition-failed")


async def test_other_changes_revoke_no_locks(api: ApiServer) -> None:
    message = await locked(api)
    await api.request_json("PATCH", "/queues/orders", {"description": "Orders.", "default_ttl_seconds": 60})
    assert (await api.settle(message, "complete")).status_code == 200


async def test_a_token_is_valid_only_in_its_own_queue(api: ApiServer) -> None:
    message = await locked(api)
    await api.request_json("PUT", "/queues/invoices")
    for verb in (*SETTLEMENTS, "renew"):
        problem(await api.settle(message, verb, queue="invoices"), 404, "message-not-found")
    problem(await api.settle(message, "complete", queue="nowhere"), 404, "queue-not-found")
    assert await api.counts() == {"locked": 1}


@pytest.mark.parametrize(
    "token",
    ["x", "1", "1.", ".0", "1.00", f"1.{'g' * 32}", f"-1.{'0' * 32}", f"{'9' * 20}.{'0' * 32}", f"١.{'0' * 32}"],
)
async def test_a_malformed_token_is_not_found(api: ApiServer, token: str) -> None:
    await locked(api)
    problem(await api.settle({"lock_token": token}, "complete"), 404, "message-not-found")


@pytest.mark.parametrize("written", ["0{}", "00{}", "+{}", " {}", "{} ", "{}\n"])
async def test_a_token_has_one_spelling(api: ApiServer, written: str) -> None:
    message = await locked(api)
    otherwise = quote(written.format(message["lock_token"]), safe="")
    problem(await api.settle({"lock_token": otherwise}, "complete"), 404, "message-not-found")
    assert await api.counts() == {"locked": 1}


@pytest.mark.parametrize(
    ("verb", "body", "pointer"),
    [
        ("complete", {"reason": "done"}, "/reason"),
        ("abandon", {"delay_seconds": -1}, "/delay_seconds"),
        ("abandon", {"delay_seconds": 10**9}, "/delay_seconds"),
        ("abandon", {"count": "no"}, "/count"),
        ("abandon", {"reason": "x" * 129}, "/reason"),
        ("abandon", {"properties": {"a": {}}}, "/properties/a"),
        ("abandon", {"properties": {f"p{n}": 0 for n in range(64)}}, "/properties"),
        ("dead-letter", {"reason": "nul\0"}, "/reason"),
        ("dead-letter", {"description": "x" * 4097}, "/description"),
        ("dead-letter", {"properties": {"a": 1, "b": 2**63}}, "/properties/b"),
        ("defer", {"properties": {"": 1}}, "/properties/"),
        ("defer", {"until": 1}, "/until"),
        ("renew", {"lock_seconds": 0}, "/lock_seconds"),
        ("renew", {"lock_seconds": 0, "exact": True}, "/lock_seconds"),
        ("renew", {"exact": "yes"}, "/exact"),
    ],
)
async def test_an_invalid_settlement_changes_nothing(
    api: ApiServer, verb: str, body: dict[str, Any], pointer: str
) -> None:
    message = await locked(api, properties={"mine": 1})
    assert pointers(await api.settle(message, verb, **body)) == [pointer]
    assert (await api.settle(message, "complete")).json()["replayed"] is False


async def test_a_body_may_be_left_out(api: ApiServer) -> None:
    for verb in (*SETTLEMENTS, "renew"):
        message = await locked(api)
        path = f"/queues/orders/locks/{message['lock_token']}/{verb}"
        assert (await api.request("POST", path)).status_code == 200
        await api.settle(message, "complete")
        await api.request_json("POST", "/queues/orders/purge")


TOKEN = f"7.{'0' * 32}"
MALFORMED: list[tuple[Any, str]] = [
    ({"action": "complete"}, "/lock_token"),
    ({"action": "complete", "lock_token": 7}, "/lock_token"),
    ({"action": "explode", "lock_token": TOKEN}, "/action"),
    ({"lock_token": TOKEN}, "/action"),
    ({"action": "complete", "lock_token": TOKEN, "reason": "none"}, "/reason"),
    ({"action": "abandon", "lock_token": TOKEN, "delay_seconds": -1}, "/delay_seconds"),
    ({"action": "dead_letter", "lock_token": TOKEN, "properties": {"a": []}}, "/properties/a"),
    ({"action": "renew", "lock_token": TOKEN, "lock_seconds": 0}, "/lock_seconds"),
    ([], ""),
    ("complete", ""),
    (None, ""),
]
"""Invalid settlements of a batch, each with the pointer to its fault."""


class TestBatch:
    """Many settlements in one request, each with its own result."""

    @pytest.mark.behaviour("S2.19")
    async def test_each_settlement_takes_effect(self, api: ApiServer) -> None:
        for n in range(5):
            await api.send(body=n)
        tokens = [message["lock_token"] for message in await api.receive(max_messages=5)]
        bodies = [
            {"action": "complete"},
            {"action": "abandon", "delay_seconds": 5},
            {"action": "dead_letter", "reason": "bad"},
            {"action": "defer"},
            {"action": "renew", "lock_seconds": 60},
        ]
        settlements = [{**one, "lock_token": token} for one, token in zip(bodies, tokens, strict=True)]
        answer = await api.request_json("POST", "/queues/orders/settle", {"settlements": settlements})
        assert [result["lock_token"] for result in answer["results"]] == tokens
        assert [result["result"] for result in answer["results"]] == ["settled"] * 4 + ["renewed"]
        outcomes = [result.get("outcome") for result in answer["results"]]
        assert outcomes == ["completed", "abandoned", "dead_lettered", "deferred", None]
        assert await api.counts() == {"scheduled": 1, "dead_lettered": 1, "deferred": 1, "locked": 1}

    async def test_a_refused_settlement_does_not_affect_the_others(self, api: ApiServer) -> None:
        first, second = await locked(api), await locked(api)
        await api.settle(first, "abandon")
        settlements = [{"action": "complete", "lock_token": message["lock_token"]} for message in (first, second)]
        settlements.append({"action": "renew", "lock_token": f"7.{'0' * 32}"})
        results = (await api.request_json("POST", "/queues/orders/settle", {"settlements": settlements}))["results"]
        assert [result["result"] for result in results] == ["refused", "settled", "refused"]
        assert results[0]["problem"]["code"] == "already-settled"
        assert results[2]["problem"]["code"] == "message-not-found"

    @pytest.mark.parametrize(("bad", "pointer"), MALFORMED)
    async def test_a_malformed_settlement_gets_its_own_problem(self, api: ApiServer, bad: Any, pointer: str) -> None:
        first, second = await locked(api), await locked(api)
        one, other = ({"action": "complete", "lock_token": message["lock_token"]} for message in (first, second))
        results = (await api.request_json("POST", "/queues/orders/settle", {"settlements": [one, bad, other]}))[
            "results"
        ]
        assert [result["result"] for result in results] == ["settled", "refused", "settled"]
        refusal = results[1]["problem"]
        assert (refusal["status"], refusal["code"]) == (422, "invalid-request")
        assert [fault["pointer"] for fault in refusal["errors"]] == [f"#/body/settlements/1{pointer}"]
        assert results[1]["lock_token"] == (
            bad["lock_token"] if isinstance(bad, dict) and bad.get("lock_token") == TOKEN else None
        )
        assert await api.counts() == {}

    async def test_a_second_settlement_with_the_same_token_is_refused(self, api: ApiServer) -> None:
        message = await locked(api)
        token = message["lock_token"]
        settlements = [{"action": action, "lock_token": token} for action in ("complete", "abandon", "complete")]
        results = (await api.request_json("POST", "/queues/orders/settle", {"settlements": settlements}))["results"]
        assert [result["result"] for result in results] == ["settled", "refused", "refused"]
        for index, refused in enumerate(results[1:], start=1):
            assert refused["lock_token"] == token
            assert [fault["pointer"] for fault in refused["problem"]["errors"]] == [
                f"#/body/settlements/{index}/lock_token"
            ]
            assert "Settlement 0" in refused["problem"]["errors"][0]["detail"]
        assert await api.counts() == {}

    async def test_an_unknown_token_is_not_found(self, api: ApiServer) -> None:
        message = await locked(api)
        settlements = [{"action": "complete", "lock_token": token} for token in ("1.x", message["lock_token"])]
        garbled, settled = (await api.request_json("POST", "/queues/orders/settle", {"settlements": settlements}))[
            "results"
        ]
        assert (garbled["lock_token"], garbled["problem"]["code"]) == ("1.x", "message-not-found")
        assert settled["result"] == "settled"

    async def test_an_invalid_property_is_named(self, api: ApiServer) -> None:
        one = {"action": "defer", "lock_token": (await locked(api))["lock_token"], "properties": {"a": 1, "b": []}}
        (refused,) = (await api.request_json("POST", "/queues/orders/settle", {"settlements": [one]}))["results"]
        assert refused["lock_token"] == one["lock_token"]
        assert [fault["pointer"] for fault in refused["problem"]["errors"]] == ["#/body/settlements/0/properties/b"]
        assert await api.counts() == {"locked": 1}

    async def test_problems_do_not_repeat_long_parts_of_the_request(self, api: ApiServer) -> None:
        await api.request_json("PUT", "/queues/orders")
        bad = {"action": "complete", "lock_token": "x" * 3000}
        answer = await api.request("POST", "/queues/orders/settle", {"settlements": [bad] * 100})
        assert len(answer.content) < 100 * 2500
        assert {result["lock_token"] for result in answer.json()["results"]} == {None}

    async def test_a_batch_has_at_least_one_settlement(self, api: ApiServer) -> None:
        await api.request_json("PUT", "/queues/orders")
        assert pointers(await api.request("POST", "/queues/orders/settle", {"settlements": []})) == ["/settlements"]
        assert pointers(await api.request("POST", "/queues/orders/settle")) == ["/settlements"]


@pytest.mark.behaviour("S0.23")
async def test_one_of_many_settlements_of_a_delivery_takes_effect(api: ApiServer) -> None:
    for _ in range(10):
        message = await locked(api)
        verbs = [*SETTLEMENTS, *SETTLEMENTS]
        answers = await asyncio.gather(*(api.settle(message, verb) for verb in verbs))
        effective = [answer.json() for answer in answers if answer.is_success and not answer.json()["replayed"]]
        assert len(effective) == 1
        for verb, answer in zip(verbs, answers, strict=True):
            if SETTLEMENTS[verb]["outcome"] != effective[0]["outcome"]:
                problem(answer, 409, "already-settled")
        await api.request_json("POST", "/queues/orders/purge")


async def test_renewals_do_not_wait_for_the_settlements_beside_them(api: ApiServer) -> None:
    for _ in range(2):
        await api.send()
    done, going_on = await api.receive(max_messages=2)
    renewed = asyncio.Event()

    class TimedConnection:
        """A store that removes nothing until a lock has been renewed, and then fails."""

        def __getattr__(self, name: str) -> Any:
            return getattr(api.broker.store, name)

        async def extend(self, extensions: Any) -> Any:
            answer = await api.broker.store.extend(extensions)
            renewed.set()
            return answer

        async def remove(self, removals: Any) -> Any:
            await renewed.wait()
            raise StoreUnavailable

    patient: Any = TimedConnection()
    settlements = [
        {"action": "complete", "lock_token": done["lock_token"]},
        {"action": "renew", "lock_token": going_on["lock_token"]},
    ]
    slow = ApiServer(replace(api.broker, store=patient), api.clock, None)
    async with slow.http, asyncio.timeout(10):
        answer = await slow.request("POST", "/queues/orders/settle", {"settlements": settlements})
    problem(answer, 503, "store-unavailable")


async def test_a_settlement_nested_as_deeply_as_possible_is_refused_as_any_invalid_one(api: ApiServer) -> None:
    await api.request_json("PUT", "/queues/orders", {})
    for depth in (MAX_JSON_DEPTH - 3, MAX_JSON_DEPTH - 2):
        settlement = b'{"action": "complete", "lock_token": "x", "more": ' + b"[" * depth + b"]" * depth + b"}"
        answer = await api.http.post("/v1/queues/orders/settle", content=b'{"settlements": [%s]}' % settlement)
        if depth == MAX_JSON_DEPTH - 3:
            assert answer.json()["results"][0]["problem"]["code"] == "invalid-request"
        else:
            assert pointers(answer) == [""]


async def test_a_renewal_that_meets_a_busy_message_fails_alone(api: ApiServer) -> None:
    for body in (1, 2):
        await api.send(body=body)
    done, busy = await api.receive(max_messages=2)

    async def extend_none(extensions: Sequence[object]) -> list[None]:
        return [None for _ in extensions]

    server = api.with_store(extend=extend_none)
    settlements = [
        {"action": "renew", "lock_token": busy["lock_token"]},
        {"action": "complete", "lock_token": done["lock_token"]},
    ]
    answer = asyncio.create_task(server.request_json("POST", "/queues/orders/settle", {"settlements": settlements}))
    await api.clock.advance(10)
    renewed, completed = (await answer)["results"]
    assert (renewed["problem"]["status"], renewed["problem"]["retryable"]) == (503, True)
    assert completed["outcome"] == "completed"
