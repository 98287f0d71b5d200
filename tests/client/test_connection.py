"""What a client does with each kind of answer, and with none: repeat, refuse or doubt."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import peeklock_client
import pytest
from peeklock_client import (
    Client,
    ClientClosed,
    InDoubt,
    LockLost,
    NotConnected,
    NotFound,
    PeeklockError,
    QueueNotFound,
    Refusal,
    RetryLimits,
    TransactionRolledBack,
    Unavailable,
    UnexpectedAnswer,
    VersionConflict,
    errors,
)
from peeklock_client.connection import cause_of
from peeklock_client.errors import CLASSES, DOUBTFUL
from peeklock_client.generated import requests
from peeklock_client.http_pools import is_loopback

from app.domain.instant import to_seconds
from app.domain.queue import MAX_DEFAULT_WAIT
from tests.client.virtual_loop import run_virtually

QUICK = RetryLimits(attempts=3, first_wait_seconds=0, max_wait_seconds=0)
SENT = {
    "sequence_number": 1,
    "message_id": "a",
    "enqueued_at": "2026-01-01T00:00:00Z",
    "state": "available",
    "duplicate": False,
}
Answer = httpx.Response | Exception


def problem(status: int, code: str, *, retryable: bool = False, **headers: str) -> httpx.Response:
    body = {
        "type": "",
        "title": "",
        "status": status,
        "detail": "Because.",
        "code": code,
        "tracking_id": "t",
        "retryable": retryable,
    }
    return httpx.Response(status, json=body, headers=headers)


class Server:
    """Gives the listed answers in order, and remembers the requests."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.requests: list[httpx.Request] = []

    def client(self) -> Client:
        self.http = httpx.AsyncClient(transport=httpx.MockTransport(self.answer))
        return Client("http://peeklock.test", retries=QUICK, http=self.http)

    def answer(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


SENT_ANSWER = httpx.Response(201, json=SENT)
LOST = httpx.ReadError("connection reset")
UNREACHED = httpx.ConnectError("refused")
BUSY = problem(503, "overloaded", retryable=True)
PROXY = httpx.Response(502, text="Bad gateway")
LATIN = httpx.Response(502, content=b'{"title": "caf\xe9"}')
CRASHED = httpx.Response(500, text="Internal Server Error")


@pytest.mark.behaviour("S3.35")
@pytest.mark.parametrize(
    "first", [LOST, UNREACHED, BUSY, PROXY, problem(503, "store-unavailable", retryable=True)], ids=repr
)
async def test_a_send_is_repeated_under_the_same_key(first: Answer) -> None:
    server = Server(first, SENT_ANSWER)
    assert (await server.client().queue("orders").send(1)).sequence_number == 1
    keys = {request.headers["Idempotency-Key"] for request in server.requests}
    assert (len(server.requests), len(keys)) == (2, 1)


@pytest.mark.behaviour("S3.35")
@pytest.mark.parametrize(("answers", "requested"), [([], 1), ([LOST], 2), ([BUSY, LOST], 3)], ids=repr)
async def test_a_settlement_is_repeated_until_the_server_says_that_its_lock_is_lost(
    answers: list[Answer], requested: int
) -> None:
    server = Server(*answers, problem(410, "lock-lost"))
    with pytest.raises(LockLost):
        await server.client().api.complete_lock("orders", "1.token", requests.CompleteLock())
    assert len(server.requests) == requested


@pytest.mark.behaviour("S3.5")
def test_sends_finish_in_the_order_of_their_answers() -> None:
    asked = asyncio.Queue[asyncio.Event]()
    finished = list[int]()

    async def answer(request: httpx.Request) -> httpx.Response:
        answered = asyncio.Event()
        asked.put_nowait(answered)
        await answered.wait()
        return httpx.Response(201, json=SENT)

    async def scenario() -> None:
        queue = Client("http://peeklock.test", http=httpx.AsyncClient(transport=httpx.MockTransport(answer))).queue("q")

        async def send(number: int) -> None:
            await queue.send(number)
            finished.append(number)

        async with asyncio.TaskGroup() as sends:
            held = list[tuple[asyncio.Task[None], asyncio.Event]]()
            for number in range(3):
                held.append((sends.create_task(send(number)), await asked.get()))
            for task, answered in reversed(held):
                answered.set()
                await task

    run_virtually(scenario())
    assert finished == [2, 1, 0]


async def test_two_sends_have_two_keys() -> None:
    server = Server(SENT_ANSWER, SENT_ANSWER)
    queue = server.client().queue("orders")
    await queue.send(1)
    await queue.send(1)
    assert len({request.headers["Idempotency-Key"] for request in server.requests}) == 2


@pytest.mark.behaviour("S3.27", "S3.8")
@pytest.mark.parametrize(
    "answers",
    [
        [LOST] * 3,
        [LOST, UNREACHED, UNREACHED],
        [LOST, BUSY, BUSY],
        [PROXY] * 3,
        [CRASHED] * 3,
        [LATIN] * 3,
        [LOST, problem(401, "unauthenticated")],
        [LOST, problem(403, "send-disabled")],
        [LOST, httpx.Response(404, text="default backend")],
    ],
    ids=repr,
)
async def test_a_lost_answer_that_no_repeat_resolves_is_a_doubt(answers: list[Answer]) -> None:
    with pytest.raises(InDoubt):
        await Server(*answers).client().queue("orders").send(1)


async def test_a_definite_refusal_resolves_a_doubt() -> None:
    with pytest.raises(QueueNotFound):
        await Server(LOST, problem(404, "queue-not-found")).client().queue("orders").send(1)


async def test_a_server_that_was_never_reached_leaves_no_doubt() -> None:
    with pytest.raises(NotConnected):
        await Server(*[UNREACHED] * 3).client().queue("orders").send(1)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (UNREACHED, "{url} cannot be reached: .*"),
        (LOST, "The answer to POST {url} was lost: .*"),
        (PROXY, "POST {url} was answered 502, not by Peeklock."),
        (BUSY, "POST {url}: .*code overloaded.*"),
    ],
    ids=repr,
)
async def test_a_retry_is_logged_with_its_address_once(
    answer: Answer, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    client = Server(answer, SENT_ANSWER).client()
    await client.queue("orders").send(1)
    [line] = [record.getMessage() for record in caplog.records if record.name == "peeklock"]
    assert re.fullmatch("retry 1 of 2 in .* s: " + text.format(url=".*/v1/queues/orders/messages"), line)
    assert line.count("/v1/queues/orders/messages") == 1


async def test_a_retry_is_logged_with_the_cause_of_the_operating_system(caplog: pytest.LogCaptureFixture) -> None:
    async with Client("http://127.0.0.1:1", retries=QUICK) as client:
        with pytest.raises(NotConnected, match="Connect call failed"):
            await client.queue("orders").send(1)
    assert "Connect call failed" in caplog.text


@pytest.mark.parametrize(
    ("error", "text"),
    [(httpx.ConnectTimeout(""), "ConnectTimeout"), (httpx.ReadError("reset"), "ReadError: reset")],
    ids=repr,
)
def test_a_cause_has_a_text(error: Exception, text: str) -> None:
    assert cause_of(error) == text


@pytest.mark.parametrize(
    ("host", "expected"),
    [("localhost", True), ("a.localhost", True), ("127.1.2.3", True), ("::1", True), ("10.0.0.1", False), ("a.test", False)],
)  # fmt: skip
def test_loopback_names_and_addresses_are_known(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


@pytest.mark.parametrize("url", ["localhost:8080", "http://", "ftp://peeklock.test", "http://[::1"])
def test_a_url_of_no_server_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="URL"):
        Client(url)


@pytest.mark.parametrize("key", ["pk_secret\n", "pk_\u2026"])
def test_a_key_that_is_no_header_is_refused_without_showing_it(key: str) -> None:
    with pytest.raises(ValueError, match="API key") as raised:
        Client("http://peeklock.test", key)
    assert key not in str(raised.value)


async def test_a_closed_client_is_told_apart_and_sends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    http = httpx.AsyncClient(transport=httpx.MockTransport(Server().answer))
    await http.aclose()
    with pytest.raises(ClientClosed):
        await Client("http://peeklock.test", http=http).queue("orders").send(1)
    assert "retry" not in caplog.text


async def test_a_client_that_was_closed_opens_no_new_connections() -> None:
    client = Client("http://peeklock.test", retries=RetryLimits(attempts=1))
    await client.close()
    with pytest.raises(ClientClosed):
        await client.queue("orders").send(1)


async def test_a_server_that_stays_busy_refuses() -> None:
    with pytest.raises(Unavailable) as refused:
        await Server(*[BUSY] * 3).client().queue("orders").send(1)
    assert refused.value.retryable


@pytest.mark.parametrize(
    "answer", [problem(422, "invalid-request"), problem(410, "lock-lost"), httpx.Response(418, text="")], ids=repr
)
async def test_what_a_repeat_cannot_change_is_not_repeated(answer: httpx.Response) -> None:
    server = Server(answer)
    with pytest.raises(Refusal):
        await server.client().queue("orders").send(1)
    assert len(server.requests) == 1


async def test_a_receive_without_a_key_is_not_retried_after_a_lost_answer() -> None:
    server = Server(LOST)
    with pytest.raises(InDoubt):
        await server.client().queue("orders").receive(filter="message.priority > 3")
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "call",
    [
        lambda api: api.settle_messages("orders", requests.SettleMessages([])),
        lambda api: api.complete_lock("orders", "1.a", requests.CompleteLock()),
        lambda api: api.commit_transaction("a", requests.EndTransaction()),
        lambda api: api.recover_messages("orders", requests.RecoverMessages("a")),
        lambda api: api.get_queue("orders"),
        lambda api: api.put_queue("orders", requests.QueueSettingsBody()),
    ],
)
async def test_what_is_safe_to_repeat_is_repeated(call: Callable[[Any], Any]) -> None:
    server = Server(LOST, problem(404, "not-found"))
    with pytest.raises(NotFound):
        await call(server.client().api)
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    "call",
    [
        lambda api: api.purge_queue("orders", requests.PurgeQueue()),
        lambda api: api.start_transaction(requests.OpenTransaction()),
        lambda api: api.create_key(requests.CreateKey("a", [])),
        lambda api: api.execute_unit(requests.ExecuteWorkUnit()),
    ],
)
async def test_what_is_not_safe_to_repeat_is_not(call: Callable[[Any], Any]) -> None:
    server = Server(LOST)
    with pytest.raises(InDoubt):
        await call(server.client().api)


