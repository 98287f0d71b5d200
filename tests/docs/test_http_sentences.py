"""What the pages of docs/http say outside of its examples and tables, sentence by sentence, against a real server."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests.databases import RunResources
from tests.peeklock_process import PeeklockProcess, services

JSON = {"Content-Type": "application/json"}
AS_ADMIN = {"Peeklock-Local-Admin": "true"}


@pytest.fixture(scope="module")
def service(run_resources: RunResources, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PeeklockProcess]:
    """A server without keys, for tests that use a queue of their own."""
    with services(run_resources.with_tables(tmp_path_factory.mktemp("sentences"))) as start:
        yield start(max_queues=100)


@pytest.fixture(scope="module")
def client(service: PeeklockProcess) -> Iterator[httpx.Client]:
    """A client of that server."""
    with httpx.Client(base_url=service.url, timeout=60) as client:
        yield client


@pytest.fixture
def queue(client: httpx.Client, request: pytest.FixtureRequest) -> str:
    """A queue of this test alone."""
    path = f"/v1/queues/{request.node.name[:128]}"
    assert client.put(path, json={}).status_code == 201
    return path


def test_requests_and_answers(client: httpx.Client, queue: str) -> None:
    head = client.head(queue)
    assert (head.status_code, head.content) == (200, b"")
    assert int(head.headers["content-length"]) > 0
    twice = client.put(queue, content='{"description": "one", "description": "two"}', headers=JSON)
    assert twice.json()["description"] == "two"
    repeated = '{"body": {"a": 1, "a":  2}}'
    client.post(f"{queue}/messages", content=repeated, headers=JSON)
    assert '"body":{"a": 1, "a":  2}' in client.get(f"{queue}/messages").text
    assert code(client.post(f"{queue}/messages", content='{"priority": 6.0}', headers=JSON)) == "invalid-request"
    packed = client.post(f"{queue}/messages", content=b"x", headers={**JSON, "Content-Encoding": "gzip"})
    assert code(packed) == "unsupported-content-encoding"


def test_times_and_names(client: httpx.Client, queue: str) -> None:
    send(client, queue, available_at="2100-01-01T02:00:00+02:00")
    assert client.get(f"{queue}/messages").json()["items"][0]["available_at"] == "2100-01-01T00:00:00.000000Z"
    assert code(client.put("/v1/queues/-a", json={})) == "invalid-request"
    assert [client.put(f"/v1/queues/{name}", json={}).status_code for name in ("Upper", "upper")] == [201, 201]


def test_if_match_takes_several_tags_and_any(client: httpx.Client, queue: str) -> None:
    tag = client.get(queue).headers["etag"]
    for given, status in ((f'"0-0", {tag}', 200), ("*", 200), ('"0-0"', 412)):
        assert client.patch(queue, json={}, headers={"If-Match": given}).status_code == status
    assert client.put(queue, json={}, headers={"If-None-Match": "*"}).status_code == 412


def test_an_idempotency_key_is_not_accepted_everywhere(client: httpx.Client, queue: str) -> None:
    for path, body in (
        ("messages/batch", {"atomic": False, "messages": [{}]}),
        ("messages", {"durability": "volatile"}),
        ("messages/receive", {"filter": "true"}),
        ("messages/receive", {"sequence_numbers": [1]}),
        ("messages/receive", {"mode": "receive_and_delete"}),
    ):
        answer = client.post(f"{queue}/{path}", json=body, headers={"Idempotency-Key": "a"})
        assert answer.json()["errors"][0]["pointer"] == "#/header/Idempotency-Key"


def test_a_receive_waits_no_longer_than_the_setting(serve: Callable[..., PeeklockProcess]) -> None:
    with httpx.Client(base_url=serve(long_poll_cap_seconds=0.5).url, timeout=20) as client:
        client.put("/v1/queues/orders", json={})
        assert client.post("/v1/queues/orders/messages/receive", json={"wait_seconds": 30}).json() == {"messages": []}


def test_a_request_id_is_made_and_a_traceparent_handed_on(client: httpx.Client, queue: str) -> None:
    missing = client.get("/v1/queues/missing", headers={"X-Request-Id": "not visible"})
    assert missing.headers["x-request-id"] == missing.json()["tracking_id"] != "not visible"
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    client.post(f"{queue}/messages", json={}, headers={"traceparent": trace})
    assert receive(client, queue)["traceparent"] == trace


def test_the_open_server_refuses_what_a_web_page_sends(client: httpx.Client, queue: str) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    for headers, status in (
        ({**JSON, "Host": "example.com"}, 403),
        ({**JSON, "Origin": "https://example.com"}, 403),
        ({**form, "Origin": str(client.base_url)}, 403),
        ({"Content-Type": "application/xml"}, 403),
        (form, 201),
        ({**JSON, "Origin": str(client.base_url)}, 201),
    ):
        assert client.post(f"{queue}/messages", content="{}", headers=headers).status_code == status, headers


def test_keys_close_the_server_and_hold_rights(serve: Callable[..., PeeklockProcess]) -> None:
    with httpx.Client(base_url=serve().url, timeout=60) as client:
        first = client.post("/v1/keys", json=key("admin", "manage", "send"), headers=AS_ADMIN).json()
        admin = {"Authorization": f"Bearer {first['secret']}"}
        second = client.post("/v1/keys", json=key("admin", "send", patterns=["orders.?"]), headers=admin).json()
        sender = {"Authorization": f"Bearer {second['secret']}"}
        assert code(client.post("/v1/keys", json=key("admin", "send"), headers=admin)) == "too-many-keys"
        statuses = [
            client.post(f"/v1/queues/{name}/messages", json={}, headers=sender).status_code
            for name in ("orders.1", "orders.12")
        ]
        assert statuses == [201, 403]
        assert client.get("/v1/queues", headers=sender).status_code == 403
        for made in (second, first):
            assert client.delete(f"/v1/keys/{made['id']}", headers=admin).status_code == 204
        assert client.get("/v1/queues").status_code == 401


def test_settings_refuse_what_they_say(client: httpx.Client, queue: str) -> None:
    send(client, queue)
    token = receive(client, queue)["lock_token"]
    client.patch(queue, json={"status": "send_disabled"})
    assert code(client.post(f"{queue}/messages", json={})) == "send-disabled"
    lost = settle(client, queue, token, "complete")
    assert (lost.status_code, lost.json()["cause"]) == (410, "entity_changed")
    message = receive(client, queue)
    assert (message["failure_count"], message["delivery_count"], message["redelivered"]) == (0, 2, True)
    client.put(queue, json={"status": "receive_disabled", "max_messages": 2, "max_message_bytes": 10})
    assert code(client.post(f"{queue}/messages/receive", json={})) == "receive-disabled"
    assert code(client.post(f"{queue}/messages", json={"body": "too large"})) == "message-too-large"
    send(client, queue)
    assert code(client.post(f"{queue}/messages", json={})) == "queue-full"


def test_settling_stays_allowed_where_receives_are_refused(client: httpx.Client, queue: str) -> None:
    client.patch(queue, json={"status": "receive_disabled"})
    assert settle(client, queue, "1.00000000000000000000000000000000", "complete").status_code == 404


def test_a_message_that_outlives_its_time_is_dead_lettered_where_the_queue_says_so(
    client: httpx.Client, queue: str
) -> None:
    client.patch(queue, json={"dead_letter_on_expiry": True, "default_ttl_seconds": 3600})
    send(client, queue, ttl_seconds=0.001)
    until(lambda: dead(client, queue))
    assert dead(client, queue)[0]["dead_letter_reason"] == "ttl_expired"


def test_a_message_is_dead_lettered_at_the_limit_and_its_failures_have_reasons(
    client: httpx.Client, queue: str
) -> None:
    client.patch(queue, json={"max_delivery_count": 2})
    send(client, queue, properties={"kept": 1, "changed": 2})
    first = receive(client, queue)["lock_token"]
    settle(client, queue, first, "abandon", reason="closed", properties={"changed": None, "added": 3})
    again = receive(client, queue)
    assert (again["last_failure"], again["failure_count"]) == ("closed", 1)
    assert again["properties"] == {"kept": 1, "changed": None, "added": 3}
    settle(client, queue, again["lock_token"], "abandon", count=False)
    assert settle(client, queue, receive(client, queue)["lock_token"], "abandon").json()["state"] == "dead_lettered"
    (message,) = dead(client, queue)
    assert message["dead_letter_reason"] == "max_delivery_count_exceeded"


def test_a_failure_waits_for_the_retry_delay(client: httpx.Client, queue: str) -> None:
    client.patch(queue, json={"retry": {"kind": "fixed", "delay_seconds": 60}})
    send(client, queue)
    assert settle(client, queue, receive(client, queue)["lock_token"], "abandon").json()["state"] == "scheduled"


def test_a_duplicate_is_recognised_after_the_first_has_ended(client: httpx.Client, queue: str) -> None:
    client.patch(queue, json={"duplicate_detection_window_seconds": 60})
    first = send(client, queue, message_id="one")
    settle(client, queue, receive(client, queue)["lock_token"], "complete")
    again = send(client, queue, message_id="one")
    assert (again["duplicate"], again["sequence_number"]) == (True, first["sequence_number"])


def test_a_batch_stores_all_or_none(client: httpx.Client, queue: str) -> None:
    assert client.post(f"{queue}/messages/batch", json={"messages": [{}, {"priority": 10}]}).status_code == 422
    assert client.get(f"{queue}/messages").json()["items"] == []


def test_a_raw_send_reads_headers_and_refuses_what_is_not_json(client: httpx.Client, queue: str) -> None:
    headers = {"Content-Type": "text/plain", "Peeklock-Subject": "placed", "Peeklock-Property-Region": "eu"}
    client.post(f"{queue}/messages/raw", content=b"\xff\x00", headers=headers)
    message = receive(client, queue)
    assert (message["subject"], message["properties"], message["body_base64"]) == ("placed", {"region": "eu"}, "/wA=")
    assert code(client.post(f"{queue}/messages/raw", content=b"{", headers=JSON)) == "invalid-request"
    events = {"Content-Type": "application/cloudevents-batch+json"}
    assert code(client.post(f"{queue}/messages/raw", content=b"[]", headers=events)) == "invalid-request"


def test_a_message_of_the_dead_letters_returns_there(client: httpx.Client, queue: str) -> None:
    send(client, queue)
    settle(client, queue, receive(client, queue)["lock_token"], "dead-letter", reason="bad")
    token = receive(client, queue, source="dead_letter")["lock_token"]
    assert settle(client, queue, token, "abandon").json()["state"] == "dead_lettered"
    token = receive(client, queue, source="dead_letter")["lock_token"]
    assert settle(client, queue, token, "complete").status_code == 200
    assert client.get(f"{queue}/messages").json()["items"] == []


def test_a_refused_receive_settles_nothing(client: httpx.Client, queue: str) -> None:
    send(client, queue)
    token = receive(client, queue)["lock_token"]
    wish = {"max_messages": 0, "settlements": [{"action": "complete", "lock_token": token}]}
    assert client.post(f"{queue}/messages/receive", json=wish).status_code == 422
    assert settle(client, queue, token, "complete").json()["replayed"] is False


def test_a_lock_that_ended_counts_as_a_failure(client: httpx.Client, queue: str) -> None:
    send(client, queue)
    token = receive(client, queue, lock_seconds=1)["lock_token"]
    message = receive(client, queue, wait_seconds=20)
    assert (message["failure_count"], message["last_failure"]) == (1, "lock_expired")
    lost = settle(client, queue, token, "complete").json()
    assert (lost["code"], lost["delivered_again"]) == ("lock-lost", True)
    assert code(settle(client, queue, token, "renew")) == "lock-lost"


def test_a_shorter_renewal_does_not_give_the_message_to_others_sooner(client: httpx.Client, queue: str) -> None:
    send(client, queue)
    token = receive(client, queue, lock_seconds=600)["lock_token"]
    assert settle(client, queue, token, "renew", lock_seconds=1).json()["lock_remaining_ms"] <= 1000
    assert client.post(f"{queue}/messages/receive", json={"wait_seconds": 2.5}).json() == {"messages": []}
    assert settle(client, queue, token, "complete").json()["replayed"] is False


def test_a_body_has_its_content_type(client: httpx.Client, queue: str) -> None:
    number = send(client, queue, body_base64="AAE=")["sequence_number"]
    body = client.get(f"{queue}/messages/{number}/body")
    assert (body.content, body.headers["content-type"]) == (b"\x00\x01", "application/octet-stream")
    assert client.patch(f"{queue}/messages/{number}", json={}, headers={"If-Match": '"0"'}).status_code == 412


def test_a_redrive_to_another_queue_takes_what_fits(client: httpx.Client, queue: str) -> None:
    for body in ("x" * 100, ""):
        send(client, queue, body=body)
        settle(client, queue, receive(client, queue)["lock_token"], "dead-letter")
    client.put("/v1/queues/small", json={"max_message_bytes": 50})
    assert client.post(f"{queue}/dead-letter/redrive", json={"to_queue": "small"}).json() == {"moved": 1}
    assert len(dead(client, queue)) == 1


def test_a_message_that_returns_with_a_delay_takes_its_place_by_its_due_time(client: httpx.Client, queue: str) -> None:
    for name in ("first", "second"):
        send(client, queue, message_id=name)
    settle(client, queue, receive(client, queue)["lock_token"], "abandon", delay_seconds=0.1)
    until(lambda: client.get(queue).json()["counts"]["available"] == 2)
    assert [receive(client, queue)["message_id"] for _ in range(2)] == ["second", "first"]


def test_a_second_delete_is_answered_404(client: httpx.Client, queue: str) -> None:
    number = send(client, queue)["sequence_number"]
    for path in (f"{queue}/messages/{number}", queue):
        assert [client.delete(path).status_code for _ in range(2)] == [204, 404]


def test_a_queue_that_was_made_again_is_not_deleted_by_a_repeat(client: httpx.Client, queue: str) -> None:
    tag = {"If-Match": client.get(queue).headers["etag"]}
    assert client.delete(queue, headers=tag).status_code == 204
    assert client.delete(queue, headers=tag).status_code == 404
    client.put(queue, json={})
    assert client.delete(queue, headers=tag).status_code == 412


def test_what_a_broken_receive_took_returns_and_counts_no_failure(
    service: PeeklockProcess, client: httpx.Client, queue: str
) -> None:
    with asking(service, f"{queue}/messages/receive", b'{"wait_seconds": 30}', 20):
        until(lambda: waits(client))
    send(client, queue)
    assert receive(client, queue, wait_seconds=20)["failure_count"] == 0


def test_a_send_that_did_not_arrive_whole_has_no_effect(
    service: PeeklockProcess, client: httpx.Client, queue: str
) -> None:
    with asking(service, f"{queue}/messages", b'{"body": 1}', 12):
        time.sleep(0.1)
    assert client.get(f"{queue}/messages").json()["items"] == []


def test_a_stopping_server_answers_a_waiting_receive(serve: Callable[..., PeeklockProcess]) -> None:
    service = serve()
    answers: list[httpx.Response] = []
    with httpx.Client(base_url=service.url, timeout=60) as client:
        client.put("/v1/queues/orders", json={})

        def wait() -> None:
            answers.append(client.post("/v1/queues/orders/messages/receive", json={"wait_seconds": 30}))

        waiting = threading.Thread(target=wait)
        waiting.start()
        until(lambda: waits(client))
        service.terminate()
        waiting.join()
    (answer,) = answers
    assert (answer.status_code, answer.json(), answer.headers["connection"]) == (200, {"messages": []}, "close")
    assert service.wait() == 0


def test_volatile_messages_are_stored_before_a_server_ends(serve: Callable[..., PeeklockProcess]) -> None:
    service = serve()
    with httpx.Client(base_url=service.url, timeout=60) as client:
        for _ in range(50):
            client.post("/v1/queues/orders/messages", json={"durability": "volatile"})
    service.terminate()
    assert service.wait() == 0
    with httpx.Client(base_url=serve().url, timeout=60) as client:
        assert client.get("/v1/queues/orders").json()["counts"]["available"] == 50


def send(client: httpx.Client, queue: str, **message: object) -> dict[str, Any]:
    """The receipt of a message."""
    answer = client.post(f"{queue}/messages", json=message)
    assert answer.status_code == 201, answer.text
    return answer.json()


def receive(client: httpx.Client, queue: str, **wish: object) -> dict[str, Any]:
    """The one message that a receive gets."""
    (message,) = client.post(f"{queue}/messages/receive", json=wish).json()["messages"]
    return message


def settle(client: httpx.Client, queue: str, token: str, verb: str, **body: object) -> httpx.Response:
    """The answer to one settlement or renewal."""
    return client.post(f"{queue}/locks/{token}/{verb}", json=body)


def dead(client: httpx.Client, queue: str) -> list[dict[str, Any]]:
    """The dead-lettered messages of a queue."""
    return client.get(f"{queue}/messages", params={"state": "dead_lettered"}).json()["items"]


def code(answer: httpx.Response) -> str:
    """The code of a problem."""
    return answer.json()["code"]


def key(principal: str, *rights: str, patterns: list[str] | None = None) -> dict[str, object]:
    """The body that asks for a key."""
    return {"principal": principal, "rights": rights, "patterns": patterns or ["*"]}


def waits(client: httpx.Client) -> bool:
    """Whether a receiver waits on this server."""
    return "peeklock_waiting_receivers 1.0" in client.get("/metrics").text


def until(holds: Callable[[], object]) -> None:
    """Return once this holds."""
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@contextmanager
def asking(service: PeeklockProcess, path: str, body: bytes, length: int) -> Generator[None]:
    """A request whose head promises `length` bytes of body and that sends those given; it breaks off at the end."""
    where = urlsplit(service.url)
    head = f"POST {path} HTTP/1.1\r\nHost: {where.netloc}\r\nContent-Length: {length}\r\n\r\n"
    with socket.create_connection((where.hostname, where.port)) as connection:
        connection.sendall(head.encode() + body)
        yield
