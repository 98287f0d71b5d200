"""The right that each method and path needs. The table is written by hand, and tests compare `app` with it."""

from __future__ import annotations

from typing import Any

from app.http.operation import Operation

PUBLIC = "needs no key"
ANY = "any"

OWN = (("GET", "/v1/queues"), ("GET", "/v1/topics"))
"""The lists that show a key what it has the right on."""

RIGHTS: dict[tuple[str, str], str] = {
    ("POST", "/v1/queues/{queue}/messages"): "send",
    ("POST", "/v1/queues/{queue}/messages/batch"): "send",
    ("POST", "/v1/queues/{queue}/messages/raw"): "send",
    ("POST", "/v1/queues/{queue}/messages/receive"): "listen",
    ("POST", "/v1/queues/{queue}/messages/receive/raw"): "listen",
    ("POST", "/v1/queues/{queue}/settle"): "listen",
    ("POST", "/v1/transactions/execute"): ANY,
    ("POST", "/v1/queues/{queue}/recover"): "listen",
    ("POST", "/v1/queues/{queue}/locks/{lock_token}/complete"): "listen",
    ("POST", "/v1/queues/{queue}/locks/{lock_token}/abandon"): "listen",
    ("POST", "/v1/queues/{queue}/locks/{lock_token}/renew"): "listen",
    ("POST", "/v1/queues/{queue}/locks/{lock_token}/dead-letter"): "listen",
    ("POST", "/v1/queues/{queue}/locks/{lock_token}/defer"): "listen",
    ("POST", "/v1/queues/{queue}/locks/{lock_token}/release"): "listen",
    ("POST", "/v1/queues/{queue}/locks/{lock_token}/commit"): "listen",
    ("GET", "/v1/states/{key}"): "listen",
    ("GET", "/v1/states/{key}/history"): "browse",
    ("DELETE", "/v1/states/{key}"): "manage",
    ("GET", "/v1/queues/{queue}/messages"): "browse",
    ("GET", "/v1/queues/{queue}/messages/{sequence_number}"): "browse",
    ("GET", "/v1/queues/{queue}/messages/{sequence_number}/body"): "browse",
    ("GET", "/v1/queues/{queue}/messages/{sequence_number}/explain"): "browse",
    ("GET", "/v1/queues/{queue}/messages/{sequence_number}/history"): "browse",
    ("PATCH", "/v1/queues/{queue}/messages/{sequence_number}"): "manage",
    ("DELETE", "/v1/queues/{queue}/messages/{sequence_number}"): "manage",
    ("POST", "/v1/queues/{queue}/dead-letter/redrive"): "manage",
    ("POST", "/v1/queues/{queue}/purge"): "manage",
    ("POST", "/v1/queues/{queue}/restore"): "manage",
    ("POST", "/v1/queues/{queue}/moves"): "manage",
    ("GET", "/v1/queues/{queue}/moves"): "browse",
    ("GET", "/v1/queues/{queue}/moves/{move_id}"): "browse",
    ("POST", "/v1/queues/{queue}/moves/{move_id}/cancel"): "manage",
    ("PUT", "/v1/queues/{queue}"): "manage",
    ("PATCH", "/v1/queues/{queue}"): "manage",
    ("DELETE", "/v1/queues/{queue}"): "manage",
    ("GET", "/v1/queues/{queue}"): "browse",
    ("GET", "/v1/queues/{queue}/explain"): "browse",
    ("PUT", "/v1/queues/{queue}/consumers/{consumer}"): "listen",
    ("DELETE", "/v1/queues/{queue}/consumers/{consumer}"): "listen",
    ("GET", "/v1/queues/{queue}/consumers"): "browse",
    ("GET", "/v1/queues"): "browse",
    ("POST", "/v1/topics/{topic}/messages"): "send",
    ("POST", "/v1/topics/{topic}/messages/batch"): "send",
    ("POST", "/v1/topics/{topic}/messages/raw"): "send",
    ("PUT", "/v1/topics/{topic}"): "manage",
    ("GET", "/v1/topics/{topic}"): "browse",
    ("PATCH", "/v1/topics/{topic}"): "manage",
    ("DELETE", "/v1/topics/{topic}"): "manage",
    ("GET", "/v1/topics"): "browse",
    ("PUT", "/v1/topics/{topic}/subscriptions/{subscription}"): "manage",
    ("GET", "/v1/topics/{topic}/subscriptions/{subscription}"): "browse",
    ("PATCH", "/v1/topics/{topic}/subscriptions/{subscription}"): "manage",
    ("DELETE", "/v1/topics/{topic}/subscriptions/{subscription}"): "manage",
    ("GET", "/v1/topics/{topic}/subscriptions"): "browse",
    ("POST", "/v1/topics/{topic}/subscriptions/{subscription}/test"): "browse",
    ("GET", "/v1/archive/batches"): "browse",
    ("POST", "/v1/archive/trim"): "manage",
    ("POST", "/v1/keys"): "manage",
    ("GET", "/v1/keys"): "manage",
    ("GET", "/v1/keys/{key_id}"): "manage",
    ("GET", "/v1/keys/{key_id}/sqs"): "manage",
    ("DELETE", "/v1/keys/{key_id}"): "manage",
    ("GET", "/v1/capabilities"): ANY,
    ("POST", "/v1/transactions"): ANY,
    ("GET", "/v1/transactions/{transaction_id}"): ANY,
    ("POST", "/v1/transactions/{transaction_id}/commit"): ANY,
    ("POST", "/v1/transactions/{transaction_id}/rollback"): ANY,
    ("GET", "/"): PUBLIC,
    ("GET", "/livez"): PUBLIC,
    ("GET", "/readyz"): PUBLIC,
    ("GET", "/metrics"): PUBLIC,
    ("GET", "/openapi.json"): PUBLIC,
    ("GET", "/docs"): PUBLIC,
    ("GET", "/docs/"): PUBLIC,
    ("GET", "/docs/code-samples.json"): PUBLIC,
    ("GET", "/docs/docs.css"): PUBLIC,
    ("GET", "/docs/docs.js"): PUBLIC,
    ("GET", "/docs/swagger-ui-bundle.js"): PUBLIC,
    ("GET", "/docs/swagger-ui.css"): PUBLIC,
    ("GET", "/docs/favicon-32x32.png"): PUBLIC,
}
"""The right for each method and path. For a path without `{queue}` or `{topic}`, it is the right on all queues."""

