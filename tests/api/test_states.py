"""Commit over HTTP: complete a message, send its results and add a version to a state."""

import asyncio
import random
from typing import Any

import httpx
import pytest

from app.domain.access import Right
from app.domain.state import MAX_METADATA_BYTES, MAX_VALUE_BYTES
from tests.api.api_server import ApiServer, pointers, problem
from tests.api.topic_requests import subscribe

KEY = "game.17"


async def locked(api: ApiServer, queue: str = "orders", **message: Any) -> Any:
    """Send a message and receive it."""
    await api.send(queue, **message)
    (received,) = await api.receive(queue)
    return received


async def commit(api: ApiServer, message: Any, queue: str = "orders", **body: Any) -> httpx.Response:
    """Commit a message."""
    return await api.request("POST", f"/queues/{queue}/locks/{message['lock_token']}/commit", body)


def state(if_version: int = 0, value: Any = None, key: str = KEY, **fields: Any) -> dict[str, Any]:
    return {"key": key, "if_version": if_version, "value": value, **fields}


async def load(api: ApiServer, key: str = KEY, **query: Any) -> Any:
    """Read a state."""
    return await api.request_json("GET", f"/states/{key}", params=query)


# ---- commit ----------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("S4.7", "S4.13")
async def test_a_message_is_completed_with_its_results_and_its_state(api: ApiServer) -> None:
    message = await locked(api, message_id="A")
    answer = await commit(api, message, sends=[{"queue": "letters", "body": 1}], state=state(0, {"target": 5}))
    sent = answer.json()["sends"]
    assert answer.json() == {
        "outcome": "completed", "version": 1, "sends": sent, "replayed": False, "duplicate": False,
    }  # fmt: skip
    assert await api.counts("orders") == {}
    (letter,) = await api.receive("letters")
    assert letter["sequence_number"] == sent[0]["sequence_number"]
    loaded = await load(api)
    assert loaded.pop("updated_at").endswith("Z")
    assert loaded == {
        "key": KEY, "version": 1, "value": {"target": 5}, "metadata": None, "message_id": "A",
        "duplicate": False, "captured": None,
    }  # fmt: skip


async def test_sends_and_state_may_be_left_out(api: ApiServer) -> None:
    message = await locked(api)
    answer = await commit(api, message)
    assert answer.json() == {
        "outcome": "completed",
        "version": None,
        "sends": [],
        "replayed": False,
        "duplicate": False,
    }
    assert await api.counts("orders") == {}


@pytest.mark.behaviour("S4.14")
async def test_ids_of_sends_follow_from_the_id_of_the_message(api: ApiServer) -> None:
    message = await locked(api, message_id="order-17")
    sends = [{"queue": "letters"}, {"queue": "letters", "message_id": "own"}, {"queue": "invoices"}]
    answer = (await commit(api, message, sends=sends)).json()
    assert [sent["message_id"] for sent in answer["sends"]] == ["orders/order-17/0", "own", "orders/order-17/2"]


@pytest.mark.behaviour("S4.14")
async def test_the_results_of_two_copies_of_a_message_have_different_ids(api: ApiServer) -> None:
    """Each copy is processed with a state of its own, and both results are sent to a queue that detects duplicates."""
    await api.request_json("PUT", "/queues/letters", {"duplicate_detection_window_seconds": 600})
    await api.request_json("PUT", "/topics/orders", {})
    for name in ("mail", "bill"):
        await subscribe(api, name, "orders")
    await api.request_json("POST", "/topics/orders/messages", {"message_id": "A"})
    for name in ("mail", "bill"):
        (message,) = await api.receive(f"orders.{name}")
        answer = await commit(
            api, message, f"orders.{name}", sends=[{"queue": "letters"}], state=state(0, key=f"state.{name}")
        )
        (sent,) = answer.json()["sends"]
        assert (sent["message_id"], sent["duplicate"]) == (f"orders.{name}/A/0", False)
    assert await api.counts("letters") == {"available": 2}


