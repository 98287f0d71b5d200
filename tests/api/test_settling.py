"""Settling: a delivery ends once, in one way, and whoever asks again is told how."""

import asyncio
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import pytest

from app.domain.refusals import StoreUnavailable
from tests.api.house import House, pointers, problem

ENDINGS = {
    "complete": {"outcome": "completed"},
    "abandon": {"outcome": "abandoned", "state": "available"},
    "dead-letter": {"outcome": "dead_lettered", "state": "dead_lettered"},
    "defer": {"outcome": "deferred", "state": "deferred"},
}
OTHERS = [(first, second) for first in ENDINGS for second in (*ENDINGS, "renew") if first != second]


async def locked(house: House, **message: Any) -> Any:
    await house.send(**message)
    (received,) = await house.receive()
    return received


@pytest.mark.behaviour("S3.21")
@pytest.mark.parametrize(("verb", "answer"), ENDINGS.items())
async def test_a_settlement_says_what_became_of_the_message(house: House, verb: str, answer: dict[str, str]) -> None:
    settled = await house.settle(await locked(house), verb)
    assert settled.status_code == 200
    assert settled.json() == {**answer, "sequence_number": 1, "replayed": False}


@pytest.mark.behaviour("S0.7", "S3.20")
async def test_a_completed_message_is_gone_for_everybody(house: House) -> None:
    await house.settle(await locked(house), "complete")
    assert await house.counts() == {}
    problem(await house.call("GET", "/queues/orders/messages/1"), 404, "message-not-found")
    await house.pass_time(3600)
    assert await house.receive() == []


@pytest.mark.behaviour("S0.6", "S0.13")
@pytest.mark.parametrize("verb", ENDINGS)
async def test_the_same_verb_again_hears_the_first_answer_and_changes_nothing(house: House, verb: str) -> None:
    message = await locked(house)
    first = await house.settle(message, verb)
    before = await house.counts()
    again = await house.settle(message, verb)
    assert again.json() == {**first.json(), "replayed": True}
    assert await house.counts() == before
    if verb == "abandon":
        assert (await house.ask("GET", "/queues/orders/messages/1"))["failure_count"] == 1


@pytest.mark.behaviour("S0.5", "S0.12")
@pytest.mark.parametrize(("first", "second"), OTHERS)
async def test_another_verb_hears_how_the_delivery_ended(house: House, first: str, second: str) -> None:
    message = await locked(house)
    await house.settle(message, first)
    before = await house.counts()
    refused = problem(await house.settle(message, second), 409, "already-settled")
    assert (refused["outcome"], refused["retryable"]) == (ENDINGS[first]["outcome"], False)
    assert await house.counts() == before


@pytest.mark.behaviour("S0.14", "S0.20", "S3.17", "S3.22")
async def test_an_abandoned_message_is_back_at_once_in_its_old_place(house: House) -> None:
    message = await locked(house, body="first")
    await house.send(body="second")
    await house.settle(message, "abandon", reason="busy")
    (again,) = await house.receive()
    assert (again["body"], again["redelivered"], again["last_failure"]) == ("first", True, "busy")
    assert (again["delivery_count"], again["failure_count"]) == (2, 1)
    assert again["lock_token"] != message["lock_token"]


async def test_a_failure_without_a_reason_does_not_take_over_that_of_an_earlier_one(house: House) -> None:
    message = await locked(house)
    await house.settle(message, "abandon", reason="busy")
    (message,) = await house.receive()
    await house.settle(message, "abandon", count=False)
    (message,) = await house.receive()
    assert message["last_failure"] == "busy"
    await house.settle(message, "abandon")
    (message,) = await house.receive()
    assert message["last_failure"] == "abandoned"


