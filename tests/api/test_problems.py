"""Every error is a problem document with a stable code, and a refused request changes nothing."""

import gzip
from dataclasses import replace

import pytest
import structlog

from app.api.endpoints.routes import OPERATIONS
from app.broker.filtering.search_state import SearchRegistry
from app.domain.refusals import Refusal, StoreUnavailable
from app.http.operation import Operation
from app.http.problems import status_of
from tests.api.api_server import ApiServer, pointers, problem
from tests.api.expected_rights import BODIES, headers_of, path_of
from tests.bounds import bounded
from tests.brokers import ChangedStore

SEND = "/v1/queues/orders/messages"
COMPRESSED = gzip.compress(b"{}")
WITH_JSON = [operation for operation in OPERATIONS if operation.body not in (None, bytes)]
WITH_BODY = [operation for operation in OPERATIONS if operation.body is not None]
IN_QUEUES = [operation for operation in OPERATIONS if "{queue}" in operation.path]


@pytest.mark.behaviour("S3.2", "S3.3")
async def test_a_problem_names_the_fault_its_place_and_whether_to_retry(api: ApiServer) -> None:
    answer = await api.request("GET", "/queues/nowhere", headers={"X-Request-Id": "req-17"})
    assert problem(answer, 404, "queue-not-found") == {
        "type": "urn:peeklock:problem:queue-not-found",
        "title": "Not found",
        "status": 404,
        "detail": "There is no queue named nowhere.",
        "code": "queue-not-found",
        "tracking_id": "req-17",
        "retryable": False,
    }


async def test_a_request_that_may_be_repeated_later_is_told_when(api: ApiServer) -> None:
    busy = ApiServer(replace(api.broker, searches=SearchRegistry(api.clock, 0)), api.clock, None)
    await busy.request_json("PUT", "/queues/orders", {})
    refused = await busy.request("POST", "/queues/orders/messages/receive", {"filter": "message.priority == 4"})
    found = problem(refused, 429, "rate-limited")
    assert (found["retryable"], found["retry_after"], refused.headers["retry-after"]) == (True, 1, "1")


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/queues/orders/messages?filter=message.priority+%3D%3D+4", None),
        ("POST", "/queues/orders/purge", {"filter": "message.priority == 4"}),
        ("POST", "/queues/orders/purge", {"filter": "message.priority == 4", "dry_run": True}),
    ],
)
async def test_one_more_request_with_a_filter_may_be_repeated_later(
    api: ApiServer, method: str, path: str, body: dict[str, str] | None
) -> None:
    busy = ApiServer(replace(api.broker, searches=SearchRegistry(api.clock, 1, max_requests=0)), api.clock, None)
    await busy.request_json("PUT", "/queues/orders", {})
    refused = await busy.request(method, path, body)
    assert problem(refused, 503, "overloaded")["retryable"]
    assert refused.headers["retry-after"] == "1"


@pytest.mark.parametrize("given", ["", "two words", "x" * 129, "ümlaut"])
async def test_a_request_without_a_valid_id_gets_one(api: ApiServer, given: str) -> None:
    headers = {"X-Request-Id": given.encode("latin-1")}
    first = await api.request("GET", "/queues/nowhere", headers=headers)
    second = await api.request("GET", "/queues/nowhere", headers=headers)
    assert first.json()["tracking_id"] == first.headers["x-request-id"] != second.headers["x-request-id"]
    assert given not in (first.headers["x-request-id"], second.headers["x-request-id"])


async def test_a_successful_answer_has_the_id_too(api: ApiServer) -> None:
    answer = await api.request("POST", "/queues/orders/messages", {}, headers={"X-Request-Id": "mine"})
    assert answer.headers["x-request-id"] == "mine"