PAGES = ("/openapi.json", "/docs")
"""The paths, and beginnings of paths, that the document does not describe."""

GUARDED = {route: right for route, right in RIGHTS.items() if right not in (PUBLIC, ANY)}
PATH_VALUES = {
    "queue": "orders",
    "key": "orders",
    "topic": "orders",
    "subscription": "s",
    "consumer": "x",
    "sequence_number": "1",
    "lock_token": f"1.{'0' * 32}",
    "key_id": "x",
    "transaction_id": "x",
    "move_id": "x",
}

BODIES: dict[str, Any] = {
    "settle_messages": {"settlements": [{"action": "complete", "lock_token": f"1.{'0' * 32}"}]},
    "send_message": {"body": 1},
    "send_batch": {"messages": [{}]},
    "recover_messages": {"receiver_id": "worker"},
    "report_consumer": {"state": "receiving"},
}
"""The body of each operation that needs one."""


def path_of(operation: Operation) -> str:
    """Return the path of an operation for the queue `orders`."""
    return operation.path.format(**PATH_VALUES)


def headers_of(operation: Operation) -> dict[str, str]:
    """Return the headers that an operation requires on a server without keys."""
    return {"Peeklock-Local-Admin": "true"} if operation.name in ("create_key", "revoke_key") else {}
