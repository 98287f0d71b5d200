"""Budgets bound the bytes of request bodies and answers in memory. A request beyond them is refused early."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import pytest

from app.domain.message import MAX_RECEIVE_COUNT
from app.domain.weight import MESSAGE_OVERHEAD_BYTES
from tests.api.api_server import MAX_REQUEST_BYTES, ApiServer, open_api_server, problem
from tests.api.topic_requests import publish, subscribe
from tests.virtual_clock import run_ready_tasks

MIB = 1 << 20


@pytest.fixture
async def api() -> AsyncIterator[ApiServer]:
    async with open_api_server() as api:
        yield api


RAW = "/v1/queues/orders/messages/raw"


class Exchange:
    """One request. The test controls when its body arrives and when its answer is taken."""

    def __init__(self, api: ApiServer, headers: Mapping[str, str], method: str = "POST", path: str = RAW) -> None:
        self._house = api
        self._scope: dict[str, Any] = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        }
        self.pieces: asyncio.Queue[Mapping[str, Any]] = asyncio.Queue()
        self.reads = 0
        self.said: list[Mapping[str, Any]] = []
        self.taken = asyncio.Event()

    async def run(self) -> int:
        """Return the status of the answer."""
        await self._house.middleware(self._scope, self._receive, self._send)
        return self.said[0]["status"]

    def feed_body(self, body: bytes, *, more: bool) -> None:
        """Deliver a chunk of the body."""
        self.pieces.put_nowait({"type": "http.request", "body": body, "more_body": more})

    async def _receive(self) -> Mapping[str, Any]:
        self.reads += 1
        return await self.pieces.get()

    async def _send(self, event: Mapping[str, Any]) -> None:
        if len(self.said) == 2:
            await self.taken.wait()
        self.said.append(event)


async def test_a_body_that_exceeds_the_budget_is_refused_before_it_is_read(api: ApiServer) -> None:
    half_sent = [Exchange(api, {"content-length": str(MAX_REQUEST_BYTES)}) for _ in range(2)]
    running = [asyncio.create_task(exchange.run()) for exchange in half_sent]
    await run_ready_tasks()
    refused = Exchange(api, {"content-length": str(MIB)})
    assert (await refused.run(), refused.reads) == (503, 0)
    assert (b"retry-after", b"1") in refused.said[0]["headers"]
    assert b'"overloaded"' in refused.said[1]["body"]
    for exchange in half_sent:
        exchange.feed_body(b"x", more=False)
    assert await asyncio.gather(*running) == [201, 201]
    assert api.request_budget.held == 0
    again = Exchange(api, {"content-length": str(MIB)})
    again.feed_body(b"x" * 1000, more=False)
    assert await again.run() == 201


@pytest.mark.parametrize("path", ["/livez", "/metrics", "/v1/queues"])
async def test_an_operation_without_a_body_reserves_nothing_and_reads_none(api: ApiServer, path: str) -> None:
    asking = Exchange(api, {"content-length": str(MAX_REQUEST_BYTES)}, "GET", path)
    async with asyncio.timeout(60):
        assert (await asking.run(), asking.reads) == (200, 0)
    assert api.request_budget.held == 0


@pytest.mark.parametrize("more", [True, False], ids=["the first piece", "the whole body"])
async def test_a_body_without_a_length_counts_from_its_first_chunk(api: ApiServer, more: bool) -> None:
    api.request_budget.acquire(api.request_budget.limit - MIB)
    chunked = Exchange(api, {"transfer-encoding": "chunked"})
    chunked.feed_body(b"x" * (MIB + 1), more=more)
    async with asyncio.timeout(60):
        assert await chunked.run() == 503


async def test_a_chunked_body_counts_as_it_arrives(api: ApiServer) -> None:
    api.request_budget.acquire(api.request_budget.limit - MIB)
    chunked = Exchange(api, {"transfer-encoding": "chunked"})
    running = asyncio.create_task(chunked.run())
    for _ in range(4):
        chunked.feed_body(b"x" * (MIB // 4), more=True)
    await run_ready_tasks()
    assert not running.done()
    assert api.request_budget.held == api.request_budget.limit
    chunked.feed_body(b"x", more=True)
    assert await running == 503
    assert api.request_budget.held == api.request_budget.limit - MIB


async def test_the_entries_of_a_batch_count_as_the_messages_that_they_become(api: ApiServer) -> None:
    api.request_budget.acquire(api.request_budget.limit - MIB)
    batch = [{}] * (MIB // MESSAGE_OVERHEAD_BYTES + 1)
    problem(await api.request("POST", "/queues/orders/messages/batch", {"messages": batch}), 503, "overloaded")
    stored = await api.request("POST", "/queues/orders/messages/batch", {"messages": batch[:100]})
    assert stored.status_code == 201
    assert api.request_budget.held == api.request_budget.limit - MIB


async def test_words_that_are_repeated_in_a_list_take_no_memory_of_their_own(api: ApiServer) -> None:
    await api.send()
    states = ["available"] * (api.request_budget.limit // MESSAGE_OVERHEAD_BYTES + 1)
    assert await api.request_json("POST", "/queues/orders/purge", {"states": states}) == {"removed": 1}


async def test_small_requests_are_answered_while_large_ones_fill_the_budget(api: ApiServer) -> None:
    api.request_budget.acquire(api.request_budget.limit)
    await api.send(body="x" * 60_000)
    (message,) = await api.receive()
    assert (await api.settle(message, "complete")).is_success
    large = await api.request("POST", "/queues/orders/messages", {"body": "x" * 70_000})
    problem(large, 503, "overloaded")


async def test_an_aborted_body_is_no_longer_counted(api: ApiServer) -> None:
    exchange = Exchange(api, {"content-length": str(MIB)})
    running = asyncio.create_task(exchange.run())
    exchange.feed_body(b"x", more=True)
    await run_ready_tasks()
    assert api.request_budget.held == MIB
    exchange.pieces.put_nowait({"type": "http.disconnect"})
    with pytest.raises(IndexError):
        await running
    assert api.request_budget.held == 0


async def test_an_answer_counts_until_its_client_has_taken_it(api: ApiServer) -> None:
    await api.send(body="x" * (MIB - 100))
    exchange = Exchange(api, {}, path="/v1/queues/orders/messages/receive")
    exchange.feed_body(b"{}", more=False)
    running = asyncio.create_task(exchange.run())
    await run_ready_tasks()
    assert not running.done()
    assert api.broker.response_limits.budget.held > MIB - 100
    exchange.taken.set()
    assert await running == 200
    assert api.broker.response_limits.budget.held == 0


async def test_a_page_that_every_client_shares_is_not_counted(api: ApiServer) -> None:
    first, second = [Exchange(api, {}, path="/docs/swagger-ui-bundle.js", method="GET") for _ in range(2)]
    running = [asyncio.create_task(exchange.run()) for exchange in (first, second)]
    await run_ready_tasks()
    assert api.broker.response_limits.budget.held == 0
    for exchange in (first, second):
        exchange.taken.set()
    assert await asyncio.gather(*running) == [200, 200]
    assert first.said[1]["body"] is second.said[1]["body"], "the server holds its bytes once"


async def test_a_receive_that_the_budget_refuses_claims_nothing(api: ApiServer) -> None:
    await api.send(body="small")
    answers = api.broker.response_limits.budget
    answers.acquire_unchecked(answers.limit)
    waiting = asyncio.create_task(api.request("POST", "/queues/orders/messages/receive", {}))
    await run_ready_tasks()
    assert not waiting.done()
    assert await api.counts() == {"available": 1}
    answers.release(answers.limit)
    assert len((await waiting).json()["messages"]) == 1


@pytest.mark.parametrize(
    "path",
    [
        "/states/game.17", "/states/game.17/history", "/queues/orders/messages/1/history", "/topics/events/subscriptions",
        "/topics", "/queues", "/transactions/{transaction}",
    ],
)  # fmt: skip
async def test_a_large_answer_is_read_once_slow_clients_have_taken_theirs(api: ApiServer, path: str) -> None:
    await api.send()
    await api.request_json("PUT", "/topics/events", {})
    opened = await api.request_json("POST", "/transactions", {})
    answers = api.broker.response_limits.budget
    answers.acquire_unchecked(answers.limit)
    waiting = asyncio.create_task(api.request("GET", path.format(transaction=opened["id"])))
    await run_ready_tasks()
    assert not waiting.done()
    answers.release(answers.limit)
    assert (await waiting).status_code == 200
    assert answers.held == 0


@pytest.mark.parametrize("path", ["/topics", "/queues"])
async def test_a_short_list_is_read_while_slow_clients_hold_their_answers(api: ApiServer, path: str) -> None:
    answers = api.broker.response_limits.budget
    answers.acquire_unchecked(answers.limit)
    assert (await api.request("GET", path, params={"limit": "2"})).status_code == 200


async def test_the_copies_of_a_publish_are_made_once_slow_clients_have_taken_their_answers(api: ApiServer) -> None:
    await api.request_json("PUT", "/topics/events", {})
    for number in range(10):
        await subscribe(api, f"wide-{number}", "events", set_properties={"number": number})
    answers = api.broker.response_limits.budget
    answers.acquire_unchecked(answers.limit)
    small = await publish(api, "events", body=1)
    assert small["stored"], "its copies have less than 64 KiB"
    large = {"properties": {"wide": "x" * 30_000}}
    waiting = asyncio.create_task(api.request("POST", "/topics/events/messages", large))
    await run_ready_tasks()
    assert not waiting.done()
    answers.release(answers.limit)
    assert (await waiting).status_code == 201
    assert answers.held == 0


async def test_a_page_of_large_messages_is_short_and_the_next_one_continues(api: ApiServer) -> None:
    for index in range(20):
        await api.send(body=str(index) + "x" * (MIB - 100), queue="large")
    seen: list[str] = []
    pages: Sequence[Any] = ()
    cursor: dict[str, str] = {}
    for _ in range(10):
        page = await api.request_json("GET", "/queues/large/messages", params={"limit": str(100), **cursor})
        pages = [*pages, len(page["items"])]
        seen += [message["body"].rstrip("x") for message in page["items"]]
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}
    assert pages == [7, 7, 6]
    assert seen == [str(index) for index in range(20)]


@pytest.mark.parametrize("wanted", [{}, {"filter": "message.priority == 4"}, {"mode": "receive_and_delete"}])
async def test_a_receive_of_large_messages_is_short_and_leaves_the_rest(api: ApiServer, wanted: dict[str, str]) -> None:
    await api.request("PUT", "/queues/large", {"max_message_bytes": 2 * MIB})
    for index in range(20):
        await api.send(body=str(index) + "x" * MIB, queue="large")
    messages = await api.receive("large", max_messages=MAX_RECEIVE_COUNT, **wanted)
    assert [message["body"].rstrip("x") for message in messages] == [str(index) for index in range(len(messages))]
    assert len(messages) in (6, 7)
    assert (await api.counts("large"))["available"] == 20 - len(messages)