DEEPLY_NESTED = b'{"body":' + b"[" * 100_000 + b"]" * 100_000 + b"}"


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"{", id="cut off"),
        pytest.param(b"nonsense", id="not JSON"),
        pytest.param(b"[]", id="not an object"),
        pytest.param(b"null", id="null"),
        pytest.param(b'{"body": 1} {}', id="two documents"),
        pytest.param(b'{"body": 1,}', id="a comma too many"),
        pytest.param(b"{'body': 1}", id="single quotes"),
        pytest.param(b'{"body": NaN}', id="NaN"),
        pytest.param(b'{"body": -Infinity}', id="infinity"),
        pytest.param(b'{"body": 01}', id="leading zero"),
        pytest.param(b'{"body": "\xff"}', id="not UTF-8 inside the body"),
        pytest.param(b'{"subject": "\xff"}', id="not UTF-8 elsewhere"),
        pytest.param(b'{"body": "\xed\xa0\x80"}', id="an encoded surrogate"),
        pytest.param(b'{"body": "\\ud800"}', id="a lone surrogate"),
        pytest.param(b'{"properties": {"\\udc00 ": 1}}', id="a lone surrogate in a name"),
        pytest.param(b'{"body": "a\nb"}', id="a bare newline"),
        pytest.param(b"\xef\xbb\xbf{}", id="a byte order mark"),
        pytest.param('{"body": 1}'.encode("utf-16"), id="UTF-16"),
        pytest.param(DEEPLY_NESTED, id="nested too deeply"),
    ],
)
async def test_a_body_that_is_not_json_is_refused_and_changes_nothing(api: ApiServer, content: bytes) -> None:
    assert pointers(await api.http.post(SEND, content=content)) == [""]
    assert (await api.request_json("GET", "/queues"))["items"] == []


async def test_the_last_value_of_a_repeated_name_counts_except_in_a_body(api: ApiServer) -> None:
    body = b'{"a":1,"a":2}'
    await api.http.post(SEND, content=b'{"subject": "first", "body": %b, "subject": "last"}' % body)
    (message,) = (await api.request_json("GET", "/queues/orders/messages"))["items"]
    assert message["subject"] == "last"
    assert (await api.http.get(f"{SEND}/1/body")).content == body
    assert "the last value counts" in (await api.http.get("/openapi.json")).json()["info"]["description"]


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        (b"hello", "not JSON: invalid character (byte 0)"),
        (b"{'body': 1}", "not JSON: object keys must be strings (byte 1)"),
        (b"{", "not JSON: it ends too early"),
        (b"caf\xe9", "not UTF-8"),
    ],
)
async def test_a_send_that_is_not_json_says_why_and_names_the_raw_send(
    api: ApiServer, content: bytes, cause: str
) -> None:
    detail = problem(await api.http.post(SEND, content=content), 422, "invalid-request")["detail"]
    assert detail == f"The body is {cause}. To send a body as it is, use POST .../messages/raw."
    receive = await api.http.post(f"{SEND}/receive", content=content)
    assert problem(receive, 422, "invalid-request")["detail"] == f"The body is {cause}."


async def test_a_negative_integer_in_a_query_is_an_integer(api: ApiServer) -> None:
    answer = await api.http.get("/v1/queues?limit=-1")
    assert problem(answer, 422, "invalid-request")["detail"] == "`limit` must be an integer of at least 1."


@pytest.mark.parametrize("half", ["\\ud800", "\\uDBFFx", "\\ud800\\ud800", "\\\\\\ud83d", "\\ud83d\\u0041"])
async def test_half_a_surrogate_pair_is_named_in_the_problem(api: ApiServer, half: str) -> None:
    answer = await api.http.post(SEND, content=f'{{"body": "{half}"}}'.encode())
    assert "surrogate pair" in problem(answer, 422, "invalid-request")["detail"]


@pytest.mark.parametrize("cut", ['{"body": "', '{"body": "\\ud83d\\ude00', '{"body": "\\\\ud800'])
async def test_a_truncated_text_is_named_in_the_problem(api: ApiServer, cut: str) -> None:
    answer = await api.http.post(SEND, content=cut.encode())
    detail = "The body is not JSON: it ends too early. To send a body as it is, use POST .../messages/raw."
    assert problem(answer, 422, "invalid-request")["detail"] == detail


def test_a_refusal_without_a_status_is_named() -> None:
    with pytest.raises(LookupError, match="Refusal has no status"):
        status_of(Refusal)