@pytest.mark.behaviour("S2.7", "S2.9", "S2.13", "S2.33")
async def test_an_abandoned_message_waits_as_long_as_it_is_told_to(house: House) -> None:
    message = await locked(house)
    answer = await house.settle(message, "abandon", delay_seconds=10, reason="try_later")
    assert answer.json()["state"] == "scheduled"
    waiting = await house.ask("GET", "/queues/orders/messages/1")
    assert (waiting["failure_count"], waiting["last_failure"]) == (1, "try_later")
    assert waiting["available_at"] == "2027-01-15T08:00:10.000000Z"
    await house.pass_time(9)
    assert await house.receive() == []
    await house.pass_time(1)
    assert len(await house.receive()) == 1


async def test_the_queue_says_how_long_when_the_holder_does_not(house: House) -> None:
    await house.ask("PUT", "/queues/orders", {"retry": {"kind": "linear", "first_seconds": 2, "step_seconds": 3}})
    await house.send()
    for delay in (2, 5, 8):
        (message,) = await house.receive()
        assert (await house.settle(message, "abandon")).json()["state"] == "scheduled"
        await house.pass_time(delay - 0.5)
        assert await house.receive() == []
        await house.pass_time(0.5)


@pytest.mark.behaviour("S2.21")
async def test_a_message_given_back_unprocessed_is_not_held_against_it(house: House) -> None:
    message = await locked(house)
    await house.settle(message, "abandon", count=False)
    assert (await house.ask("GET", "/queues/orders/messages/1"))["failure_count"] == 0


@pytest.mark.behaviour("S3.18", "S2.8")
async def test_the_last_failure_dead_letters_the_message(house: House) -> None:
    await house.ask("PUT", "/queues/orders", {"max_delivery_count": 2})
    message = await locked(house)
    assert (await house.settle(message, "abandon")).json()["state"] == "available"
    (message,) = await house.receive()
    assert (await house.settle(message, "abandon")).json()["state"] == "dead_lettered"
    dead = await house.ask("GET", "/queues/orders/messages/1")
    assert dead["dead_letter_reason"] == "max_delivery_count_exceeded"
    assert (dead["delivery_count"], dead["failure_count"]) == (2, 2)


@pytest.mark.behaviour("S3.19", "S3.24", "S2.6")
async def test_a_dead_letter_keeps_its_reason_and_properties(house: House) -> None:
    message = await locked(house, properties={"a": 1, "b": 2})
    await house.send("invoices")
    await house.settle(
        message, "dead-letter", reason="bad_address", description="No such street.", properties={"b": 3, "c": None}
    )
    (dead,) = await house.receive(source="dead_letter")
    assert (dead["dead_letter_reason"], dead["dead_letter_description"]) == ("bad_address", "No such street.")
    assert dead["properties"] == {"a": 1, "b": 3, "c": None}
    assert dead["dead_lettered_at"] == "2027-01-15T08:00:00.000000Z"
    assert await house.counts("invoices") == {"available": 1}


@pytest.mark.behaviour("S3.25")
async def test_a_deferred_message_waits_to_be_asked_for(house: House) -> None:
    message = await locked(house, body="later")
    deferred = (await house.settle(message, "defer", properties={"step": 2})).json()
    assert await house.receive() == []
    (again,) = await house.receive(sequence_numbers=[deferred["sequence_number"]])
    assert (again["body"], again["properties"]) == ("later", {"step": 2})
    await house.settle(again, "complete")
    assert await house.counts() == {}


@pytest.mark.behaviour("S3.15")
async def test_renewing_prolongs_the_lock_for_its_holder_alone(house: House) -> None:
    message = await locked(house)
    await house.pass_time(20)
    renewed = (await house.settle(message, "renew")).json()
    assert renewed == {"locked_until": "2027-01-15T08:00:50.000000Z", "lock_remaining_ms": 30_000}
    assert (await house.settle(message, "renew", lock_seconds=100)).json()["lock_remaining_ms"] == 100_000
    await house.pass_time(99)
    assert await house.receive() == []
    stranger = {"lock_token": message["lock_token"][:-1] + ("0" if message["lock_token"][-1] != "0" else "1")}
    problem(await house.settle(stranger, "renew"), 404, "message-not-found")
    assert (await house.settle(message, "complete")).status_code == 200