@pytest.mark.behaviour("S4.14", "S4.2")
async def test_a_duplicate_has_the_result_of_a_processing_by_an_older_server(api: ApiServer) -> None:
    """An older server has compared results by the ids `A/0` that it gave to sends."""
    older = {"queue": "letters", "message_id": "A/0"}
    await commit(api, await locked(api, message_id="A"), sends=[older], state=state(0, 1))
    again = await commit(
        api, await locked(api, message_id="A"), sends=[{"queue": "letters"}], state=state(0, 1, verify=True)
    )
    assert (again.status_code, again.json()["duplicate"]) == (200, True)
    assert again.json()["sends"][0]["message_id"] == "A/0"


async def test_a_derived_id_of_a_long_id_is_short_and_stable(api: ApiServer) -> None:
    ids = []
    for _ in range(2):
        message = await locked(api, message_id="x" * 128)
        answer = (await commit(api, message, sends=[{"queue": "letters"}, {"queue": "letters"}])).json()
        ids.append([sent["message_id"] for sent in answer["sends"]])
    assert ids[0] == ids[1]
    assert len({*ids[0]}) == 2
    assert all(len(one) <= 128 for one in ids[0])


@pytest.mark.behaviour("S4.8")
async def test_a_conflict_of_versions_has_no_effect_and_names_the_newest_version(api: ApiServer) -> None:
    await commit(api, await locked(api), state=state(0))
    message = await locked(api)
    answer = await commit(api, message, sends=[{"queue": "letters", "body": "ghost"}], state=state(0))
    assert problem(answer, 409, "version-conflict")["current_version"] == 1
    assert "errors" not in answer.json()
    assert await api.counts("orders") == {"locked": 1}
    assert await api.counts("letters") == {}
    assert (await commit(api, message, state=state(1))).json()["version"] == 2


async def test_a_repeated_commit_gets_the_first_answer(api: ApiServer) -> None:
    message = await locked(api)
    body = {"sends": [{"queue": "letters", "body": 1}], "state": state(0)}
    first = (await commit(api, message, **body)).json()
    assert (await commit(api, message, **body)).json() == first | {"replayed": True}
    assert await api.counts("letters") == {"available": 1}
    assert (await load(api))["version"] == 1


async def test_another_commit_under_the_same_token_is_refused(api: ApiServer) -> None:
    message = await locked(api)
    await commit(api, message, state=state(0, 1))
    answer = await commit(api, message, state=state(0, 2))
    assert problem(answer, 409, "already-settled")["outcome"] == "completed"


async def test_a_commit_after_a_complete_is_refused(api: ApiServer) -> None:
    message = await locked(api)
    await api.settle(message, "complete")
    answer = await commit(api, message, sends=[{"queue": "letters"}], state=state(0))
    assert "errors" not in problem(answer, 409, "already-settled")
    assert (await load(api))["version"] == 0


async def test_a_complete_after_a_commit_is_a_repeat(api: ApiServer) -> None:
    message = await locked(api)
    await commit(api, message)
    assert (await api.settle(message, "complete")).json()["replayed"] is True


async def test_a_commit_after_the_lock_has_ended_has_no_effect(api: ApiServer) -> None:
    message = await locked(api)
    await api.advance_time(31)
    answer = await commit(api, message, sends=[{"queue": "letters"}], state=state(0))
    assert "errors" not in problem(answer, 410, "lock-lost")
    assert await api.counts("letters") == {}
    assert (await load(api))["version"] == 0


async def test_a_commit_of_a_renewed_lock_takes_effect(api: ApiServer) -> None:
    message = await locked(api)
    await api.advance_time(20)
    await api.settle(message, "renew")
    await api.advance_time(20)
    assert (await commit(api, message, state=state(0))).json()["version"] == 1


async def test_a_token_of_another_queue_commits_nothing(api: ApiServer) -> None:
    await api.send("letters")
    message = await locked(api)
    problem(await commit(api, message, queue="letters", state=state(0)), 404, "message-not-found")
    assert await api.counts("orders") == {"locked": 1}


