"""Histories over HTTP: what happened to a message, in pages, also after its end."""

from typing import Any

from tests.api.api_server import ApiServer, problem

HISTORY = "/queues/orders/messages/1/history"


async def settings(api: ApiServer, **values: Any) -> None:
    await api.request_json("PUT", "/queues/orders", {"history": True} | values)


async def events(api: ApiServer, path: str = HISTORY) -> list[tuple[Any, ...]]:
    found = (await api.request_json("GET", path))["items"]
    return [(event["event"], event.get("outcome"), event.get("state")) for event in found]


async def receive(api: ApiServer, **values: Any) -> str:
    """Receive one message. Return its lock token."""
    answer = await api.request_json("POST", "/queues/orders/messages/receive", {"receiver_id": "worker"} | values)
    return answer["messages"][0]["lock_token"]


async def test_a_message_is_followed_to_its_end(api: ApiServer) -> None:
    await settings(api)
    await api.send()
    token = await receive(api)
    await api.request_json("POST", f"/queues/orders/locks/{token}/renew", {})
    await api.request_json("POST", f"/queues/orders/locks/{token}/abandon", {"reason": "no paper"})
    token = await receive(api)
    await api.request_json("POST", f"/queues/orders/locks/{token}/complete")
    assert await events(api) == [
        ("sent", None, "available"),
        ("delivered", None, "locked"),
        ("renewed", None, "locked"),
        ("settled", "abandoned", "available"),
        ("delivered", None, "locked"),
        ("settled", "completed", None),
    ]
    found = (await api.request_json("GET", HISTORY))["items"]
    assert [event.get("receiver_id") for event in found] == [None, *["worker"] * 5]
    assert [event.get("delivery_count") for event in found] == [None, 1, 1, 1, 2, 2]
    assert found[3]["reason"] == "no paper"


async def test_batches_raw_and_volatile_sends_count_as_sent(api: ApiServer) -> None:
    await settings(api)
    await api.request_json("POST", "/queues/orders/messages/batch", {"messages": [{}]})
    await api.request("POST", "/queues/orders/messages/raw")
    await api.send(durability="volatile")
    await api.broker.sending.volatile_buffer.close()
    for number in (1, 2, 3):
        assert await events(api, f"/queues/orders/messages/{number}/history") == [("sent", None, "available")]


async def test_receive_and_delete_is_a_delivery_and_its_end(api: ApiServer) -> None:
    await settings(api)
    await api.send()
    body = {"mode": "receive_and_delete"}
    await api.request_json("POST", "/queues/orders/messages/receive", body)
    assert await events(api) == [
        ("sent", None, "available"),
        ("delivered", None, "locked"),
        ("settled", "received", None),
    ]


async def test_a_work_unit_is_recorded(api: ApiServer) -> None:
    await settings(api)
    await api.send()
    token = await receive(api)
    unit = {
        "settlements": [{"queue": "orders", "action": "complete", "lock_token": token}],
        "sends": [{"queue": "orders", "body": 2}],
    }
    await api.request_json("POST", "/transactions/execute", unit)
    assert (await events(api))[-1] == ("settled", "completed", None)
    assert await events(api, "/queues/orders/messages/2/history") == [("sent", None, "available")]


async def test_a_purge_of_locked_messages_is_recorded(api: ApiServer) -> None:
    await settings(api)
    await api.send()
    await receive(api)
    await api.request_json("POST", "/queues/orders/purge", {"states": ["locked"]})
    assert (await events(api))[-1] == ("purged", "purged", None)


async def test_a_history_is_read_in_pages(api: ApiServer) -> None:
    await settings(api)
    await api.send()
    await receive(api)
    first = await api.request_json("GET", f"{HISTORY}?limit=1")
    second = await api.request_json("GET", f"{HISTORY}?limit=1&cursor={first['next_cursor']}")
    assert [page["items"][0]["event"] for page in (first, second)] == ["sent", "delivered"]
    assert second["next_cursor"] is None


async def test_a_message_that_was_not_recorded_has_no_events(api: ApiServer) -> None:
    await settings(api, history=False)
    await api.send()
    assert await api.request_json("GET", HISTORY) == {"items": [], "next_cursor": None}


async def test_unknown_messages_and_cursors_are_refused(api: ApiServer) -> None:
    await settings(api)
    problem(await api.request("GET", HISTORY), 404, "message-not-found")
    await api.send()
    problem(await api.request("GET", f"{HISTORY}?cursor=x"), 422, "invalid-request")
    problem(await api.request("GET", f"{HISTORY}?limit=1001"), 422, "invalid-request")
    problem(await api.request("GET", "/queues/unknown/messages/1/history"), 404, "queue-not-found")
