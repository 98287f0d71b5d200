"""Requests that are no action of SQS, or a malformed one: each is refused, or passed on to the API."""

import gzip
from typing import Any

import httpx
import pytest

from app.domain.access import Right
from tests.api.api_server import MAX_REQUEST_BYTES
from tests.sqs.sqs_server import SqsServer, code_of, open_sqs_server

URL = "/000000000000/orders"
JSON = "application/x-amz-json-1.0"
FORM = "application/x-www-form-urlencoded"
INVALID = "InvalidParameterValue"


async def post(sqs: SqsServer, content: bytes, action: str = "SendMessage", **headers: str) -> httpx.Response:
    """Send bytes as the body of an action in JSON."""
    named = {"x-amz-target": f"AmazonSQS.{action}", "content-type": JSON, **headers}
    return await sqs.http.post("/", content=content, headers=named)


def name_of(response: httpx.Response) -> str:
    """Return the name of a refusal in JSON."""
    assert response.status_code >= 400, response.text
    found: str = response.json()["__type"]
    return found.removeprefix("com.amazonaws.sqs#")


# ---- bodies in JSON --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (b"{", INVALID),
        (b"[]", INVALID),
        (b'"text"', INVALID),
        (b"\xff", INVALID),
        (b'{"QueueUrl":"/0/orders","MessageBody":"\\ud800"}', INVALID),
        (b'{"QueueUrl":"/0/orders","MessageBody":"x"}{}', INVALID),
        (b'{"QueueUrl":"/0/orders","MessageBody":"x","Priority":1}', INVALID),
        (b'{"QueueUrl":"/0/orders","messageBody":"x"}', INVALID),
        (b'{"QueueUrl":"/0/orders","MessageBody":null}', INVALID),
        (b'{"QueueUrl":"/0/orders","MessageBody":7}', INVALID),
        (b'{"QueueUrl":7,"MessageBody":"x"}', INVALID),
        (b'{"QueueUrl":"/0/orders","MessageBody":"x","DelaySeconds":"1"}', INVALID),
        (b'{"QueueUrl":"/0/orders","MessageBody":"x","DelaySeconds":1.5}', INVALID),
        (b'{"QueueUrl":"/0/orders","MessageBody":"x","DelaySeconds":-1}', INVALID),
        (b'{"QueueUrl":"/0/orders","MessageBody":"x","MessageAttributes":[]}', INVALID),
        (b'{"QueueUrl":"/0/orders","MessageBody":' + b"[" * 501 + b"]" * 501 + b"}", INVALID),
        (b"", "MissingParameter"),
        (b"{}", "MissingParameter"),
        (b'{"MessageBody":"x"}', "MissingParameter"),
    ],
    ids=lambda value: str(value)[:60],
)
async def test_a_malformed_body_is_refused(sqs: SqsServer, content: bytes, name: str) -> None:
    url = await sqs.create()
    assert name_of(await post(sqs, content)) == name
    assert await sqs.receive(url) == []


async def test_ten_thousand_entries_are_refused(sqs: SqsServer) -> None:
    url = await sqs.create()
    for action in ("SendMessageBatch", "DeleteMessageBatch", "ChangeMessageVisibilityBatch"):
        assert (await sqs.refusal(action, QueueUrl=url, Entries=[{}] * 10_000))[0] == INVALID
    many = [str(number) for number in range(10_000)]
    for action, members in (
        ("GetQueueAttributes", {"AttributeNames": many}),
        ("UntagQueue", {"TagKeys": many}),
        ("TagQueue", {"Tags": dict.fromkeys(many, "")}),
        ("SetQueueAttributes", {"Attributes": dict.fromkeys(many, "")}),
    ):
        assert (await sqs.refusal(action, QueueUrl=url, **members))[0] == INVALID, action


async def test_a_body_above_the_limit_is_refused(sqs: SqsServer) -> None:
    await sqs.create()
    response = await post(sqs, b"x" * (MAX_REQUEST_BYTES + 1))
    assert (response.status_code, name_of(response)) == (400, INVALID)
    assert str(MAX_REQUEST_BYTES) in response.json()["message"]


async def test_a_compressed_body_is_refused(sqs: SqsServer) -> None:
    url = await sqs.create()
    content = gzip.compress(b'{"QueueUrl":"/0/orders","MessageBody":"x"}')
    response = await post(sqs, content, **{"content-encoding": "gzip"})
    assert name_of(response) == INVALID
    assert "Content-Encoding" in response.json()["message"]
    assert await sqs.receive(url) == []


@pytest.mark.parametrize("header", ["if-match", "idempotency-key"])
async def test_a_condition_that_is_not_read_is_refused(sqs: SqsServer, header: str) -> None:
    url = await sqs.create()
    response = await post(sqs, b'{"QueueUrl":"/0/orders","MessageBody":"x"}', **{header: '"1"'})
    assert name_of(response) == INVALID
    assert await sqs.receive(url) == []