@pytest.mark.behaviour("S4.24")
async def test_one_of_concurrent_commits_of_a_message_adds_a_version(api: ApiServer) -> None:
    message = await locked(api)
    answers = await asyncio.gather(*(commit(api, message, state=state(0, number)) for number in range(4)))
    assert sorted(answer.status_code for answer in answers) == [200, 409, 409, 409]
    assert (await load(api))["version"] == 1


# ---- duplicates ------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("S4.2")
async def test_a_verified_duplicate_with_another_result_is_refused(api: ApiServer) -> None:
    sends = [{"queue": "letters", "body": 1, "properties": {"a": 1}}]
    await commit(api, await locked(api, message_id="A"), state=state(0, [1]), sends=sends)
    for other, changed in [([2], sends), ([1], [{**sends[0], "body": 2}]), ([1], [])]:
        message = await locked(api, message_id="A")
        answer = await commit(api, message, state=state(0, other, verify=True), sends=changed)
        problem(answer, 409, "result-differs")
        same = await commit(api, message, state=state(0, [1], verify=True), sends=sends)
        assert same.json()["duplicate"] is True
    assert await api.counts("letters") == {"available": 1}


async def test_a_trace_context_does_not_make_a_result_differ(api: ApiServer) -> None:
    for span, is_duplicate in [("1", False), ("2", True)]:
        message = await locked(api, message_id="A")
        answer = await api.request_json(
            "POST",
            f"/queues/orders/locks/{message['lock_token']}/commit",
            {"sends": [{"queue": "letters"}], "state": state(0, verify=True)},
            headers={"traceparent": f"00-{'a' * 32}-{span * 16}-01"},
        )
        assert answer["duplicate"] is is_duplicate


@pytest.mark.behaviour("S4.15", "S4.16", "S4.21")
async def test_a_duplicate_gets_what_the_first_processing_captured(api: ApiServer) -> None:
    captured = {"now": "2026-11-23T00:00:00Z", "seed": 42, "logic_version": 1}
    await commit(api, await locked(api, message_id="A"), state=state(0, 1, metadata=captured))
    await commit(api, await locked(api, message_id="B"), state=state(1, 2, metadata={"logic_version": 2}))
    loaded = await load(api, before_message="A")
    assert (loaded["version"], loaded["duplicate"], loaded["captured"]) == (0, True, captured)
    loaded = await load(api, before_message="B")
    assert (loaded["version"], loaded["value"], loaded["metadata"]) == (1, 1, captured)
    assert loaded["captured"] == {"logic_version": 2}
    loaded = await load(api, before_message="new")
    assert (loaded["version"], loaded["duplicate"], loaded["captured"]) == (2, False, None)


# ---- the published example -------------------------------------------------------------------------------------------

MAX_ATTEMPTS_IN_A_ROUND = 2


def shoot(data: dict[str, int], message: Any, captured: dict[str, int]) -> tuple[dict[str, int], str]:
    """Handle a shot. It depends on the state, the message and what was captured, and on nothing else."""
    result = "Hit" if data["target_position"] == message["body"]["position"] else "Missed"
    if data["number_of_attempts"] + 1 >= MAX_ATTEMPTS_IN_A_ROUND:
        return {"target_position": captured["next_target"], "number_of_attempts": 0}, result
    return {**data, "number_of_attempts": data["number_of_attempts"] + 1}, result