def test_a_repeat_waits_as_long_as_the_server_says() -> None:
    async def scenario() -> float:
        busy = problem(503, "overloaded", retryable=True, **{"Retry-After": "7"})
        await Server(busy, SENT_ANSWER).client().queue("orders").send(1)
        return asyncio.get_running_loop().time()

    assert 7 <= run_virtually(scenario()) <= 7 * 1.25


@pytest.mark.parametrize(("code", "kind"), [("overloaded", Unavailable), ("store-unavailable", InDoubt)])
async def test_an_exception_has_the_seconds_of_the_problem_document(code: str, kind: type[Refusal | InDoubt]) -> None:
    document = {**problem(503, code, retryable=True).json(), "retry_after": 3600}
    with pytest.raises(kind) as refused:
        await Server(httpx.Response(503, json=document)).client().queue("orders").send(1)
    assert refused.value.retry_after == 3600


def test_a_repeat_that_would_take_too_long_is_left_to_the_caller() -> None:
    async def scenario() -> float:
        busy = problem(503, "overloaded", retryable=True, **{"Retry-After": "3600"})
        with pytest.raises(Unavailable) as refused:
            await Server(busy, SENT_ANSWER).client().queue("orders").send(1)
        assert refused.value.retry_after == 3600
        return asyncio.get_running_loop().time()

    assert run_virtually(scenario()) == 0