@pytest.mark.behaviour("S3.23", "S2.20", "S0.21", "S2.23", "S0.1")
async def test_doing_nothing_lets_the_message_come_back(house: House) -> None:
    await locked(house, body="again")
    await house.pass_time(29)
    assert await house.receive() == []
    await house.pass_time(1)
    (again,) = await house.receive()
    assert (again["body"], again["failure_count"], again["last_failure"]) == ("again", 1, "lock_expired")


@pytest.mark.behaviour("S3.26", "S3.29", "S3.34", "S0.24")
@pytest.mark.parametrize("verb", [*ENDINGS, "renew"])
@pytest.mark.parametrize("swept", [True, False])
async def test_a_lock_that_ran_out_is_lost(house: House, verb: str, swept: bool) -> None:
    message = await locked(house)
    await (house.pass_time(31) if swept else house.clock.advance(31))
    lost = problem(await house.settle(message, verb), 410, "lock-lost")
    assert (lost["cause"], lost["delivered_again"], lost["retryable"]) == ("expired", False, False)
    assert lost["lost_at"] == message["locked_until"]
    assert await house.counts() == {"available": 1}


@pytest.mark.behaviour("S3.29")
async def test_whoever_comes_late_hears_that_it_was_delivered_again(house: House) -> None:
    message = await locked(house)
    await house.pass_time(31)
    await house.clock.advance(1)
    (second,) = await house.receive()
    lost = problem(await house.settle(message, "complete"), 410, "lock-lost")
    assert lost["delivered_again"] is True
    assert (await house.settle(second, "complete")).status_code == 200


async def test_whoever_comes_late_hears_that_it_was_removed_and_not_delivered_again(house: House) -> None:
    message = await locked(house)
    await house.pass_time(31)
    await house.ask("POST", "/queues/orders/purge")
    lost = problem(await house.settle(message, "complete"), 410, "lock-lost")
    assert (lost["lost_at"], lost["delivered_again"]) == (message["locked_until"], False)


@pytest.mark.behaviour("S3.33")
@pytest.mark.parametrize(
    "change", [{"lock_duration_seconds": 31}, {"max_delivery_count": 3}, {"status": "send_disabled"}]
)
async def test_a_change_that_holders_relied_on_takes_their_locks(house: House, change: dict[str, Any]) -> None:
    message = await locked(house)
    await house.ask("PATCH", "/queues/orders", change)
    lost = problem(await house.settle(message, "complete"), 410, "lock-lost")
    assert lost["cause"] == "entity_changed"
    again = await house.ask("GET", "/queues/orders/messages/1")
    assert (again["state"], again["failure_count"]) == ("available", 0)


async def test_other_changes_leave_locks_alone(house: House) -> None:
    message = await locked(house)
    await house.ask("PATCH", "/queues/orders", {"description": "Orders.", "default_ttl_seconds": 60})
    assert (await house.settle(message, "complete")).status_code == 200


async def test_a_token_is_good_in_its_own_queue(house: House) -> None:
    message = await locked(house)
    await house.ask("PUT", "/queues/invoices")
    for verb in (*ENDINGS, "renew"):
        problem(await house.settle(message, verb, queue="invoices"), 404, "message-not-found")
    problem(await house.settle(message, "complete", queue="nowhere"), 404, "queue-not-found")
    assert await house.counts() == {"locked": 1}


@pytest.mark.parametrize(
    "token",
    ["x", "1", "1.", ".0", "1.00", f"1.{'g' * 32}", f"-1.{'0' * 32}", f"{'9' * 20}.{'0' * 32}", f"١.{'0' * 32}"],
)
async def test_a_garbled_token_was_never_given_out(house: House, token: str) -> None:
    await locked(house)
    problem(await house.settle({"lock_token": token}, "complete"), 404, "message-not-found")


@pytest.mark.parametrize("written", ["0{}", "00{}", "+{}", " {}", "{} ", "{}\n"])
async def test_a_token_is_read_only_as_it_was_written(house: House, written: str) -> None:
    message = await locked(house)
    otherwise = quote(written.format(message["lock_token"]), safe="")
    problem(await house.settle({"lock_token": otherwise}, "complete"), 404, "message-not-found")
    assert await house.counts() == {"locked": 1}


