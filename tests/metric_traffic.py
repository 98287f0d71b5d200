"""The traffic that brings about every metric, and what `/metrics` answers after it."""

from __future__ import annotations

import re
import time

import httpx
from prometheus_client.parser import text_string_to_metric_families

PATIENCE_SECONDS = 60.0

ORDERS = "/v1/queues/orders"
EVENTS = (
    "locks_expired", "locks_taken", "messages_awoken", "messages_expired", "messages_purged", "messages_redriven",
    "messages_restored", "messages_unmatched",
)  # fmt: skip
"""Those that the traffic below brings about."""


def bring_traffic(client: httpx.Client) -> None:
    """Make every kind of event that comes within seconds."""
    client.put(ORDERS, json={})
    for message in ({"delay_seconds": 0.1}, {"available_at": "2100-01-01T00:00:00Z"}, {"ttl_seconds": 0.1}):
        client.post(f"{ORDERS}/messages", json=message)
    client.post(
        f"{ORDERS}/purge", json={"states": ["scheduled"], "filter": "message.available_at.getFullYear() == 2100"}
    )
    client.post(f"{ORDERS}/restore")
    client.post("/v1/queues/bad/messages", json={})
    token = receive(client, "/v1/queues/bad")
    client.post(f"/v1/queues/bad/locks/{token}/dead-letter")
    client.post("/v1/queues/bad/dead-letter/redrive")
    receive(client, "/v1/queues/bad")
    client.patch("/v1/queues/bad", json={"max_delivery_count": 7})
    client.put("/v1/topics/news", json={})
    client.post("/v1/topics/news/messages", json={})
    client.post("/v1/queues/slow/messages", json={})
    receive(client, "/v1/queues/slow", lock_seconds=1)
    client.post("/v1/queues/none/messages/receive", json={})


def receive(client: httpx.Client, queue: str, **wishes: object) -> str:
    """The token of the message that a queue has."""
    (message,) = client.post(f"{queue}/messages/receive", json=wishes).json()["messages"]
    return str(message["lock_token"])


def figures_with_all_events(client: httpx.Client) -> str:
    """What `/metrics` answers once every one of `EVENTS` has been counted."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        text = client.get("/metrics").text
        missing = set(EVENTS) - label_values(text, "peeklock_events_total", "event")
        if not missing:
            return text
        assert time.monotonic() < deadline, missing
        time.sleep(0.2)


def families(text: str) -> dict[str, tuple[str, set[str]]]:
    """Each metric with its type and labels, without when its series began."""
    found: dict[str, tuple[str, set[str]]] = {}
    for family in text_string_to_metric_families(text):
        if not family.name.endswith("_created"):
            name = f"{family.name}_total" if family.type == "counter" else family.name
            found[name] = (family.type, {label for sample in family.samples for label in sample.labels} - {"le"})
    return found


def label_values(text: str, metric: str, label: str) -> set[str]:
    """The values that a label of a metric has."""
    return set(re.findall(rf'^{metric}\w*{{[^}}]*?\b{label}="([^"]*)"', text, re.MULTILINE))