async def test_a_closed_client_sends_nothing() -> None:
    server = Server(SENT_ANSWER)
    client, http = server.client(), server.http
    await http.aclose()
    with pytest.raises(NotConnected, match="closed"):
        await client.queue("orders").send(1)
    assert not server.requests


async def test_the_time_for_an_answer_is_longer_than_the_wait() -> None:
    server = Server(httpx.Response(200, json={"messages": []}))
    await server.client().queue("orders").receive(wait_seconds=40)
    assert server.requests[0].extensions["timeout"]["read"] > 40


async def test_a_receive_may_wait_as_long_as_its_queue_says() -> None:
    server = Server(*(httpx.Response(200, json={"messages": []}) for _ in range(2)))
    await server.client().queue("orders").receive(wait_seconds=None)
    await server.client().queue("orders").receive_and_delete(wait_seconds=None)
    for request in server.requests:
        assert "wait_seconds" not in json.loads(request.content)
        assert request.extensions["timeout"]["read"] > to_seconds(MAX_DEFAULT_WAIT)


async def test_an_answer_that_cannot_be_decoded_raises_unexpected_answer() -> None:
    with pytest.raises(UnexpectedAnswer):
        await Server(httpx.Response(201, text="<html>")).client().queue("orders").send(1)


async def test_an_answer_of_a_newer_server_is_read() -> None:
    server = Server(httpx.Response(201, json={**SENT, "state": "teleported", "new": 1}))
    assert (await server.client().queue("orders").send(1)).state == "teleported"