@pytest.mark.parametrize(
    ("verb", "said", "pointer"),
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
    ],
)
async def test_a_settlement_that_is_not_right_changes_nothing(
    house: House, verb: str, said: dict[str, Any], pointer: str
) -> None:
    message = await locked(house, properties={"mine": 1})
    assert pointers(await house.settle(message, verb, **said)) == [pointer]
    assert (await house.settle(message, "complete")).json()["replayed"] is False


async def test_a_body_may_be_left_out(house: House) -> None:
    for verb in (*ENDINGS, "renew"):
        message = await locked(house)
        path = f"/queues/orders/locks/{message['lock_token']}/{verb}"
        assert (await house.call("POST", path)).status_code == 200
        await house.settle(message, "complete")
        await house.ask("POST", "/queues/orders/purge")


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
"""Settlements of a batch that break a rule by themselves, and where."""


class TestTogether:
    """Many settlements in one call, each with its own result."""

    @pytest.mark.behaviour("S2.19")
    async def test_each_does_what_it_says(self, house: House) -> None:
        for n in range(5):
            await house.send(body=n)
        tokens = [message["lock_token"] for message in await house.receive(max_messages=5)]
        said = [
            {"action": "complete"},
            {"action": "abandon", "delay_seconds": 5},
            {"action": "dead_letter", "reason": "bad"},
            {"action": "defer"},
            {"action": "renew", "lock_seconds": 60},
        ]
        settlements = [{**one, "lock_token": token} for one, token in zip(said, tokens, strict=True)]
        answer = await house.ask("POST", "/queues/orders/settle", {"settlements": settlements})
        assert [result["lock_token"] for result in answer["results"]] == tokens
        assert [result["result"] for result in answer["results"]] == ["settled"] * 4 + ["renewed"]
        outcomes = [result.get("outcome") for result in answer["results"]]
        assert outcomes == ["completed", "abandoned", "dead_lettered", "deferred", None]
        assert await house.counts() == {"scheduled": 1, "dead_lettered": 1, "deferred": 1, "locked": 1}

    async def test_one_that_is_refused_does_not_hinder_the_others(self, house: House) -> None:
        first, second = await locked(house), await locked(house)
        await house.settle(first, "abandon")
        settlements = [{"action": "complete", "lock_token": one["lock_token"]} for one in (first, second)]
        settlements.append({"action": "renew", "lock_token": f"7.{'0' * 32}"})
        results = (await house.ask("POST", "/queues/orders/settle", {"settlements": settlements}))["results"]
        assert [result["result"] for result in results] == ["refused", "settled", "refused"]
        assert results[0]["problem"]["code"] == "already-settled"
        assert results[2]["problem"]["code"] == "message-not-found"

    @pytest.mark.parametrize(("bad", "pointer"), MALFORMED)
    async def test_one_that_is_malformed_has_the_problem_of_its_own(self, house: House, bad: Any, pointer: str) -> None:
        first, second = await locked(house), await locked(house)
        one, other = ({"action": "complete", "lock_token": message["lock_token"]} for message in (first, second))
        results = (await house.ask("POST", "/queues/orders/settle", {"settlements": [one, bad, other]}))["results"]
        assert [result["result"] for result in results] == ["settled", "refused", "settled"]
        refusal = results[1]["problem"]
        assert (refusal["status"], refusal["code"]) == (422, "invalid-request")
        assert [fault["pointer"] for fault in refusal["errors"]] == [pointer]
        assert results[1]["lock_token"] == (
            bad["lock_token"] if isinstance(bad, dict) and bad.get("lock_token") == TOKEN else None
        )
        assert await house.counts() == {}

    async def test_of_two_with_one_token_the_second_is_refused(self, house: House) -> None:
        message = await locked(house)
        token = message["lock_token"]
        settlements = [{"action": action, "lock_token": token} for action in ("complete", "abandon", "complete")]
        results = (await house.ask("POST", "/queues/orders/settle", {"settlements": settlements}))["results"]
        assert [result["result"] for result in results] == ["settled", "refused", "refused"]
        for refused in results[1:]:
            assert refused["lock_token"] == token
            assert [fault["pointer"] for fault in refused["problem"]["errors"]] == ["/lock_token"]
            assert "Settlement 0" in refused["problem"]["errors"][0]["detail"]
        assert await house.counts() == {}

    async def test_a_token_that_was_never_given_out_is_not_found(self, house: House) -> None:
        message = await locked(house)
        settlements = [{"action": "complete", "lock_token": token} for token in ("1.x", message["lock_token"])]
        garbled, settled = (await house.ask("POST", "/queues/orders/settle", {"settlements": settlements}))["results"]
        assert (garbled["lock_token"], garbled["problem"]["code"]) == ("1.x", "message-not-found")
        assert settled["result"] == "settled"

    async def test_a_property_that_is_not_right_is_named(self, house: House) -> None:
        one = {"action": "defer", "lock_token": (await locked(house))["lock_token"], "properties": {"a": 1, "b": []}}
        (refused,) = (await house.ask("POST", "/queues/orders/settle", {"settlements": [one]}))["results"]
        assert refused["lock_token"] == one["lock_token"]
        assert [fault["pointer"] for fault in refused["problem"]["errors"]] == ["/properties/b"]
        assert await house.counts() == {"locked": 1}

    async def test_problems_do_not_repeat_long_parts_of_the_request(self, house: House) -> None:
        await house.ask("PUT", "/queues/orders")
        bad = {"action": "complete", "lock_token": "x" * 3000}
        answer = await house.call("POST", "/queues/orders/settle", {"settlements": [bad] * 100})
        assert len(answer.content) < 100 * 2500
        assert {result["lock_token"] for result in answer.json()["results"]} == {None}

    async def test_there_is_at_least_one(self, house: House) -> None:
        await house.ask("PUT", "/queues/orders")
        assert pointers(await house.call("POST", "/queues/orders/settle", {"settlements": []})) == ["/settlements"]
        assert pointers(await house.call("POST", "/queues/orders/settle")) == ["/settlements"]


