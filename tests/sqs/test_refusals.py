"""What clients are told of refusals: the exception in both protocols, and the class of it in botocore."""

import asyncio
from base64 import urlsafe_b64encode
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import botocore
import botocore.session
import httpx
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from botocore.parsers import create_parser

from app.domain.access import Right
from app.domain.move_task import MoveEnded, MoveNotFound, MoveRunning
from app.domain.refusals import (
    AlreadySettled,
    BackendUnavailable,
    Forbidden,
    LockLost,
    MessageNotFound,
    MissingField,
    QueueFull,
    QueueIsTarget,
    QueueNotFound,
    RateLimited,
    ReceiveDisabled,
    Refusal,
    SendDisabled,
    StoreUnavailable,
    TooManyQueues,
    Unauthenticated,
)
from app.sqs import errors
from app.testing.server import EmbeddedServer, serve
from tests.brokers import ChangedStore
from tests.sqs.signing import SignedBy
from tests.sqs.sqs_server import SqsServer, arn, code_of, open_sqs_server

URL = "/000000000000/orders"
SERVICE = botocore.session.get_session().get_service_model("sqs")
OF_SERVICE = "AWS.SimpleQueueService."

Members: TypeAlias = dict[str, Any]
Api: TypeAlias = Callable[..., Awaitable[Any]]
"""Sends a request to the API: its method, its path below /v1, and its body."""
Prepare: TypeAlias = Callable[[Api], Awaitable[Members]]
"""Makes the state in which an action is refused. Returns more members of its request."""


class Case(NamedTuple):
    """An action that is refused, the name of the refusal in JSON, and its code in the query protocol."""

    action: str
    members: Members
    name: str
    code: str = ""
    prepare: Prepare | None = None
    status: int = 400


def queue(**settings: Any) -> Prepare:
    """Make queue `orders` with these settings."""

    async def prepare(api: Api) -> Members:
        await api("PUT", "/queues/orders", settings)
        return {"QueueUrl": URL}

    return prepare


async def full_queue(api: Api) -> Members:
    """Make a queue that has no room."""
    await api("PUT", "/queues/orders", {"max_messages": 1})
    await api("POST", "/queues/orders/messages", {"body": 1})
    return {"QueueUrl": URL}


async def received(api: Api) -> Members:
    """Return the receipt handle of a message in flight."""
    await api("PUT", "/queues/orders", {})
    await api("POST", "/queues/orders/messages", {"body": 1})
    (message,) = (await api("POST", "/queues/orders/messages/receive", {}))["messages"]
    return {"QueueUrl": URL, "ReceiptHandle": message["lock_token"]}


async def lost(api: Api) -> Members:
    """Return a receipt handle whose message an administrator has purged."""
    members = await received(api)
    await api("POST", "/queues/orders/purge", {"states": ["locked"]})
    return members


async def settled(api: Api) -> Members:
    """Return a receipt handle whose message was dead-lettered."""
    members = await received(api)
    await api("POST", f"/queues/orders/locks/{members['ReceiptHandle']}/dead-letter", {"reason": "bad"})
    return members


async def target_of_subscription(api: Api) -> Members:
    """Make a queue to which a subscription sends."""
    await api("PUT", "/queues/orders", {})
    await api("PUT", "/topics/events", {})
    await api("PUT", "/topics/events/subscriptions/all", {"target_queue": "orders"})
    return {"QueueUrl": URL}


async def running_move(api: Api) -> Members:
    """Start a move that ends in an hour."""
    await api("PUT", "/queues/failures", {})
    await api("PUT", "/queues/orders", {"forward_dead_letters_to": "failures"})
    for number in range(9):
        await api("POST", "/queues/failures/messages", {"body": number})
    await api("POST", "/queues/failures/moves", {"to_queue": "orders", "rate_per_second": 0.002})
    return {}


def batch(*ids: str, body: str = "x") -> Members:
    """A batch of messages with these ids."""
    return {"Entries": [{"Id": entry_id, "MessageBody": body} for entry_id in ids]}


