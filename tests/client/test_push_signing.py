"""The signatures of pushes are those of Standard Webhooks."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest
from peeklock_client.push.errors import InvalidPush
from peeklock_client.push.signing import secrets_of, signatures, webhook_id

from tests.client.push_network import START, ScriptedNetwork, always, push
from tests.client.virtual_broker import Broker

OLD, NEW = (f"whsec_{base64.b64encode(bytes([number]) * 32).decode()}" for number in (1, 2))
PUBLISHED = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def expected(secret: str, signed: bytes) -> str:
    """Compute a signature from the text of Standard Webhooks."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    return f"v1,{base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()}"


def test_the_published_example_has_its_published_signature() -> None:
    made = signatures(secrets_of(PUBLISHED), "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert made == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@pytest.mark.parametrize("text", [f"{NEW} {OLD}", f"{NEW},{OLD}", f" {NEW} , {OLD}\n"])
def test_two_secrets_make_two_signatures(text: str) -> None:
    made = signatures(secrets_of(text), "msg_1", 5, b"body")
    assert made.split(" ") == [expected(secret, b"msg_1.5.body") for secret in (NEW, OLD)]


@pytest.mark.parametrize("size", [24, 64])
def test_a_secret_has_24_to_64_bytes(size: int) -> None:
    assert secrets_of(f"whsec_{base64.b64encode(bytes(size)).decode()}") == (bytes(size),)


@pytest.mark.parametrize(
    "text",
    [
        "", " , ", "tiger", OLD.removeprefix("whsec_"), "whsec_", "whsec_?", f"{OLD}=", f"{OLD}{NEW}",
        f"whsec_{base64.b64encode(bytes(23)).decode()}", f"whsec_{base64.b64encode(bytes(65)).decode()}",
        f"{OLD} {NEW} {OLD}",
    ],
)  # fmt: skip
def test_what_is_no_secret_is_refused_and_not_shown(text: str) -> None:
    with pytest.raises(InvalidPush) as refused:
        secrets_of(text)
    assert text in ("", " , ", "whsec_") or text not in str(refused.value)


def test_ids_have_no_full_stop_and_differ_by_each_part() -> None:
    ids = {webhook_id("msg", *parts) for parts in [("a.b", 1, "c"), ("a", 1, "c"), ("a.b", 2, "c"), ("a.b", 1, "d")]}
    assert (len(ids), any("." in one for one in ids)) == (4, False)
    assert webhook_id("msg", "orders", 11, "2") != webhook_id("msg", "orders", 1, "12")


def test_each_request_is_signed_and_a_retry_has_the_id_of_the_first() -> None:
    secrets = (bytes(range(32)), bytes(range(1, 33)))
    first, second = (ScriptedNetwork(always(500)) for _ in range(2))
    for network in (first, second):
        push(Broker(1, fields={"body": {"order": 17}}), network, until=3, secrets=secrets)
    [request], [repeat] = first.requests, second.requests
    assert request.headers["webhook-id"] == repeat.headers["webhook-id"]
    assert int(request.headers["webhook-timestamp"]) == int(START.timestamp())
    signed = f"{request.headers['webhook-id']}.{request.headers['webhook-timestamp']}.".encode() + b'{"order":17}'
    words = [f"whsec_{base64.b64encode(secret).decode()}" for secret in secrets]
    assert request.headers["webhook-signature"].split(" ") == [expected(word, signed) for word in words]


@pytest.mark.parametrize("batch", [None, 1], ids=["single", "batch"])
def test_an_id_names_the_queue_the_number_and_the_id_of_the_message(batch: int | None) -> None:
    network = ScriptedNetwork(always(200))
    for queue, fields in (("orders", {}), ("letters", {}), ("orders", {"message_id": "other"})):
        push(Broker(2, fields=fields), network, until=1, queues=(queue,), batch=batch, concurrency=1)
    assert len({request.headers["webhook-id"] for request in network.requests}) == len(network.requests) == 6