async def test_a_name_cannot_leave_its_place_in_the_path() -> None:
    server = Server(problem(404, "queue-not-found"))
    with pytest.raises(QueueNotFound):
        await server.client().queue("../keys?x=").send(1)
    assert server.requests[0].url.raw_path == b"/v1/queues/..%2Fkeys%3Fx%3D/messages"


async def test_the_key_of_the_client_is_sent() -> None:
    server = Server(SENT_ANSWER)
    client = Client(
        "http://peeklock.test", "pk_secret", http=httpx.AsyncClient(transport=httpx.MockTransport(server.answer))
    )
    await client.queue("orders").send({"a": [1]})
    assert server.requests[0].headers["Authorization"] == "Bearer pk_secret"
    assert json.loads(server.requests[0].content) == {"body": {"a": [1]}}


# ---- transactions ----------------------------------------------------------------------------------------------------

OPENED = httpx.Response(201, json={"id": "t1", "state": "open", "expires_at": "2026-01-01T00:00:00Z"})
COMMITTED = httpx.Response(
    200, json={"id": "t1", "state": "committed", "sends": [], "settlements": [], "expires_at": "2026-01-01T00:00:00Z"}
)


async def test_a_block_keeps_its_error_when_the_rollback_is_lost() -> None:
    transaction = await Server(OPENED, *[LOST] * 3).client().transaction()
    with pytest.raises(ZeroDivisionError) as raised:
        async with transaction:
            raise ZeroDivisionError
    [note] = raised.value.__notes__
    assert note.startswith("The rollback failed, so the transaction ends at its deadline: ")


async def test_a_transaction_that_the_server_has_rolled_back_is_not_rolled_back_again() -> None:
    server = Server(OPENED, problem(409, "transaction-rolled-back"))
    with pytest.raises(TransactionRolledBack):
        async with await server.client().transaction() as transaction:
            await transaction.commit()
    assert len(server.requests) == 2


@pytest.mark.parametrize("answer", [LOST, problem(404, "transaction-not-found")], ids=repr)
async def test_a_commit_in_doubt_faults_the_receives(answer: Answer) -> None:
    transaction = await Server(OPENED, *[answer] * 3).client().transaction()
    receive = Receive()
    transaction.join(receive)  # type: ignore[arg-type] # only what a transaction calls
    with pytest.raises(PeeklockError) as raised:
        await transaction.commit()
    assert receive.error is raised.value


class Receive:
    """Remembers what a transaction has noted at it."""

    error: BaseException | None = None

    def fault(self, error: BaseException) -> None:
        self.error = error


async def test_a_commit_returns_what_was_done_and_is_sent_once() -> None:
    server = Server(OPENED, COMMITTED)
    async with await server.client().transaction() as transaction:
        committed = await transaction.commit()
    assert committed is transaction.committed is not None
    assert len(server.requests) == 2


# ---- codes -----------------------------------------------------------------------------------------------------------


def test_every_exception_is_exported() -> None:
    defined = {
        name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, PeeklockError)
    }
    assert defined <= set(peeklock_client.__all__)


def test_every_class_stands_for_a_code_of_the_server() -> None:
    codes = re.findall(
        r"^\| `([a-z-]+)` \| (?:no|yes) \|", Path("docs/reference/problems.md").read_text(), re.MULTILINE
    )
    assert CLASSES.keys() | DOUBTFUL <= set(codes)


async def test_details_of_a_refusal_are_attributes() -> None:
    lost = problem(410, "lock-lost")
    lost = httpx.Response(410, json=json.loads(lost.content) | {"cause": "expired", "delivered_again": True})
    with pytest.raises(LockLost) as error:
        await Server(lost).client().queue("a").send(1)
    assert (error.value.cause, error.value.delivered_again, error.value.lost_at) == ("expired", True, None)
    conflict = httpx.Response(409, json=json.loads(problem(409, "version-conflict").content) | {"current_version": 7})
    with pytest.raises(VersionConflict) as error_of_state:
        await Server(conflict).client().queue("a").send(1)
    assert error_of_state.value.current_version == 7
