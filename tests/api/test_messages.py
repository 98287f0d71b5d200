"""The administration of messages: browse, read, edit, cancel and redrive."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from app.broker.administration.page_limits import PageLimits
from tests.api.api_server import ApiServer, pointers, problem
from tests.servers import TIMEOUT_SECONDS

FILTERED = [
    ("GET", "/queues/orders/messages", "#/query/filter"),
    ("POST", "/queues/orders/messages/receive", "/filter"),
    ("POST", "/queues/orders/purge", "/filter"),
    ("POST", "/queues/orders/dead-letter/redrive", "/filter"),
    ("POST", "/queues/orders/restore", "/filter"),
]
FIRST_MESSAGE = "/queues/orders/messages/1"


async def one_of_each(api: ApiServer) -> None:
    """Messages 1 to 5: scheduled, locked, deferred, dead-lettered, available."""
    await api.send(body=0, delay_seconds=60)
    for n in range(1, 5):
        await api.send(body=n, properties={"n": n})
    _, deferred, dead = await api.receive(max_messages=3)
    await api.settle(deferred, "defer")
    await api.settle(dead, "dead-letter", reason="bad")


class TestBrowse:
    """Browsing shows every state and changes none."""

    async def browse(self, api: ApiServer, **query: Any) -> Any:
        return await api.request_json("GET", "/queues/orders/messages", params=query)

    async def test_every_state_is_listed_and_nothing_changes(self, api: ApiServer) -> None:
        await one_of_each(api)
        before = await api.counts()
        page = await self.browse(api)
        states = [message["state"] for message in page["items"]]
        assert states == ["scheduled", "locked", "deferred", "dead_lettered", "available"]
        assert [message["delivery_count"] for message in page["items"]] == [0, 1, 1, 1, 0]
        assert page["next_cursor"] is None
        assert not any("lock_token" in message for message in page["items"])
        assert await api.counts() == before

    async def test_states_and_filters_select(self, api: ApiServer) -> None:
        await one_of_each(api)
        numbers = [
            [message["sequence_number"] for message in (await self.browse(api, **query))["items"]]
            for query in (
                {"state": "locked"},
                {"state": ["locked", "available", "locked"]},
                {"filter": "message.properties.n >= 3"},
                {"filter": "message.dead_letter_reason == 'bad'", "state": ["dead_lettered", "locked"]},
            )
        ]
        assert numbers == [[2], [2, 5], [4, 5], [4]]

    @pytest.mark.parametrize("query", [{}, {"filter": "message.sequence_number != 3"}])
    async def test_pages_continue_at_the_cursor(self, api: ApiServer, query: dict[str, str]) -> None:
        for _ in range(7):
            await api.send()
        seen, cursor = [], {}
        for _ in range(10):
            page = await self.browse(api, limit=3, **query, **cursor)
            assert len(page["items"]) <= 3
            seen += [message["sequence_number"] for message in page["items"]]
            if page["next_cursor"] is None:
                break
            cursor = {"cursor": page["next_cursor"]}
        assert seen == [number for number in range(1, 8) if number != 3 or not query]

    async def test_a_filter_that_matches_little_still_answers_in_time(self, api: ApiServer) -> None:
        api = ApiServer(replace(api.broker, page_limits=PageLimits(batch_size=2, max_batches=2)), api.clock, None)
        for n in range(9):
            await api.send(properties={"n": n})
        page = await self.browse(api, filter="message.properties.n == 8")
        assert page == {"items": [], "next_cursor": "4"}
        page = await self.browse(api, filter="message.properties.n == 8", cursor="4")
        assert page == {"items": [], "next_cursor": "8"}
        page = await self.browse(api, filter="message.properties.n == 8", cursor="8")
        assert [message["sequence_number"] for message in page["items"]] == [9]
        assert page["next_cursor"] is None

    @pytest.mark.parametrize(
        ("query", "pointer"),
        [
            ("state=gone", "#/query/state/0"),
            ("state=", "#/query/state/0"),
            ("cursor=abc", "#/query/cursor"),
            ("cursor=-1", "#/query/cursor"),
            (f"cursor={2**63}", "#/query/cursor"),
            ("filter=(", "#/query/filter"),
            ("filter=", "#/query/filter"),
            ("limit=0", "#/query/limit"),
            ("stat=locked", "#/query/stat"),
        ],
    )
    async def test_an_invalid_query_is_refused(self, api: ApiServer, query: str, pointer: str) -> None:
        await api.send()
        assert pointers(await api.request("GET", f"/queues/orders/messages?{query}")) == [pointer]


class TestOne:
    """One message, by its number."""

    async def test_it_shows_what_a_receiver_would_get(self, api: ApiServer) -> None:
        await api.send(body={"a": 1}, subject="s", properties={"p": 1})
        seen = await api.request_json("GET", FIRST_MESSAGE)
        (received,) = await api.receive()
        same = ("body", "subject", "properties", "message_id", "priority", "enqueued_at", "available_at")
        assert {name: seen[name] for name in same} == {name: received[name] for name in same}
        assert (seen["state"], seen["redelivered"], seen["delivery_count"]) == ("available", False, 0)

    async def test_its_body_is_returned_as_it_was_sent(self, api: ApiServer) -> None:
        await api.send(body={"a": 1})
        await api.send(body_base64="AP8=")
        await api.send(body_base64="PGI+", content_type="text/html")
        await api.send()
        bodies = [await api.request("GET", f"/queues/orders/messages/{n}/body") for n in range(1, 5)]
        assert [body.content for body in bodies] == [b'{"a":1}', b"\x00\xff", b"<b>", b""]
        kinds = ["application/json", "application/octet-stream", "text/html", "application/octet-stream"]
        assert [body.headers["content-type"] for body in bodies] == kinds

    async def test_a_browser_does_not_run_a_body_as_a_page(self, api: ApiServer) -> None:
        await api.send(body_base64="PGI+", content_type="text/html")
        headers = (await api.request("GET", FIRST_MESSAGE + "/body")).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert "sandbox" in headers["content-security-policy"]

    @pytest.mark.parametrize("number", ["0", "-1", "x", "1.5", "²", str(2**63), "9" * 400])
    async def test_an_invalid_sequence_number_is_refused(self, api: ApiServer, number: str) -> None:
        await api.send()
        for method, path in (("GET", ""), ("GET", "/body"), ("PATCH", ""), ("DELETE", "")):
            answer = await api.request(method, f"/queues/orders/messages/{number}{path}")
            assert pointers(answer) == ["#/path/sequence_number"]

    async def test_an_unknown_message_is_not_found(self, api: ApiServer) -> None:
        await api.send()
        await api.request_json("PUT", "/queues/invoices")
        for path in ("/queues/orders/messages/2", "/queues/invoices/messages/1"):
            for method in ("GET", "PATCH", "DELETE"):
                problem(await api.request(method, path), 404, "message-not-found")
            problem(await api.request("GET", path + "/body"), 404, "message-not-found")
        problem(await api.request("GET", "/queues/nowhere/messages/1"), 404, "queue-not-found")


class TestEdit:
    """The due time, priority and properties of a message can change while it is not locked."""

    async def test_each_field_can_be_changed_alone(self, api: ApiServer) -> None:
        await api.send(properties={"a": 1, "b": 2}, priority=1)
        edited = await api.request_json("PATCH", FIRST_MESSAGE, {"priority": 0})
        assert (edited["priority"], edited["properties"]) == (0, {"a": 1, "b": 2})
        edited = await api.request_json("PATCH", FIRST_MESSAGE, {"properties": {"b": None, "c": 3}})
        assert (edited["priority"], edited["properties"]) == (0, {"a": 1, "c": 3})
        edited = await api.request_json("PATCH", FIRST_MESSAGE, {"delay_seconds": 60})
        assert (edited["state"], edited["available_at"]) == ("scheduled", "2027-01-15T08:01:00.000000Z")
        edited = await api.request_json("PATCH", FIRST_MESSAGE, {"available_at": "2027-01-15T09:00:00+01:00"})
        assert (edited["state"], edited["available_at"]) == ("available", "2027-01-15T08:00:00.000000Z")
        assert await api.request_json("PATCH", FIRST_MESSAGE) == edited

    @pytest.mark.parametrize("due", [{"delay_seconds": 0}, {"delay_seconds": None}, {"available_at": None}])
    async def test_a_scheduled_message_can_be_made_due(self, api: ApiServer, due: dict[str, Any]) -> None:
        await api.send(delay_seconds=60)
        assert (await api.request_json("PATCH", FIRST_MESSAGE, due))["state"] == "available"
        assert len(await api.receive()) == 1

    async def test_null_removes_a_value(self, api: ApiServer) -> None:
        await api.send(properties={"a": 1}, priority=9)
        edited = await api.request_json("PATCH", FIRST_MESSAGE, {"priority": None, "properties": None})
        assert edited["priority"] == 4
        assert "properties" not in edited

    async def test_a_locked_message_cannot_be_edited(self, api: ApiServer) -> None:
        await api.send()
        await api.receive()
        locked = problem(await api.request("PATCH", FIRST_MESSAGE, {"priority": 9}), 409, "message-locked")
        assert locked["retryable"] is True

    @pytest.mark.parametrize("verb", ["defer", "dead-letter"])
    async def test_a_deferred_or_dead_lettered_message_has_no_due_time(self, api: ApiServer, verb: str) -> None:
        await api.send()
        (message,) = await api.receive()
        await api.settle(message, verb)
        problem(await api.request("PATCH", FIRST_MESSAGE, {"delay_seconds": 1}), 409, "conflict")
        assert (await api.request_json("PATCH", FIRST_MESSAGE, {"priority": 9}))["priority"] == 9

    @pytest.mark.parametrize(
        ("change", "pointer"),
        [
            ({"priority": 10}, "/priority"),
            ({"delay_seconds": -1}, "/delay_seconds"),
            ({"delay_seconds": 1, "available_at": None}, "/delay_seconds"),
            ({"available_at": "soon"}, "/available_at"),
            ({"available_at": "9500-01-01T00:00:00Z"}, "/available_at"),
            ({"properties": {"a": []}}, "/properties/a"),
            ({"properties": {f"p{n}": n for n in range(64)}}, "/properties"),
            ({"body": 1}, "/body"),
        ],
    )
    async def test_an_invalid_edit_changes_nothing(self, api: ApiServer, change: dict[str, Any], pointer: str) -> None:
        await api.send(properties={"mine": 1})
        before = await api.request_json("GET", FIRST_MESSAGE)
        assert pointers(await api.request("PATCH", FIRST_MESSAGE, change)) == [pointer]
        assert await api.request_json("GET", FIRST_MESSAGE) == before

    async def test_an_edit_may_require_an_etag(self, api: ApiServer) -> None:
        await api.send()
        tag = (await api.request("GET", FIRST_MESSAGE)).headers["etag"]
        changed = await api.request("PATCH", FIRST_MESSAGE, {"properties": {"a": 1}}, headers={"If-Match": tag})
        assert changed.headers["etag"] != tag
        for method in ("PATCH", "DELETE"):
            answer = await api.request(method, FIRST_MESSAGE, headers={"If-Match": tag})
            problem(answer, 412, "precondition-failed")
        either = f"{tag}, {changed.headers['etag']}"
        assert (await api.request("DELETE", FIRST_MESSAGE, headers={"If-Match": either})).status_code == 204


class TestCancel:
    """A message can be cancelled while it is not locked."""

    async def test_a_cancelled_message_is_in_the_archive(self, api: ApiServer) -> None:
        await one_of_each(api)
        for number in (1, 3, 4, 5):
            answer = await api.request("DELETE", f"/queues/orders/messages/{number}")
            assert (answer.status_code, answer.content) == (204, b"")
        assert await api.counts() == {"locked": 1}

    async def test_a_locked_message_cannot_be_cancelled(self, api: ApiServer) -> None:
        await api.send()
        (message,) = await api.receive()
        problem(await api.request("DELETE", FIRST_MESSAGE), 409, "message-locked")
        assert (await api.settle(message, "complete")).is_success


class TestRedrive:
    """A redrive moves dead letters to their own or another queue and resets their counts."""

    PATH = "/queues/orders/dead-letter/redrive"

    async def dead_letter(self, api: ApiServer, count: int) -> None:
        for n in range(count):
            await api.send(body=n, properties={"n": n})
        for message in await api.receive(max_messages=count):
            await api.settle(message, "abandon", count=True)
        for message in await api.receive(max_messages=count):
            await api.settle(message, "dead-letter", reason="bad")

    async def test_they_return_with_their_counts_reset(self, api: ApiServer) -> None:
        await self.dead_letter(api, 2)
        assert await api.request_json("POST", self.PATH) == {"moved": 2}
        messages = await api.receive(max_messages=9)
        assert [message["body"] for message in messages] == [0, 1]
        for message in messages:
            assert (message["delivery_count"], message["failure_count"]) == (1, 0)
            assert not {"dead_letter_reason", "last_failure", "dead_lettered_at"} & message.keys()
        assert await api.request_json("POST", self.PATH) == {"moved": 0}

    async def test_filter_and_limit_select(self, api: ApiServer) -> None:
        await self.dead_letter(api, 5)
        assert await api.request_json("POST", self.PATH, {"filter": "message.properties.n == 3"}) == {"moved": 1}
        assert await api.request_json("POST", self.PATH, {"limit": 2}) == {"moved": 2}
        assert await api.counts() == {"available": 3, "dead_lettered": 2}

    async def test_they_may_move_to_another_queue(self, api: ApiServer) -> None:
        await self.dead_letter(api, 1)
        missing = problem(await api.request("POST", self.PATH, {"to_queue": "repairs"}), 404, "queue-not-found")
        assert missing["errors"] == [{"pointer": "#/body/to_queue", "detail": "There is no queue named repairs."}]
        await api.request_json("PUT", "/queues/repairs")
        assert await api.request_json("POST", self.PATH, {"to_queue": "repairs"}) == {"moved": 1}
        assert (await api.counts(), await api.counts("repairs")) == ({}, {"available": 1})
        await api.request_json("PATCH", "/queues/repairs", {"status": "send_disabled"})
        problem(await api.request("POST", self.PATH, {"to_queue": "repairs"}), 403, "send-disabled")

    async def test_another_queue_accepts_messages_up_to_its_limit(self, api: ApiServer) -> None:
        await self.dead_letter(api, 5)
        await api.request_json("PUT", "/queues/repairs", {"max_messages": 2})
        assert await api.request_json("POST", self.PATH, {"to_queue": "repairs"}) == {"moved": 2}
        assert (await api.counts(), await api.counts("repairs")) == ({"dead_lettered": 3}, {"available": 2})
        problem(await api.request("POST", self.PATH, {"to_queue": "repairs"}), 507, "queue-full")
        assert await api.counts() == {"dead_lettered": 3}
        none = {"to_queue": "repairs", "filter": "message.properties.n == 9"}
        assert await api.request_json("POST", self.PATH, none) == {"moved": 0}

    async def test_a_dry_run_answers_what_the_redrive_would_move(self, api: ApiServer) -> None:
        await self.dead_letter(api, 5)
        await api.request_json("PUT", "/queues/repairs", {"max_messages": 2})
        wanted = {"to_queue": "repairs", "filter": "message.properties.n > 0"}
        plan = await api.request_json("POST", self.PATH, {**wanted, "dry_run": True})
        sample = plan.pop("sample")
        assert plan == {"moved": 0, "count": 2, "bytes": 2 * len('1{"n":1}'), "complete": True}
        assert [(message["state"], message["dead_letter_reason"]) for message in sample] == [
            ("dead_lettered", "bad")
        ] * 2
        assert await api.counts() == {"dead_lettered": 5}
        assert await api.request_json("POST", self.PATH, wanted) == {"moved": 2}
        problem(await api.request("POST", self.PATH, {**wanted, "dry_run": True}), 507, "queue-full")

    async def test_what_is_too_large_for_another_queue_stays(self, api: ApiServer) -> None:
        await self.dead_letter(api, 11)  # the body of the last has one digit more
        await api.request_json("PUT", "/queues/repairs", {"max_message_bytes": len('0{"n":0}')})
        assert await api.request_json("POST", self.PATH, {"to_queue": "repairs", "limit": 10}) == {"moved": 10}
        assert await api.request_json("POST", self.PATH, {"to_queue": "repairs"}) == {"moved": 0}
        assert await api.counts() == {"dead_lettered": 1}

    async def test_a_full_queue_accepts_its_own_dead_letters(self, api: ApiServer) -> None:
        await self.dead_letter(api, 3)
        await api.request_json("PATCH", "/queues/orders", {"max_messages": 1})
        assert await api.request_json("POST", self.PATH) == {"moved": 3}
        assert await api.counts() == {"available": 3}

    async def test_a_slow_redrive_stops_when_the_other_queue_is_full(self, api: ApiServer) -> None:
        await self.dead_letter(api, 9)
        await api.request_json("PUT", "/queues/repairs", {"max_messages": 3})
        assert await self.redrive_slowly(api, to_queue="repairs", rate_per_second=2) == ({"moved": 3}, 1.5)

    async def test_a_slow_redrive_answers_in_time_with_the_moved_count(self, api: ApiServer) -> None:
        await self.dead_letter(api, 9)
        assert await self.redrive_slowly(api, rate_per_second=0.1) == ({"moved": 4}, 40)
        assert await self.redrive_slowly(api, rate_per_second=2) == ({"moved": 5}, 2.5)

    async def test_consecutive_redrives_keep_the_rate(self, api: ApiServer) -> None:
        await self.dead_letter(api, 5)
        for _ in range(5):
            assert await self.redrive_slowly(api, rate_per_second=0.02) == ({"moved": 1}, 50)
        assert await self.redrive_slowly(api, rate_per_second=0.02) == ({"moved": 0}, 0)
        await self.dead_letter(api, 2)
        assert await self.redrive_slowly(api, rate_per_second=4, limit=1) == ({"moved": 1}, 0.5)

    async def test_a_rate_too_slow_for_any_answer_is_refused(self, api: ApiServer) -> None:
        await self.dead_letter(api, 1)
        refused = problem(await api.request("POST", self.PATH, {"rate_per_second": 0.0199}), 422, "invalid-request")
        assert refused["errors"] == [
            {
                "pointer": "#/body/rate_per_second",
                "detail": "Not one message goes at this rate in the 50 seconds that an answer may take.",
            }
        ]
        assert await api.counts() == {"dead_lettered": 1}

    async def redrive_slowly(self, api: ApiServer, **wanted: Any) -> tuple[Any, float]:
        """Return the answer, and how long the redrive slept."""
        begun = api.clock.monotonic()
        task = asyncio.create_task(api.request_json("POST", self.PATH, wanted))
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while not task.done():
                await (api.clock.advance(0.5) if api.clock.timers else asyncio.sleep(0.001))
        return await task, api.clock.monotonic() - begun

    @pytest.mark.parametrize(
        ("wanted", "pointer"),
        [
            ({"limit": 0}, "/limit"),
            ({"rate_per_second": 0}, "/rate_per_second"),
            ({"filter": "("}, "/filter"),
            ({"to_queue": 1}, "/to_queue"),
            ({"queue": "x"}, "/queue"),
        ],
    )
    async def test_an_invalid_redrive_moves_nothing(self, api: ApiServer, wanted: dict[str, Any], pointer: str) -> None:
        await self.dead_letter(api, 1)
        assert pointers(await api.request("POST", self.PATH, wanted)) == [pointer]
        assert await api.counts() == {"dead_lettered": 1}


@pytest.mark.parametrize(("method", "path", "pointer"), FILTERED)
async def test_a_filter_is_counted_in_bytes(api: ApiServer, method: str, path: str, pointer: str) -> None:
    await api.send()

    def asked(source: str) -> dict[str, Any]:
        return {"params": {"filter": source}} if method == "GET" else {"body": {"filter": source}}

    fits = f"message.subject == 'x{'é' * 501}'"
    assert len(fits.encode()) == 1024
    assert (await api.request(method, path, **asked(fits))).status_code == 200
    answer = await api.request(method, path, **asked(f" {fits}"))
    assert pointers(answer) == [pointer]
    assert answer.json()["detail"] == "A filter has at most 1024 bytes."