SEND: Members = {"MessageBody": "hello"}
UNSUPPORTED = "UnsupportedOperation"
INVALID_HANDLE = "ReceiptHandleIsInvalid"
NOT_FOUND = "ResourceNotFoundException"

CASES: Mapping[type[Exception], Case] = {
    QueueNotFound: Case("GetQueueUrl", {"QueueName": "orders"}, "QueueDoesNotExist", OF_SERVICE + "NonExistentQueue"),
    errors.QueueNameExists: Case(
        "CreateQueue",
        {"QueueName": "orders", "Attributes": {"VisibilityTimeout": "77"}},
        "QueueNameExists",
        "QueueAlreadyExists",
        lambda api: _without_url(queue()(api)),
    ),
    LockLost: Case("DeleteMessage", {}, INVALID_HANDLE, prepare=lost),
    AlreadySettled: Case("DeleteMessage", {}, INVALID_HANDLE, prepare=settled),
    MessageNotFound: Case("DeleteMessage", {"ReceiptHandle": "x"}, INVALID_HANDLE, prepare=queue()),
    errors.ReceiptHandleIsInvalid: Case(
        "ChangeMessageVisibility", {"VisibilityTimeout": 5}, INVALID_HANDLE, prepare=lost
    ),
    errors.EmptyBatchRequest: Case(
        "SendMessageBatch", batch(), "EmptyBatchRequest", OF_SERVICE + "EmptyBatchRequest", queue()
    ),
    errors.TooManyEntriesInBatchRequest: Case(
        "SendMessageBatch",
        batch(*map(str, range(11))),
        "TooManyEntriesInBatchRequest",
        OF_SERVICE + "TooManyEntriesInBatchRequest",
        queue(),
    ),
    errors.BatchEntryIdsNotDistinct: Case(
        "SendMessageBatch",
        batch("a", "a"),
        "BatchEntryIdsNotDistinct",
        OF_SERVICE + "BatchEntryIdsNotDistinct",
        queue(),
    ),
    errors.InvalidBatchEntryId: Case(
        "SendMessageBatch", batch("a.b"), "InvalidBatchEntryId", OF_SERVICE + "InvalidBatchEntryId", queue()
    ),
    errors.BatchRequestTooLong: Case(
        "SendMessageBatch",
        batch("a", "b", body="x" * 600_000),
        "BatchRequestTooLong",
        OF_SERVICE + "BatchRequestTooLong",
        queue(),
    ),
    MissingField: Case("SendMessage", {}, "MissingParameter", prepare=queue()),
    errors.MissingParameter: Case("SendMessage", SEND, "MissingParameter"),
    errors.InvalidAttributeName: Case(
        "SetQueueAttributes", {"Attributes": {"Colour": "1"}}, "InvalidAttributeName", prepare=queue()
    ),
    errors.InvalidAttributeValue: Case(
        "SetQueueAttributes", {"Attributes": {"DelaySeconds": "901"}}, "InvalidAttributeValue", prepare=queue()
    ),
    errors.InvalidMessageContents: Case(
        "SendMessage", {"MessageBody": "\x00"}, "InvalidMessageContents", prepare=queue()
    ),
    MoveNotFound: Case(
        "CancelMessageMoveTask",
        {"TaskHandle": urlsafe_b64encode(b"orders/0123").decode()},
        NOT_FOUND,
        prepare=lambda api: _without_url(queue()(api)),
    ),
    errors.ResourceNotFound: Case("ListMessageMoveTasks", {"SourceArn": arn("absent")}, NOT_FOUND),
    SendDisabled: Case("SendMessage", SEND, UNSUPPORTED, OF_SERVICE + UNSUPPORTED, queue(status="send_disabled")),
    QueueIsTarget: Case("DeleteQueue", {}, UNSUPPORTED, OF_SERVICE + UNSUPPORTED, target_of_subscription),
    MoveRunning: Case(
        "StartMessageMoveTask", {"SourceArn": arn("failures")}, UNSUPPORTED, OF_SERVICE + UNSUPPORTED, running_move
    ),
    errors.UnsupportedOperation: Case("AddPermission", {}, UNSUPPORTED, OF_SERVICE + UNSUPPORTED, queue()),
    QueueFull: Case("SendMessage", SEND, "RequestThrottled", prepare=full_queue, status=403),
    ReceiveDisabled: Case(
        "ReceiveMessage", {}, "RequestThrottled", prepare=queue(status="receive_disabled"), status=403
    ),
    Refusal: Case("ListQueues", {"MaxResults": 0}, "InvalidParameterValue"),
    errors.UnknownAction: Case("Fly", {}, "UnknownOperationException", "InvalidAction"),
}