# ---- actions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("action", ["", "sendmessage", "SendMessage ", "AmazonSQS.SendMessage", "x" * 5000])
async def test_an_unknown_action_is_refused(sqs: SqsServer, action: str) -> None:
    name, sentence = await sqs.refusal(action)
    assert name == "UnknownOperationException"
    assert len(sentence) < 200


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ("Action=SendMessage&Version=2011-10-01", "MissingAction"),
        ("Action=SendMessage", "MissingAction"),
        ("Version=2012-11-05", "InvalidAction"),
        ("", "MissingAction"),
        ("Action=Fly&Version=2012-11-05", "InvalidAction"),
        ("Action=SendMessage&Version=2012-11-05&MessageBody=x&Priority=1", INVALID),
        ("Action=SendMessage&Version=2012-11-05&MessageBody=x&DelaySeconds=soon", INVALID),
        ("Action=SendMessage&Version=2012-11-05&MessageBody=x&MessageBody=y", INVALID),
        ("Action=SendMessage&Version=2012-11-05&MessageBody=%", INVALID),
        ("Action=SendMessage&Version=2012-11-05", "MissingParameter"),
    ],
)
async def test_a_malformed_form_is_refused(sqs: SqsServer, content: str, code: str) -> None:
    url = await sqs.create()
    assert code_of(await sqs.http.post(URL, content=content, headers={"content-type": FORM})) == code
    assert await sqs.receive(url) == []


# ---- which requests are SQS ------------------------------------------------------------------------------------------


async def is_of_api(response: httpx.Response, status: int, code: str) -> None:
    """Check that the API has answered."""
    assert (response.status_code, response.headers["content-type"]) == (status, "application/problem+json")
    assert response.json()["code"] == code


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"content-type": "application/json"},
        {"content-type": JSON},
        {"content-type": "text/plain"},
        {"content-type": JSON, "x-amz-target": "AmazonSNS.Publish"},
        {"content-type": JSON, "x-amz-target": "DynamoDB_20120810.GetItem"},
    ],
    ids=str,
)
async def test_a_post_that_names_no_action_is_answered_by_the_api(sqs: SqsServer, headers: dict[str, str]) -> None:
    await is_of_api(await sqs.http.post("/", content=b"{}", headers=headers), 405, "method-not-allowed")
    await is_of_api(await sqs.http.post(URL, content=b"{}", headers=headers), 404, "not-found")


@pytest.mark.parametrize("path", ["/v1/queues", "/000/orders", "/000000000000/a/b", "/x", "/000000000000/"])
async def test_an_action_at_another_path_is_answered_by_the_api(sqs: SqsServer, path: str) -> None:
    headers = {"content-type": JSON, "x-amz-target": "AmazonSQS.ListQueues"}
    response = await sqs.http.post(path, content=b"{}", headers=headers)
    assert response.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "PUT", "DELETE", "PATCH", "GET"])
async def test_other_methods_are_answered_by_the_api(sqs: SqsServer, method: str) -> None:
    headers = {"content-type": JSON, "x-amz-target": "AmazonSQS.ListQueues"}
    for path in ("/", URL):
        response = await sqs.http.request(method, path, headers=headers)
        assert "x-amzn-requestid" not in response.headers
        assert "access-control-allow-origin" not in response.headers


async def test_the_content_type_of_json_is_not_required(sqs: SqsServer) -> None:
    """The header with the action already tells the protocol."""
    response = await sqs.http.post("/", content=b"{}", headers={"x-amz-target": "AmazonSQS.ListQueues"})
    assert (response.status_code, response.json()) == (200, {})
    assert response.headers["content-type"] == JSON


async def test_the_account_of_a_path_has_no_effect(sqs: SqsServer) -> None:
    await sqs.create()
    for account in ("000000000000", "123456789012"):
        response = await sqs.form("SendMessage", {"MessageBody": "x"}, f"/{account}/orders")
        assert response.status_code == 200
    assert (await sqs.attributes(URL))["ApproximateNumberOfMessages"] == "2"


async def test_the_queue_url_precedes_the_path(sqs: SqsServer) -> None:
    await sqs.create()
    other = await sqs.create("other")
    response = await sqs.form("SendMessage", {"MessageBody": "x", "QueueUrl": other}, URL)
    assert response.status_code == 200
    assert len(await sqs.receive(other)) == 1


async def test_a_get_is_signed() -> None:
    query = {"Action": "ListQueues", "Version": "2012-11-05"}
    async with open_sqs_server(needs_keys=True) as server:
        await server.with_key(*Right)
        response = await server.http.get("/", params=query)
        assert (response.status_code, code_of(response)) == (403, "MissingAuthenticationToken")


@pytest.mark.parametrize(
    "url", ["x", "/", "http://[", "http://host", "/0/a b", "/0/-", "?", "x" * 5000], ids=lambda u: u[:9]
)
async def test_a_malformed_queue_url_is_refused(sqs: SqsServer, url: str) -> None:
    members: dict[str, Any] = {"QueueUrl": url, "MessageBody": "x"}
    assert (await sqs.refusal("SendMessage", **members))[0] in (INVALID, "QueueDoesNotExist")
    assert await sqs.call("ListQueues") == {}
