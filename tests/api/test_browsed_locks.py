"""Browsed locks: who has a message until when, without the token that could settle it."""

from typing import Any

from tests.api.api_server import ApiServer

FIRST_MESSAGE = "/queues/orders/messages/1"


async def first(api: ApiServer) -> dict[str, Any]:
    """The message as it is shown alone. The list must show the same."""
    alone = await api.request_json("GET", FIRST_MESSAGE)
    page = await api.request_json("GET", "/queues/orders/messages")
    assert page["items"] == [alone]
    return alone


async def test_a_locked_message_names_its_receiver_and_the_end_of_its_lock(api: ApiServer) -> None:
    await api.send(body=1)
    assert not {"receiver_id", "locked_until"} & (await first(api)).keys()
    (received,) = await api.receive(receiver_id="clerk")
    shown = await first(api)
    assert (shown["receiver_id"], shown["locked_until"]) == ("clerk", received["locked_until"])
    assert not {"lock_token", "lock_remaining_ms"} & shown.keys()
    await api.settle(received, "abandon")
    assert not {"receiver_id", "locked_until"} & (await first(api)).keys()


async def test_a_receiver_without_a_name_has_none(api: ApiServer) -> None:
    await api.send(body=1)
    await api.receive()
    shown = await first(api)
    assert ("receiver_id" in shown, "locked_until" in shown) == (False, True)


async def test_a_renewed_lock_ends_when_its_renewal_said(api: ApiServer) -> None:
    await api.send(body=1)
    (received,) = await api.receive()
    for _ in range(3):
        await api.advance_time(10)
        renewed = (await api.settle(received, "renew")).json()
        assert (await first(api))["locked_until"] == renewed["locked_until"]


async def test_each_renewal_changes_the_etag(api: ApiServer) -> None:
    await api.send(body=1)
    (received,) = await api.receive()
    tags = [(await api.request("GET", FIRST_MESSAGE)).headers["etag"]]
    for _ in range(3):
        await api.advance_time(1)
        unchanged = await api.request("GET", FIRST_MESSAGE, headers={"If-None-Match": tags[-1]})
        assert unchanged.status_code == 304
        await api.settle(received, "renew")
        changed = await api.request("GET", FIRST_MESSAGE, headers={"If-None-Match": tags[-1]})
        assert changed.status_code == 200
        tags.append(changed.headers["etag"])
    assert len({*tags}) == len(tags)


async def test_a_locked_message_is_not_edited_with_any_etag(api: ApiServer) -> None:
    await api.send(body=1)
    (received,) = await api.receive()
    await api.settle(received, "renew")
    tag = (await api.request("GET", FIRST_MESSAGE)).headers["etag"]
    for given in (tag, '"older"'):
        answer = await api.request("PATCH", FIRST_MESSAGE, {"priority": 9}, headers={"If-Match": given})
        assert (answer.status_code, answer.json()["code"]) == (409, "message-locked")