OF_STORE: Mapping[type[Exception], tuple[Exception, str, int]] = {
    RateLimited: (RateLimited(), "RequestThrottled", 403),
    TooManyQueues: (TooManyQueues(), "OverLimit", 403),
    BackendUnavailable: (StoreUnavailable(), "ServiceUnavailable", 503),
}
"""Refusals that a store or a limit of the server causes, as a list of queues meets them."""

OF_SIGNATURES = {
    errors.MissingAuthenticationToken,
    errors.IncompleteSignature,
    errors.InvalidClientTokenId,
    errors.SignatureDoesNotMatch,
    Forbidden,
}

ELSEWHERE = {
    errors.MissingAction,  # only in the query protocol: tests/sqs/test_malformed_requests.py
    MoveEnded,  # needs a background pass: tests/sqs/test_move_tasks.py
    Unauthenticated,  # the base of those of signatures
}


async def _without_url(preparing: Awaitable[Members]) -> Members:
    await preparing
    return {}


def parameters(members: Mapping[str, Any]) -> dict[str, str]:
    """Return members as the query protocol names them."""
    flat: dict[str, str] = {}
    for name, value in members.items():
        match value:
            case {**pairs}:
                for number, (key, text) in enumerate(pairs.items(), 1):
                    flat |= {f"Attribute.{number}.Name": key, f"Attribute.{number}.Value": text}
            case [*entries]:
                for number, entry in enumerate(entries, 1):
                    prefix = f"SendMessageBatchRequestEntry.{number}."
                    flat |= {prefix + key: text for key, text in entry.items()}
            case _:
                flat[name] = str(value)
    return flat


def code_in_botocore(response: httpx.Response) -> str:
    """Return the code that botocore's own reader of JSON answers finds in a refusal, for its exceptions."""
    answer = {"status_code": response.status_code, "headers": response.headers, "body": response.content}
    shape = SERVICE.operation_model("ListQueues").output_shape
    error: Mapping[str, str] = create_parser("json").parse(answer, shape)["Error"]
    assert error["Message"] == response.json()["message"]
    return error["Code"]


def test_every_refusal_has_a_case() -> None:
    """A refusal that is added to the table needs one here, or a test of its own."""
    assert set(errors.ERRORS) == {*CASES, *OF_STORE, *OF_SIGNATURES, *ELSEWHERE}
    for refusal, case in CASES.items():
        assert errors.ERRORS[refusal] == (case.name, case.code or case.name, case.status)


@pytest.mark.parametrize("case", CASES.values(), ids=[refusal.__name__ for refusal in CASES])
async def test_both_protocols_name_the_refusal(sqs: SqsServer, case: Case) -> None:
    members = {**case.members, **(await case.prepare(sqs.api.request_json) if case.prepare else {})}
    in_json = await sqs.request(case.action, **members)
    assert in_json.json()["__type"] == f"com.amazonaws.sqs#{case.name}"
    assert in_json.headers["x-amzn-query-error"] == f"{case.code or case.name};Sender"
    assert code_in_botocore(in_json) == (case.code or case.name)
    in_query = await sqs.form(case.action, parameters(members))
    assert code_of(in_query) == (case.code or case.name)
    assert f"<Message>{in_json.json()['message']}</Message>".replace("&", "&amp;")[:60] in in_query.text
    for answer in (in_json, in_query):
        assert answer.status_code == case.status
        assert answer.headers["x-amzn-requestid"]