async def process(api: ApiServer, position: int, message_id: str) -> Any:
    """Process a shot as a client does: receive, load, handle, commit. Return the answer."""
    message = await locked(api, "shots", message_id=message_id, body={"position": position})
    loaded = await load(api, before_message=message_id)
    captured = loaded["captured"] or {"next_target": random.randrange(100)}
    data, result = shoot(loaded["value"] or {"target_position": 42, "number_of_attempts": 0}, message, captured)
    answer = await commit(
        api,
        message,
        "shots",
        sends=[{"queue": "results", "subject": result}],
        state=state(loaded["version"], data, metadata=captured, verify=True),
    )
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.behaviour("S4.3", "S4.6", "S4.14", "S4.15", "S4.23")
async def test_the_shooting_range_gives_a_repeated_shot_its_first_result(api: ApiServer) -> None:
    first = {name: await process(api, position, name) for name, position in [("A", 42), ("D", 7), ("B", 42)]}
    values = [(await load(api, version=number))["value"] for number in (1, 2, 3)]
    assert values[0] == {"target_position": 42, "number_of_attempts": 1}
    assert values[1]["number_of_attempts"] == 0
    results = await api.receive("results", max_messages=10)
    assert [(one["subject"], one["message_id"]) for one in results[:2]] == [
        ("Hit", "shots/A/0"),
        ("Missed", "shots/D/0"),
    ]
    again = await process(api, 7, "D")
    assert (again["version"], again["duplicate"]) == (2, True)
    sent = first["D"]["sends"][0]
    assert again["sends"] == [sent | {"duplicate": True}]
    assert [(await load(api, version=number))["value"] for number in (1, 2, 3)] == values
    assert (await load(api))["version"] == 3
    assert await api.receive("results") == []


# ---- reads -----------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("S4.1", "S4.4")
async def test_a_state_is_read_at_each_version(api: ApiServer) -> None:
    for number in range(3):
        await commit(api, await locked(api), state=state(number, {"n": number}))
    assert [(await load(api, version=number))["value"] for number in range(4)] == [
        None, {"n": 0}, {"n": 1}, {"n": 2},
    ]  # fmt: skip
    assert (await load(api))["version"] == 3
    problem(await api.request("GET", f"/states/{KEY}?version=4"), 404, "state-not-found")


async def test_a_key_without_a_state_has_version_0(api: ApiServer) -> None:
    loaded = await load(api, before_message="A")
    assert loaded == {
        "key": KEY, "version": 0, "value": None, "metadata": None, "message_id": None, "updated_at": None,
        "duplicate": False, "captured": None,
    }  # fmt: skip
    assert await api.request_json("GET", f"/states/{KEY}/history") == {"items": [], "next_cursor": None}
    problem(await api.request("DELETE", f"/states/{KEY}"), 404, "state-not-found")


@pytest.mark.behaviour("S4.20", "S4.22")
async def test_the_history_shows_how_a_state_grows(api: ApiServer) -> None:
    for number in range(3):
        await commit(api, await locked(api, message_id=f"m{number}"), state=state(number, "same"))
    page = await api.request_json("GET", f"/states/{KEY}/history?limit=2")
    assert [(item["version"], item["message_id"], item["value_bytes"]) for item in page["items"]] == [
        (1, "m0", 6), (2, "m1", 6),
    ]  # fmt: skip
    last = await api.request_json("GET", f"/states/{KEY}/history?limit=2&cursor={page['next_cursor']}")
    assert [item["version"] for item in last["items"]] == [3]
    assert last["next_cursor"] is None


@pytest.mark.parametrize("cursor", ["x", "-1", "1.0", "9" * 20, "٣"])
async def test_an_invented_cursor_of_the_history_is_refused(api: ApiServer, cursor: str) -> None:
    answer = await api.request("GET", f"/states/{KEY}/history", params={"cursor": cursor})
    assert pointers(answer) == ["#/query/cursor"]


async def test_a_deleted_state_begins_again(api: ApiServer) -> None:
    await commit(api, await locked(api, message_id="A"), state=state(0, 1))
    await api.request_json("DELETE", f"/states/{KEY}")
    assert (await load(api))["version"] == 0
    answer = await commit(api, await locked(api, message_id="A"), state=state(0, 2))
    assert (answer.json()["version"], answer.json()["duplicate"]) == (1, False)


# ---- limits ----------------------------------------------------------------------------------------------------------


async def test_a_value_of_the_largest_size_is_kept(api: ApiServer) -> None:
    value, metadata = "x" * (MAX_VALUE_BYTES - 2), "y" * (MAX_METADATA_BYTES - 2)
    answer = await commit(api, await locked(api), state=state(0, value, metadata=metadata))
    assert answer.json()["version"] == 1
    loaded = await load(api)
    assert (loaded["value"], loaded["metadata"]) == (value, metadata)