async def test_a_problem_does_not_repeat_a_long_request(api: ApiServer) -> None:
    for answer in (
        await api.http.get("/" + "a" * 20_000),
        await api.http.post(SEND, json={"a" * 20_000: 1}),
        await api.http.post(SEND, json={"durability": "a" * 20_000}),
    ):
        assert len(answer.json()["detail"]) < 1000
        assert answer.is_client_error


WORDS_OF_THE_DECODER = "Expected `str` matching regex ["


async def test_words_of_the_decoder_in_a_request_are_only_quoted(api: ApiServer) -> None:
    """Its sentences quote names and values of a request, which therefore may not be read as one of its own."""
    unknown = await api.http.post(SEND, json={WORDS_OF_THE_DECODER: 1})
    assert pointers(unknown) == [f"/{WORDS_OF_THE_DECODER}"]
    value = await api.http.post(SEND, json={"durability": WORDS_OF_THE_DECODER})
    detail = f"`durability` must be `durable` or `volatile`, not '{WORDS_OF_THE_DECODER}'."
    assert problem(value, 422, "invalid-request")["detail"] == detail
    parameter = await api.http.get("/v1/queues", params={WORDS_OF_THE_DECODER: 1})
    assert pointers(parameter) == [f"#/query/{WORDS_OF_THE_DECODER}"]


@pytest.mark.parametrize("path", ["queues", "keys", "archive/batches", "queues/orders/messages"])
async def test_a_cursor_of_another_list_is_refused(api: ApiServer, path: str) -> None:
    await api.send()
    answer = await api.request("GET", f"/{path}?cursor=~")
    assert problem(answer, 422, "invalid-request")["detail"] == "This cursor did not come from this list."


async def test_an_invalid_lock_token_is_refused(api: ApiServer) -> None:
    await api.send()
    answer = await api.request("POST", "/queues/orders/locks/1.x/complete")
    assert problem(answer, 404, "message-not-found")["detail"] == "This is not a lock token."


@pytest.mark.parametrize("operation", WITH_JSON, ids=lambda operation: operation.name)
async def test_every_body_is_validated(api: ApiServer, operation: Operation) -> None:
    await api.send()
    path, headers = path_of(operation), headers_of(operation)
    for content in (b"[]", b"{", b'"\xff"', DEEPLY_NESTED[8:-1]):
        assert pointers(await api.http.request(operation.method, path, content=content, headers=headers)) == [""]
    answer = await api.http.request(operation.method, path, content=b'{"no_such_field": 1}', headers=headers)
    assert pointers(answer) == ["/no_such_field"]


@pytest.mark.parametrize("operation", IN_QUEUES, ids=lambda operation: operation.name)
async def test_every_operation_on_an_unknown_queue_is_refused_or_creates_it(
    api: ApiServer, operation: Operation
) -> None:
    answer = await api.http.request(operation.method, path_of(operation), json=BODIES.get(operation.name))
    if operation.name in ("put_queue", "send_message", "send_raw", "send_batch"):
        assert answer.status_code == 201
    else:
        problem(answer, 404, "queue-not-found")


class TestEncoding:
    """A compressed body is refused, because receivers are not told its encoding."""

    @pytest.mark.parametrize("operation", WITH_BODY, ids=lambda operation: operation.name)
    async def test_a_compressed_body_is_refused(self, api: ApiServer, operation: Operation) -> None:
        headers = {"Content-Encoding": "gzip", **headers_of(operation)}
        answer = await api.http.request(operation.method, path_of(operation), content=COMPRESSED, headers=headers)
        problem(answer, 415, "unsupported-content-encoding")
        assert answer.headers["accept-encoding"] == "identity"
        assert (await api.request_json("GET", "/queues"))["items"] == []

    @pytest.mark.parametrize("encoding", ["br", "GZIP", "x-unheard-of", "identity, gzip"])
    async def test_every_content_encoding_is_refused(self, api: ApiServer, encoding: str) -> None:
        answer = await api.http.post(SEND + "/raw", content=COMPRESSED, headers={"Content-Encoding": encoding})
        problem(answer, 415, "unsupported-content-encoding")

    @pytest.mark.parametrize("encoding", ["identity", "Identity", ""])
    async def test_the_identity_encoding_is_accepted(self, api: ApiServer, encoding: str) -> None:
        answer = await api.http.post(SEND + "/raw", content=b"x", headers={"Content-Encoding": encoding})
        assert answer.status_code == 201

    async def test_a_request_without_a_body_is_not_refused(self, api: ApiServer) -> None:
        assert (await api.http.get("/v1/queues", headers={"Content-Encoding": "gzip"})).status_code == 200

    async def test_authorization_is_checked_first(self, api_with_keys: ApiServer) -> None:
        answer = await api_with_keys.http.post(SEND + "/raw", content=COMPRESSED, headers={"Content-Encoding": "gzip"})
        problem(answer, 401, "unauthenticated")


