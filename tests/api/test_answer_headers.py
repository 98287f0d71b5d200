"""Headers that lead on from an answer: to what was created, to the next page, and to what the client has already."""

from __future__ import annotations

import pytest

from app.http.local_access import LOCAL_ADMIN
from tests.api.api_server import ApiServer


class TestLocation:
    @pytest.mark.parametrize(
        "path",
        ["/queues/orders", "/topics/sales", "/topics/sales/subscriptions/eu"],
        ids=lambda path: path.split("/")[-2],
    )
    async def test_what_a_put_creates_is_at_its_own_path(self, api: ApiServer, path: str) -> None:
        if "subscriptions" in path:
            await api.request_json("PUT", "/topics/sales", {})
        created, replaced = [await api.request("PUT", path, {}) for _ in range(2)]
        assert (created.status_code, created.headers["location"]) == (201, f"/v1{path}")
        assert (replaced.status_code, "location" in replaced.headers) == (200, False)

    @pytest.mark.parametrize("verb", ["messages", "messages/raw"])
    @pytest.mark.parametrize("key", [None, "once"])
    async def test_a_sent_message_can_be_read_there(self, api: ApiServer, verb: str, key: str | None) -> None:
        await api.send()
        headers = {"Idempotency-Key": key} if key else {}
        sent = await api.request("POST", f"/queues/orders/{verb}", {"subject": "second"}, headers=headers)
        assert sent.headers["location"] == f"/v1/queues/orders/messages/{sent.json()['sequence_number']}"
        read = await api.http.get(sent.headers["location"])
        assert read.json()["message_id"] == sent.json()["message_id"]

    async def test_a_message_that_is_elsewhere_or_not_yet_stored_has_no_location(self, api: ApiServer) -> None:
        await api.request_json("PUT", "/queues/last", {})
        await api.request_json("PUT", "/queues/first", {"forward_to": "last"})
        forwarded = await api.request("POST", "/queues/first/messages", {})
        transaction = await api.request("POST", "/transactions", {})
        uncommitted = await api.request("POST", "/queues/last/messages", {"transaction_id": transaction.json()["id"]})
        volatile = await api.request("POST", "/queues/last/messages", {"durability": "volatile"})
        assert [answer.status_code for answer in (forwarded, uncommitted, volatile)] == [201, 201, 202]
        assert not any("location" in answer.headers for answer in (forwarded, uncommitted, volatile))

    async def test_an_opened_transaction_and_a_key_can_be_found(self, api: ApiServer) -> None:
        opened = await api.request("POST", "/transactions", {})
        assert (await api.http.get(opened.headers["location"])).json()["id"] == opened.json()["id"]
        created = await api.request(
            "POST", "/keys", {"principal": "shop", "rights": ["send"]}, headers={LOCAL_ADMIN: "true"}
        )
        assert created.headers["location"] == f"/v1/keys/{created.json()['id']}"


class TestNextPage:
    async def test_the_link_leads_to_the_next_page_until_the_last_one(self, api: ApiServer) -> None:
        for number in range(5):
            await api.send(subject=f"{number}")
        url, subjects = "/v1/queues/orders/messages?limit=2&state=available&filter=message.priority%20>%200", []
        while url:
            page = await api.http.get(url)
            subjects.append([message["subject"] for message in page.json()["items"]])
            url = page.links.get("next", {}).get("url", "")
        assert subjects == [["0", "1"], ["2", "3"], ["4"]]

    async def test_every_list_has_one(self, api: ApiServer) -> None:
        for name in ("a", "b"):
            await api.request_json("PUT", f"/queues/{name}", {})
            await api.request_json("PUT", f"/topics/{name}", {})
            await api.request_json("PUT", f"/topics/a/subscriptions/{name}", {"target_queue": name})
        for path in ("queues", "topics", "topics/a/subscriptions"):
            page = await api.http.get(f"/v1/{path}", params={"limit": 1})
            assert page.headers["link"] == f'</v1/{path}?limit=1&cursor=a>; rel="next"'
            last = await api.http.get(page.links["next"]["url"])
            assert (len(last.json()["items"]), "link" in last.headers) == (1, False)


class TestUnchanged:
    @pytest.mark.parametrize("path", ["/queues/orders/messages/1", "/topics/sales", "/topics/sales/subscriptions/eu"])
    async def test_a_client_that_has_it_gets_no_body(self, api: ApiServer, path: str) -> None:
        await api.send()
        await api.request_json("PUT", "/topics/sales", {})
        await api.request_json("PUT", "/topics/sales/subscriptions/eu", {})
        first = await api.request("GET", path)
        for tags in (first.headers["etag"], f'"other", W/{first.headers["etag"]}', "*"):
            again = await api.request("GET", path, headers={"If-None-Match": tags})
            assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", first.headers["etag"])
        other = await api.request("GET", path, headers={"If-None-Match": '"other"'})
        assert (other.status_code, other.json()) == (200, first.json())

    async def test_a_message_that_has_changed_is_sent_again(self, api: ApiServer) -> None:
        await api.send()
        before = (await api.request("GET", "/queues/orders/messages/1")).headers["etag"]
        await api.receive()
        after = await api.request("GET", "/queues/orders/messages/1", headers={"If-None-Match": before})
        assert (after.status_code, after.json()["state"]) == (200, "locked")

    async def test_a_body_never_changes(self, api: ApiServer) -> None:
        await api.send(body="x")
        path = "/queues/orders/messages/1/body"
        tag = (await api.request("GET", path)).headers["etag"]
        await api.receive()
        again = await api.request("GET", path, headers={"If-None-Match": tag})
        assert (again.status_code, again.content) == (304, b"")

    async def test_tags_may_be_in_several_headers(self, api: ApiServer) -> None:
        await api.send()
        path = "/v1/queues/orders/messages/1"
        tag = (await api.http.get(path)).headers["etag"]
        again = await api.http.get(path, headers=[("If-None-Match", '"other"'), ("If-None-Match", tag)])
        assert again.status_code == 304
        edited = await api.http.patch(path, json={"priority": 9}, headers=[("If-Match", '"other"'), ("If-Match", tag)])
        assert (edited.status_code, edited.json()["priority"]) == (200, 9)

    async def test_an_answer_204_has_no_headers_of_a_body(self, api: ApiServer) -> None:
        await api.send()
        cancelled = await api.request("DELETE", "/queues/orders/messages/1")
        assert (cancelled.status_code, {"content-type", "content-length"} & set(cancelled.headers)) == (204, set())

    async def test_an_answer_304_has_no_headers_of_a_body(self, api: ApiServer) -> None:
        await api.send(body="x", content_type="text/plain")
        path = "/queues/orders/messages/1/body"
        tag = (await api.request("GET", path)).headers["etag"]
        again = await api.request("GET", path, headers={"If-None-Match": tag})
        assert (again.headers["etag"], {"content-type", "content-length"} & set(again.headers)) == (tag, set())