@pytest.mark.behaviour("S0.23")
async def test_of_many_who_settle_one_delivery_one_takes_effect(house: House) -> None:
    for _ in range(10):
        message = await locked(house)
        verbs = [*ENDINGS, *ENDINGS]
        answers = await asyncio.gather(*(house.settle(message, verb) for verb in verbs))
        effective = [answer.json() for answer in answers if answer.is_success and not answer.json()["replayed"]]
        assert len(effective) == 1
        for verb, answer in zip(verbs, answers, strict=True):
            if ENDINGS[verb]["outcome"] != effective[0]["outcome"]:
                problem(answer, 409, "already-settled")
        await house.ask("POST", "/queues/orders/purge")


async def test_renewals_do_not_wait_for_the_settlements_beside_them(house: House) -> None:
    for _ in range(2):
        await house.send()
    done, going_on = await house.receive(max_messages=2)
    renewed = asyncio.Event()

    class Patient:
        """A store that removes nothing until a lock has been renewed, and then fails."""

        def __getattr__(self, name: str) -> Any:
            return getattr(house.broker.store, name)

        async def extend(self, extensions: Any) -> Any:
            answer = await house.broker.store.extend(extensions)
            renewed.set()
            return answer

        async def remove(self, removals: Any) -> Any:
            await renewed.wait()
            raise StoreUnavailable

    patient: Any = Patient()
    settlements = [
        {"action": "complete", "lock_token": done["lock_token"]},
        {"action": "renew", "lock_token": going_on["lock_token"]},
    ]
    slow = House(replace(house.broker, store=patient), house.clock, None)
    async with slow.http, asyncio.timeout(10):
        answer = await slow.call("POST", "/queues/orders/settle", {"settlements": settlements})
    problem(answer, 503, "store-unavailable")