class TestSize:
    """A request is counted while it arrives, and refused as soon as it is too long."""

    @pytest.mark.parametrize("chunk", [1000, 1 << 16, 5 << 20])
    async def test_a_request_that_is_too_long_is_not_read_to_its_end(self, api: ApiServer, chunk: int) -> None:
        read = 0

        async def endless():
            nonlocal read
            for _ in bounded("the request is refused"):
                read += chunk
                yield b"x" * chunk

        answer = await api.http.post(SEND + "/raw", content=endless())
        problem(answer, 413, "message-too-large")
        assert read <= (4 << 20) + 2 * chunk

    async def test_a_request_that_announces_too_much_is_not_read(self, api: ApiServer) -> None:
        async def unread():
            pytest.fail("it was read")
            yield b""

        answer = await api.http.post(SEND + "/raw", content=unread(), headers={"Content-Length": "99999999999"})
        problem(answer, 413, "message-too-large")

    async def test_authorization_is_checked_first(self, api_with_keys: ApiServer) -> None:
        answer = await api_with_keys.http.post(SEND + "/raw", content=b"", headers={"Content-Length": "99999999999"})
        problem(answer, 401, "unauthenticated")

    async def test_a_message_may_be_as_large_as_its_queue_allows(self, api: ApiServer) -> None:
        assert (await api.http.post(SEND + "/raw", content=b"x" * (1 << 20))).status_code == 201
        answer = await api.http.post(SEND + "/raw", content=b"x" * ((1 << 20) + 1))
        assert "1048577 bytes" in problem(answer, 413, "message-too-large")["detail"]

    async def test_properties_count_too(self, api: ApiServer) -> None:
        await api.request_json("PUT", "/queues/orders", {"max_message_bytes": 20})
        answer = await api.request("POST", "/queues/orders/messages", {"body": 1, "properties": {"a": "x" * 20}})
        problem(answer, 413, "message-too-large")


