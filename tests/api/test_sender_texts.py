"""Every text that a sender gives a message reaches receivers and filters, also one that is declared later."""

import pytest

from app.domain.message import SENDER_TEXTS
from tests.api.api_server import ApiServer

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TEXTS = {name: TRACE if name == "traceparent" else f"the {name}" for name in SENDER_TEXTS}
HEADERS = {
    name: {"content_type": "Content-Type", "traceparent": "traceparent"}.get(
        name, f"Peeklock-{name.replace('_', '-').title()}"
    )
    for name in SENDER_TEXTS
}


async def test_a_message_is_received_with_every_text(api: ApiServer) -> None:
    await api.send(**TEXTS)
    (message,) = await api.receive()
    assert message.items() >= TEXTS.items()


async def test_headers_of_raw_messages_give_every_text(api: ApiServer) -> None:
    headers = {HEADERS[name]: text for name, text in TEXTS.items()}
    sent = await api.request("POST", "/queues/orders/messages/raw", content=b"x", headers=headers)
    assert sent.status_code == 201
    received = await api.request("POST", "/queues/orders/messages/receive/raw")
    assert {name: received.headers[header] for name, header in HEADERS.items()} == TEXTS


@pytest.mark.parametrize("place", ["receive", "subscription"])
async def test_filters_read_every_text(api: ApiServer, place: str) -> None:
    expression = " && ".join(f"message.{name} == '{text}'" for name, text in TEXTS.items())
    if place == "subscription":
        await api.request_json("PUT", "/topics/events")
        await api.request_json("PUT", "/topics/events/subscriptions/all", {"filter": expression})
        published = await api.request_json("POST", "/topics/events/messages", TEXTS)
        assert published["matched"] == 1
    else:
        await api.send(**{**TEXTS, "message_id": "another"})
        await api.send(**TEXTS)
        (message,) = await api.receive(max_messages=10, filter=expression)
        assert message.items() >= TEXTS.items()