@pytest.mark.parametrize(
    ("field", "size"), [("value", MAX_VALUE_BYTES), ("metadata", MAX_METADATA_BYTES)], ids=["value", "metadata"]
)
async def test_a_larger_value_is_refused(api: ApiServer, field: str, size: int) -> None:
    message = await locked(api)
    answer = await commit(api, message, state=state(0, None) | {field: "x" * (size - 1)})
    assert pointers(answer) == [f"/state/{field}"]
    assert await api.counts("orders") == {"locked": 1}


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"key": ""}, "/state/key"),
        ({"key": "a/b"}, "/state/key"),
        ({"key": "x" * 129}, "/state/key"),
        ({"if_version": -1}, "/state/if_version"),
        ({"if_version": 2**63}, "/state/if_version"),
        ({"unknown": 1}, "/state/unknown"),
    ],
    ids=["empty key", "slash", "long key", "negative version", "large version", "unknown member"],
)
async def test_an_invalid_state_is_refused(api: ApiServer, change: dict[str, Any], pointer: str) -> None:
    message = await locked(api)
    assert pointers(await commit(api, message, state=state() | change)) == [pointer]
    assert await api.counts("orders") == {"locked": 1}


async def test_a_state_without_a_value_is_refused(api: ApiServer) -> None:
    message = await locked(api)
    answer = await commit(api, message, state={"key": KEY, "if_version": 0})
    problem(answer, 422, "invalid-request")


async def test_an_invalid_send_is_located(api: ApiServer) -> None:
    message = await locked(api)
    sends = [{"queue": "letters"}, {"queue": "letters", "durability": "volatile"}]
    assert pointers(await commit(api, message, sends=sends)) == ["/sends/1/durability"]
    assert await api.counts("orders") == {"locked": 1}


@pytest.mark.parametrize(
    "query",
    ["version=1&before_message=A", "version=-1", "version=x", "before_message=", "before_message=" + "x" * 129, "a=1"],
)
async def test_an_invalid_read_is_refused(api: ApiServer, query: str) -> None:
    problem(await api.request("GET", f"/states/{KEY}?{query}"), 422, "invalid-request")


@pytest.mark.parametrize("key", ["-a", "a%20b", "x" * 129, "%C3%A4"])
async def test_an_invalid_key_is_refused(api: ApiServer, key: str) -> None:
    assert pointers(await api.request("GET", f"/states/{key}")) == ["#/path/key"]


# ---- publishes -------------------------------------------------------------------------------------------------------


async def events(api: ApiServer) -> None:
    await api.request_json("PUT", "/topics/events", {})
    await subscribe(api, "all", "events")
    await subscribe(api, "urgent", "events", filter="message.priority > 5")


@pytest.mark.behaviour("S4.5", "S4.6", "S4.7", "S4.14")
async def test_results_are_published_once_for_a_message_and_its_duplicate(api: ApiServer) -> None:
    await events(api)
    results: dict[str, Any] = {
        "sends": [{"queue": "letters"}],
        "publishes": [{"topic": "events", "priority": 9, "body": "x" * 100_000}, {"topic": "events"}],
        "state": state(0, 1),
    }
    first = (await commit(api, await locked(api, message_id="A"), **results)).json()
    assert [sent["message_id"] for sent in first["sends"]] == ["orders/A/0", "orders/A/1", "orders/A/1", "orders/A/2"]
    assert (first["version"], first["duplicate"]) == (1, False)
    assert (await api.counts("events.all"), await api.counts("events.urgent")) == ({"available": 2}, {"available": 1})
    second = (await commit(api, await locked(api, message_id="A"), **results)).json()
    assert second == {**first, "sends": [{**sent, "duplicate": True} for sent in first["sends"]], "duplicate": True}
    assert (await api.counts("events.all"), await api.counts("events.urgent")) == ({"available": 2}, {"available": 1})
    assert [message["message_id"] for message in await api.receive("events.all", max_messages=9)] == [
        "orders/A/1",
        "orders/A/2",
    ]