class TestServerErrors:
    """An error of the server tells whether a retry can help."""

    @pytest.fixture
    async def api_without_store(self, api: ApiServer) -> ApiServer:
        """Return a server that has cached the queue and whose store has become unavailable."""
        await api.send()

        async def answer_nothing(*_: object) -> None:
            raise StoreUnavailable

        methods = ("now", "check_writable", "send", "claim", "read", "locked_messages", "remove", "move")
        queue_methods = dict.fromkeys(("by_name", "page", "counts"), answer_nothing)
        queues = ChangedStore(api.broker.store.queues, **queue_methods)
        return api.with_store(queues=queues, **dict.fromkeys(methods, answer_nothing))

    @pytest.mark.behaviour("S3.3")
    @pytest.mark.parametrize("path", ["/v1/queues", "/v1/queues/orders", "/readyz", "/v1/queues/orders/messages/1"])
    async def test_without_the_store_the_answer_is_503(self, api_without_store: ApiServer, path: str) -> None:
        answer = await api_without_store.http.get(path)
        found = problem(answer, 503, "store-unavailable")
        assert (found["retryable"], found["retry_after"], answer.headers["retry-after"]) == (True, 1, "1")

    async def test_without_the_store_the_process_is_alive_and_counts(self, api_without_store: ApiServer) -> None:
        assert (await api_without_store.http.get("/livez")).status_code == 200
        problem(await api_without_store.http.post(SEND, json={}), 503, "store-unavailable")
        metrics = (await api_without_store.http.get("/metrics")).text
        assert "\npeeklock_store_up 0.0\n" in metrics
        assert 'peeklock_request_seconds_count{operation="send_message",outcome="store-unavailable"} 1.0' in metrics

    async def test_a_bug_is_a_500_with_the_tracking_id_of_the_log(self, api: ApiServer) -> None:
        async def break_down(_: object) -> None:
            raise ZeroDivisionError("secret detail")

        broken = api.with_store(send=break_down)
        with structlog.testing.capture_logs() as logged:
            answer = await broken.http.post(SEND, json={"body": "private"}, headers={"X-Request-Id": "req-9"})
        described = problem(answer, 500, "internal-error")
        assert (described["tracking_id"], described["retryable"]) == ("req-9", True)
        assert "secret detail" not in answer.text
        (line,) = logged
        assert line == {
            "event": "unexpected error",
            "log_level": "error",
            "operation": "send_message",
            "request_id": "req-9",
            "error": "ZeroDivisionError('secret detail')",
            "exc_info": True,
        }


class TestPaths:
    """Unknown paths and methods have their own problems."""

    @pytest.mark.parametrize(
        "path",
        [
            "/v1",
            "/v1/",
            "/v1/queues/",
            "/v1/queues//messages",
            "//v1/queues",
            "/v1/queues/orders/",
            "/v1/queues/orders/messages/",
            "/v1/queues/orders/locks//complete",
            "/v1/queues/orders/messages/1/body/more",
            "/V1/queues",
            "/redoc",
            "/v1/exchanges/orders",
        ],
    )
    async def test_an_unknown_path_is_not_found(self, api: ApiServer, path: str) -> None:
        for method in ("GET", "POST", "DELETE"):
            problem(await api.http.request(method, path), 404, "not-found")

    @pytest.mark.parametrize(
        ("path", "allow"),
        [
            ("/v1/queues", "GET, HEAD"),
            ("/v1/queues/orders", "DELETE, GET, HEAD, PATCH, PUT"),
            ("/v1/queues/orders/messages", "GET, HEAD, POST"),
            ("/v1/queues/orders/messages/1", "DELETE, GET, HEAD, PATCH"),
            ("/v1/queues/orders/messages/receive", "POST"),
            ("/v1/queues/orders/purge", "POST"),
            ("/v1/queues/orders/locks/1.0/renew", "POST"),
            ("/v1/keys", "GET, HEAD, POST"),
            ("/", "GET, HEAD"),
            ("/livez", "GET, HEAD"),
        ],
    )
    async def test_an_unknown_method_is_refused_with_the_allowed_ones(
        self, api: ApiServer, path: str, allow: str
    ) -> None:
        for method in {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"} - {*allow.split(", ")}:
            answer = await api.http.request(method, path)
            assert (answer.status_code, answer.headers["allow"]) == (405, allow)
            if method != "HEAD":
                problem(answer, 405, "method-not-allowed")

    async def test_an_unknown_method_of_the_document_is_refused(self, api: ApiServer) -> None:
        problem(await api.http.post("/openapi.json"), 405, "method-not-allowed")

    @pytest.mark.parametrize(
        "path",
        ["/livez", "/readyz", "/metrics", "/v1/queues", "/v1/queues/orders", "/v1/queues/orders/messages/1/body"],
    )
    async def test_head_is_get_without_the_body(self, api: ApiServer, path: str) -> None:
        await api.send(body="hello")
        get, head = await api.http.get(path), await api.http.head(path)
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["content-type"] == get.headers["content-type"]
        if path != "/metrics":
            assert head.headers["content-length"] == str(len(get.content))

    async def test_a_path_segment_may_be_percent_encoded(self, api: ApiServer) -> None:
        await api.send("orders")
        assert (await api.http.get("/v1/queues/%6frders")).json()["name"] == "orders"