@pytest.mark.parametrize(("error", "name", "status"), OF_STORE.values(), ids=[one.__name__ for one in OF_STORE])
async def test_both_protocols_name_what_the_store_refuses(
    sqs: SqsServer, error: Exception, name: str, status: int
) -> None:
    async def refuse(*_: Any) -> None:
        raise error

    queues = ChangedStore(sqs.api.broker.store.queues, page=refuse)
    refusing = SqsServer(sqs.api.with_store(queues=queues))
    in_json = await refusing.request("ListQueues")
    side = "Receiver" if status >= 500 else "Sender"
    assert (in_json.status_code, in_json.json()["__type"]) == (status, f"com.amazonaws.sqs#{name}")
    assert in_json.headers["x-amzn-query-error"] == f"{name};{side}"
    assert code_in_botocore(in_json) == name
    in_query = await refusing.form("ListQueues")
    assert (in_query.status_code, code_of(in_query)) == (status, name)
    assert f"<Type>{side}</Type>" in in_query.text


async def test_both_protocols_name_what_is_wrong_with_a_signature() -> None:
    async with open_sqs_server(needs_keys=True) as server:
        good = await server.with_key(Right.SEND)
        auth = good.http.auth
        assert isinstance(auth, SignedBy)
        key_id = auth.key_id
        clients: list[tuple[SqsServer, str, str, int]] = [
            (server, "MissingAuthenticationToken", "", 403),
            (SqsServer(server.api, SignedBy("0" * 16, "x", server.clock.now)), "InvalidClientTokenId", "", 403),
            (SqsServer(server.api, SignedBy(key_id, "x", server.clock.now)), "SignatureDoesNotMatch", "", 403),
            (good, "AccessDeniedException", "AccessDenied", 403),
        ]
        for client, name, code, status in clients:
            in_json = await client.request("ListQueues")
            assert (in_json.status_code, in_json.json()["__type"]) == (status, f"com.amazonaws.sqs#{name}")
            assert in_json.headers["x-amzn-query-error"] == f"{code or name};Sender"
            assert code_in_botocore(in_json) == (code or name)
            in_query = await client.form("ListQueues")
            assert (in_query.status_code, code_of(in_query)) == (status, code or name)
        unknown = await clients[1][0].refusal("ListQueues")
        assert "`peeklock key sqs ID` prints what a client needs" in unknown[1]
        server.http.headers["authorization"] = f"AWS4-HMAC-SHA256 Credential={key_id}"
        assert (await server.refusal("ListQueues"))[0] == "IncompleteSignature"
        assert code_of(await server.form("ListQueues")) == "IncompleteSignature"


async def test_botocore_raises_the_class_of_the_refusal() -> None:
    """A real server and its client: what an SDK makes of the header and the body."""
    embedded = EmbeddedServer()
    async with serve(embedded) as url:
        client = _client(url)
        classes = {shape.name for shape in client.meta.service_model.error_shapes}
        async with httpx.AsyncClient(base_url=f"{url}/v1") as http:

            async def api(method: str, path: str, body: Any) -> Any:
                response = await http.request(method, path, json=body)
                assert response.is_success, response.text
                return response.json() if response.content else None

            for case in CASES.values():
                if case.action == "Fly" or not case.members.get("QueueUrl", True):
                    continue
                await embedded.reset()
                members = {**case.members, **(await case.prepare(api) if case.prepare else {})}
                error = await asyncio.to_thread(_error_of, client, case.action, members)
                assert error.response["Error"]["Code"] == (case.code or case.name), case
                if case.name in classes:
                    assert type(error) is getattr(client.exceptions, case.name), case
                    assert type(error).__name__ == case.name


def _client(url: str) -> Any:
    session = botocore.session.Session()
    config = Config(retries={"total_max_attempts": 1}, parameter_validation=False)
    return session.create_client(
        "sqs",
        region_name="us-east-1",
        endpoint_url=url,
        aws_access_key_id="any",
        aws_secret_access_key="any",
        config=config,
    )


def _error_of(client: Any, action: str, members: Members) -> ClientError:
    method = getattr(client, botocore.xform_name(action))
    try:
        method(**members)
    except ClientError as error:
        return error
    raise AssertionError(f"{action} was not refused")