async def test_a_publish_that_is_refused_leaves_the_message_locked(api: ApiServer) -> None:
    await events(api)
    await api.request_json("PATCH", "/queues/events.urgent", {"status": "send_disabled"})
    message = await locked(api, message_id="A")
    for publish, status, code in (
        ({"topic": "events", "priority": 9}, 403, "send-disabled"),
        ({"topic": "absent"}, 404, "topic-not-found"),
    ):
        problem(
            await commit(api, message, publishes=[publish], sends=[{"queue": "letters"}], state=state()), status, code
        )
    assert await api.counts("orders") == {"locked": 1}
    assert (await load(api))["version"] == 0


@pytest.mark.parametrize(
    ("publishes", "pointer"),
    [
        ([{"topic": "events", "durability": "volatile"}], "/publishes/0/durability"),
        ([{"topic": "events", "message_id": "a"}] * 2, "/publishes/1/message_id"),
        ([{"topic": "events", "message_id": "orders/A/1"}, {"topic": "events"}], "/publishes/1/message_id"),
        ([{"topic": "events"}] * 101, "/publishes"),
    ],
)
async def test_an_invalid_publish_is_located(api: ApiServer, publishes: list[Any], pointer: str) -> None:
    await events(api)
    message = await locked(api, message_id="A")
    assert pointers(await commit(api, message, publishes=publishes)) == [pointer]
    assert await api.counts("orders") == {"locked": 1}


async def test_a_verified_duplicate_with_another_publish_is_refused(api: ApiServer) -> None:
    await events(api)
    sent, published = [{"queue": "events"}], [{"topic": "events", "message_id": "A/0"}]
    await commit(api, await locked(api, message_id="A"), publishes=published, state=state(0, 1))
    duplicate = await locked(api, message_id="A")
    others: list[dict[str, Any]] = [{"sends": sent}, {"publishes": [{**published[0], "subject": "other"}]}, {}]
    for other in others:
        refused = await commit(api, duplicate, state=state(0, 1, verify=True), **other)
        problem(refused, 409, "result-differs")
    same = await commit(api, duplicate, publishes=published, state=state(0, 1, verify=True))
    assert same.json()["duplicate"] is True


# ---- rights ----------------------------------------------------------------------------------------------------------


async def test_a_state_needs_a_right_on_its_key(api_with_keys: ApiServer) -> None:
    api = api_with_keys
    admin = {"Authorization": f"Bearer {await api.new_key(*Right, principal='admin')}"}
    client = {"Authorization": f"Bearer {await api.new_key(Right.LISTEN, patterns=('orders', 'game.*'))}"}
    await api.request_json("POST", "/queues/orders/messages", {"message_id": "A"}, headers=admin)
    received = await api.request_json("POST", "/queues/orders/messages/receive", {}, headers=client)
    path = f"/queues/orders/locks/{received['messages'][0]['lock_token']}/commit"
    refused = await api.request("POST", path, {"state": state(key="other")}, headers=client)
    assert problem(refused, 403, "forbidden")["detail"].endswith("the right listen on state other.")
    refused = await api.request("POST", path, {"sends": [{"queue": "game.letters"}]}, headers=client)
    assert problem(refused, 403, "forbidden")["detail"].endswith("the right send on queue game.letters.")
    refused = await api.request("POST", path, {"publishes": [{"topic": "game.events"}]}, headers=client)
    assert problem(refused, 403, "forbidden")["detail"].endswith("the right send on queue game.events.")
    await api.request_json("POST", path, {"state": state()}, headers=client)
    assert (await api.request("GET", f"/states/{KEY}", headers=client)).status_code == 200
    refused = await api.request("GET", "/states/other", headers=client)
    assert problem(refused, 403, "forbidden")["detail"].endswith("the right listen on state other.")
    problem(await api.request("GET", f"/states/{KEY}/history", headers=client), 403, "forbidden")
    problem(await api.request("DELETE", f"/states/{KEY}", headers=client), 403, "forbidden")
    await api.request_json("DELETE", f"/states/{KEY}", headers=admin)
