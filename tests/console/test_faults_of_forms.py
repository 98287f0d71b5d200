"""The page of a refused form shows every fault at once."""

import re

import pytest

from tests.console.console_server import ConsoleServer

DURATIONS = {"lock_duration": "half an hour", "default_ttl": "soon"}
NUMBERS = {"max_messages": "many", "max_delivery_count": "0"}
POLICY = {"retry": "exponential", "retry_first": "soon", "retry_factor": "x"}
SETTINGS = DURATIONS | NUMBERS | POLICY
SUBSCRIPTION = {"target_queue": "no name!", "filter": "no filter (", "remove_properties": "n" * 2000}
ROW = {"property_name": "a", "property_type": "number", "property_value": "b"}


@pytest.mark.parametrize(
    ("path", "fields", "faulty"),
    [
        ("/new-queue", {"name": "-"} | SETTINGS, {"name", *SETTINGS} - {"retry"}),
        ("/queues/orders/settings", SETTINGS, {*SETTINGS} - {"retry"}),
        ("/new-topic", {"name": "-", "description": "d" * 2000}, {"name", "description"}),
        (
            "/topics/shop/new-subscription",
            {"name": "-"} | SUBSCRIPTION | ROW,
            {"name", *SUBSCRIPTION, "property_0"},
        ),
        ("/topics/shop/subscriptions/all", SUBSCRIPTION | ROW, {*SUBSCRIPTION, "property_0"}),
        (
            "/keys",
            {"principal": "", "patterns": "no pattern!", "expires_in": "soon"},
            {"principal", "rights", "patterns", "expires_in"},
        ),
    ],
)
async def test_a_refused_form_shows_every_fault_at_once(
    console: ConsoleServer, path: str, fields: dict[str, str], faulty: set[str]
) -> None:
    await console.api.request_json("PUT", "/queues/orders", {})
    await console.api.request_json("PUT", "/topics/shop", {})
    await console.api.request_json("PUT", "/topics/shop/subscriptions/all", {})
    response = await console.post(path, path, **fields)
    assert response.status_code == 422
    assert set(re.findall(r'id="fault-(\w+)" role="alert"', response.text)) == faulty
