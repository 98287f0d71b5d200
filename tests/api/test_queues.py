"""Queues: created, changed with preconditions, purged and deleted."""

import asyncio
from typing import Any

import httpx
import pytest

from app.domain.queue import QueueSettings
from tests.api.api_server import ApiServer, pointers, problem
from tests.bounds import bounded

DEFAULTS = {
    "lock_duration_seconds": 30,
    "max_delivery_count": 10,
    "default_ttl_seconds": None,
    "dead_letter_on_expiry": False,
    "duplicate_detection_window_seconds": None,
    "retry": {"kind": "none"},
    "archive_retention_seconds": 604_800,
    "max_message_bytes": 1 << 20,
    "max_messages": None,
    "status": "active",
    "redelivery": "automatic",
    "description": "",
    "group_in_flight": None,
    "history": False,
    "forward_to": None,
    "forward_dead_letters_to": None,
    "default_delay_seconds": None,
    "default_wait_seconds": None,
    "labels": {},
}
OTHER = {
    "lock_duration_seconds": 60.5,
    "max_delivery_count": 3,
    "default_ttl_seconds": 3600,
    "dead_letter_on_expiry": True,
    "duplicate_detection_window_seconds": 600,
    "retry": {"kind": "exponential", "first_seconds": 1, "factor": 3, "max_seconds": 60, "jitter": 0.5},
    "archive_retention_seconds": 0,
    "max_message_bytes": 1000,
    "max_messages": 50,
    "status": "send_disabled",
    "redelivery": "on_request",
    "description": "Orders of the shop.",
    "group_in_flight": 5,
    "history": True,
    "forward_to": "elsewhere",
    "forward_dead_letters_to": "elsewhere",
    "default_delay_seconds": 90.5,
    "default_wait_seconds": 20,
    "labels": {"team": "payments", "sqs:ContentBasedDeduplication": "true"},
}


@pytest.fixture
async def elsewhere(api: ApiServer) -> None:
    """The queue to which `OTHER` forwards."""
    await api.request_json("PUT", "/queues/elsewhere", {})


def settings_of(answer: Any) -> dict[str, Any]:
    return {name: answer[name] for name in DEFAULTS}


def test_every_setting_has_its_field() -> None:
    assert len(DEFAULTS) == len(QueueSettings.__dataclass_fields__)


@pytest.mark.usefixtures("elsewhere")
class TestPut:
    """PUT creates a queue, or replaces its settings."""

    async def test_a_new_queue_has_the_defaults(self, api: ApiServer) -> None:
        answer = await api.request("PUT", "/queues/orders", {})
        assert answer.status_code == 201
        assert settings_of(answer.json()) == DEFAULTS
        assert answer.json()["name"] == "orders"
        assert answer.json()["created_at"] == answer.json()["updated_at"] == "2027-01-15T08:00:00.000000Z"

    async def test_the_body_may_be_left_out(self, api: ApiServer) -> None:
        assert settings_of((await api.request("PUT", "/queues/orders")).json()) == DEFAULTS

    async def test_given_settings_are_kept_and_the_others_have_defaults(self, api: ApiServer) -> None:
        assert settings_of(await api.request_json("PUT", "/queues/orders", OTHER)) == OTHER
        assert settings_of(await api.request_json("GET", "/queues/orders")) == OTHER
        answer = await api.request("PUT", "/queues/orders", {"max_delivery_count": 3})
        assert answer.status_code == 200
        assert settings_of(answer.json()) == {**DEFAULTS, "max_delivery_count": 3}

    async def test_equal_settings_change_nothing(self, api: ApiServer) -> None:
        first = await api.request("PUT", "/queues/orders", OTHER)
        await api.clock.advance(1)
        second = await api.request("PUT", "/queues/orders", OTHER)
        assert second.status_code == 200
        assert (second.headers["etag"], second.json()) == (first.headers["etag"], first.json())

    @pytest.mark.parametrize(
        "retry",
        [
            {"kind": "none"},
            {"kind": "fixed", "delay_seconds": 5},
            {"kind": "linear", "first_seconds": 1, "step_seconds": 2, "max_seconds": 9},
            {"kind": "exponential", "first_seconds": 0.5, "factor": 2, "max_seconds": 9, "jitter": 1},
            {"kind": "list", "delays_seconds": [1, 5, 25]},
        ],
    )
    async def test_retry_policies(self, api: ApiServer, retry: dict[str, Any]) -> None:
        assert (await api.request_json("PUT", "/queues/orders", {"retry": retry}))["retry"] == retry
        assert (await api.request_json("GET", "/queues/orders"))["retry"] == retry

    @pytest.mark.parametrize(
        ("settings", "pointer"),
        [
            ({"lock_duration_seconds": 0.5}, "/lock_duration_seconds"),
            ({"lock_duration_seconds": 43_201}, "/lock_duration_seconds"),
            ({"max_delivery_count": 0}, "/max_delivery_count"),
            ({"max_delivery_count": 2.5}, "/max_delivery_count"),
            ({"default_ttl_seconds": 0}, "/default_ttl_seconds"),
            ({"default_delay_seconds": -0.001}, "/default_delay_seconds"),
            ({"default_delay_seconds": 604_800.001}, "/default_delay_seconds"),
            ({"default_delay_seconds": True}, "/default_delay_seconds"),
            ({"default_delay_seconds": "10"}, "/default_delay_seconds"),
            ({"default_wait_seconds": -1}, "/default_wait_seconds"),
            ({"default_wait_seconds": 3600.001}, "/default_wait_seconds"),
            ({"default_wait_seconds": True}, "/default_wait_seconds"),
            ({"labels": None}, "/labels"),
            ({"labels": ["a"]}, "/labels"),
            ({"labels": {"a": 1}}, "/labels"),
            ({"labels": {"a": None}}, "/labels"),
            ({"labels": {"": "a"}}, "/labels"),
            ({"labels": {"a": "nul\0"}}, "/labels"),
            ({"labels": {"n" * 129: ""}}, "/labels"),
            ({"labels": {"a": "v" * 1025}}, "/labels"),
            ({"labels": {f"{number}": "" for number in range(51)}}, "/labels"),
            ({"duplicate_detection_window_seconds": 604_801}, "/duplicate_detection_window_seconds"),
            ({"archive_retention_seconds": -1}, "/archive_retention_seconds"),
            ({"max_message_bytes": 0}, "/max_message_bytes"),
            ({"max_message_bytes": 65 << 20}, "/max_message_bytes"),
            ({"max_messages": 0}, "/max_messages"),
            ({"status": "asleep"}, "/status"),
            ({"description": "x" * 1025}, "/description"),
            ({"description": "nul\0"}, "/description"),
            ({"dead_letter_on_expiry": None}, "/dead_letter_on_expiry"),
            ({"retry": {"kind": "random"}}, "/retry/kind"),
            ({"retry": {}}, "/retry/kind"),
            ({"retry": {"kind": "fixed"}}, "/retry/delay_seconds"),
            ({"retry": {"kind": "fixed", "delay_seconds": 1, "factor": 2}}, "/retry/factor"),
            ({"retry": {"kind": "list", "delays_seconds": []}}, "/retry/delays_seconds"),
            ({"retry": {"kind": "list", "delays_seconds": [1, -1]}}, "/retry/delays_seconds/1"),
            ({"lock_seconds": 30}, "/lock_seconds"),
            ({"ordering": "standard"}, "/ordering"),
        ],
    )
    async def test_invalid_settings_change_nothing(
        self, api: ApiServer, settings: dict[str, Any], pointer: str
    ) -> None:
        assert pointers(await api.request("PUT", "/queues/orders", settings)) == [pointer]
        problem(await api.request("GET", "/queues/orders"), 404, "queue-not-found")

    @pytest.mark.parametrize("name", ["a", "Z9", "a.b_c-d", "x" * 128])
    async def test_valid_names_are_accepted(self, api: ApiServer, name: str) -> None:
        assert (await api.request_json("PUT", f"/queues/{name}"))["name"] == name

    @pytest.mark.parametrize(
        "name", ["-a", "a.", "_", "x" * 129, "a%20b", "%C3%BC", "a%00", "a%0A", "%FF", "a%2B", "a%2Fb"]
    )
    async def test_invalid_names_are_refused(self, api: ApiServer, name: str) -> None:
        for method in ("PUT", "GET", "PATCH", "DELETE"):
            assert pointers(await api.request(method, f"/queues/{name}")) == ["#/path/queue"]
        assert pointers(await api.request("POST", f"/queues/{name}/messages")) == ["#/path/queue"]

    async def test_a_name_never_extends_beyond_its_path_segment(self, api: ApiServer) -> None:
        sent = await api.send("orders")
        path = f"/queues/orders%2Fmessages%2F{sent['sequence_number']}"
        assert pointers(await api.request("DELETE", path)) == ["#/path/queue"]
        assert await api.counts("orders") == {"available": 1}


class TestVersions:
    """A change may require the version of an ETag."""

    async def change(self, api: ApiServer, method: str, tag: str) -> httpx.Response:
        body = None if method == "DELETE" else {"max_delivery_count": 7}
        return await api.request(method, "/queues/orders", body, headers={"If-Match": tag})

    async def test_a_change_gives_a_new_tag(self, api: ApiServer) -> None:
        made = await api.request("PUT", "/queues/orders")
        changed = await api.request("PATCH", "/queues/orders", {"max_delivery_count": 7})
        seen = await api.request("GET", "/queues/orders")
        assert made.headers["etag"] != changed.headers["etag"] == seen.headers["etag"]

    @pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE"])
    async def test_a_change_with_the_current_tag_takes_effect(self, api: ApiServer, method: str) -> None:
        tag = (await api.request("PUT", "/queues/orders")).headers["etag"]
        assert (await self.change(api, method, tag)).is_success

    @pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE"])
    @pytest.mark.parametrize("tag", ["{}", '"1"', "garbled", '"x"', "", "*, {}", '"x", "y"'])
    async def test_a_change_with_an_old_tag_is_refused(self, api: ApiServer, method: str, tag: str) -> None:
        tag = tag.format((await api.request("PUT", "/queues/orders")).headers["etag"])
        await api.request_json("PATCH", "/queues/orders", {"max_delivery_count": 5})
        problem(await self.change(api, method, tag), 412, "precondition-failed")
        assert (await api.request_json("GET", "/queues/orders"))["max_delivery_count"] == 5

    @pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE"])
    async def test_a_star_matches_any_existing_queue(self, api: ApiServer, method: str) -> None:
        missing = await self.change(api, method, "*")
        problem(missing, *((412, "precondition-failed") if method == "PUT" else (404, "queue-not-found")))
        await api.request_json("PUT", "/queues/orders")
        assert (await self.change(api, method, "*")).is_success

    @pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE"])
    @pytest.mark.parametrize("tags", ["{}", "W/{}", '"x", {}', '{},"x"', ' "a,b" , W/{} ,', '"", {}'])
    async def test_one_of_several_tags_is_enough(self, api: ApiServer, method: str, tags: str) -> None:
        tag = (await api.request("PUT", "/queues/orders")).headers["etag"]
        assert (await self.change(api, method, tags.format(tag))).is_success

    async def test_tags_may_be_in_several_headers(self, api: ApiServer) -> None:
        tag = (await api.request("PUT", "/queues/orders")).headers["etag"]
        headers = [("If-Match", '"x"'), ("If-Match", tag)]
        assert (await api.request("DELETE", "/queues/orders", headers=headers)).is_success

    @pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE"])
    async def test_a_tag_does_not_match_a_recreated_queue(self, api: ApiServer, method: str) -> None:
        tag = (await api.request("PUT", "/queues/orders")).headers["etag"]
        await api.request_json("DELETE", "/queues/orders")
        again = await api.request("PUT", "/queues/orders")
        assert again.headers["etag"] != tag
        problem(await self.change(api, method, tag), 412, "precondition-failed")

    async def test_a_tag_matches_no_missing_queue(self, api: ApiServer) -> None:
        problem(await self.change(api, "PUT", '"1"'), 412, "precondition-failed")
        assert (await api.request_json("GET", "/queues"))["items"] == []


class TestManyAtOnce:
    """Concurrent changes without a precondition apply one after the other; with the same ETag only one succeeds."""

    async def test_no_change_is_lost_or_refused(self, api: ApiServer) -> None:
        await api.request_json("PUT", "/queues/orders")
        patches = [
            {"max_delivery_count": 7},
            {"max_messages": 8},
            {"description": "mine"},
            {"lock_duration_seconds": 9},
        ]
        await asyncio.gather(*(api.request_json("PATCH", "/queues/orders", patch) for patch in patches * 5))
        seen = await api.request_json("GET", "/queues/orders")
        assert all(seen[name] == value for patch in patches for name, value in patch.items())

    async def test_one_of_several_replacements_wins(self, api: ApiServer) -> None:
        wanted = [{"max_delivery_count": n} for n in range(1, 21)]
        made = await asyncio.gather(*(api.request("PUT", "/queues/orders", body) for body in wanted))
        assert sorted(answer.status_code for answer in made) == [200] * 19 + [201]

    async def test_a_queue_may_be_changed_and_removed_at_once(self, api: ApiServer) -> None:
        await api.request_json("PUT", "/queues/orders")
        removal = api.request("DELETE", "/queues/orders")
        changes = [api.request("PUT", "/queues/orders", {"max_delivery_count": n}) for n in range(1, 9)]
        removed, *changed = await asyncio.gather(removal, *changes)
        assert removed.status_code == 204
        assert {answer.status_code for answer in changed} <= {200, 201}

    @pytest.mark.parametrize("method", ["PUT", "PATCH"])
    async def test_one_of_several_changes_with_the_same_tag_succeeds(self, api: ApiServer, method: str) -> None:
        headers = {"If-Match": (await api.request("PUT", "/queues/orders")).headers["etag"]}
        bodies = [{"max_delivery_count": n} for n in range(1, 9)]
        answers = await asyncio.gather(
            *(api.request(method, "/queues/orders", body, headers=headers) for body in bodies)
        )
        assert sorted(answer.status_code for answer in answers) == [200] + [412] * 7


class TestIfNoneMatch:
    """If-None-Match protects an existing queue."""

    async def make(self, api: ApiServer, tag: str) -> httpx.Response:
        return await api.request("PUT", "/queues/orders", {"max_delivery_count": 7}, headers={"If-None-Match": tag})

    async def test_a_star_creates_and_never_replaces(self, api: ApiServer) -> None:
        assert (await self.make(api, "*")).status_code == 201
        problem(await self.make(api, "*"), 412, "precondition-failed")

    async def test_only_one_of_many_requests_creates_it(self, api: ApiServer) -> None:
        answers = await asyncio.gather(*(self.make(api, "*") for _ in range(8)))
        assert sorted(answer.status_code for answer in answers) == [201] + [412] * 7

    async def test_a_tag_protects_only_that_version(self, api: ApiServer) -> None:
        tag = (await api.request("PUT", "/queues/orders")).headers["etag"]
        problem(await self.make(api, f'"x", {tag}'), 412, "precondition-failed")
        assert (await self.make(api, '"x"')).status_code == 200


@pytest.mark.usefixtures("elsewhere")
class TestPatch:
    """PATCH is a merge patch: what is left out stays, null restores a default."""

    async def test_what_is_left_out_stays(self, api: ApiServer) -> None:
        await api.request_json("PUT", "/queues/orders", OTHER)
        patched = await api.request_json("PATCH", "/queues/orders", {"max_delivery_count": 9})
        assert settings_of(patched) == {**OTHER, "max_delivery_count": 9}
        assert settings_of(await api.request_json("PATCH", "/queues/orders")) == settings_of(patched)

    @pytest.mark.parametrize("name", DEFAULTS)
    async def test_null_restores_the_default(self, api: ApiServer, name: str) -> None:
        await api.request_json("PUT", "/queues/orders", OTHER)
        patched = await api.request_json("PATCH", "/queues/orders", {name: None})
        assert settings_of(patched) == {**OTHER, name: DEFAULTS[name]}

    async def test_a_retry_policy_is_patched_too(self, api: ApiServer) -> None:
        await api.request_json("PUT", "/queues/orders", OTHER)
        patched = await api.request_json("PATCH", "/queues/orders", {"retry": {"first_seconds": 9, "jitter": None}})
        assert patched["retry"] == {**OTHER["retry"], "first_seconds": 9, "jitter": 0}
        fixed = {"kind": "fixed", "delay_seconds": 3}
        assert (await api.request_json("PATCH", "/queues/orders", {"retry": fixed}))["retry"] == fixed

    @pytest.mark.parametrize(
        ("patch", "pointer"),
        [
            ({"retry": {"kind": "linear"}}, "/retry/first_seconds"),
            ({"retry": {"delay_seconds": 3}}, "/retry/delay_seconds"),
            ({"retry": {"first_seconds": -3}}, "/retry/first_seconds"),
            ({"retry": {"kind": None}}, "/retry/kind"),
            ({"retry": []}, "/retry"),
            ({"max_delivery_count": 0}, "/max_delivery_count"),
            ({"nonsense": None}, "/nonsense"),
            ({"name": "other"}, "/name"),
        ],
    )
    async def test_an_invalid_patch_changes_nothing(self, api: ApiServer, patch: dict[str, Any], pointer: str) -> None:
        await api.request_json("PUT", "/queues/orders", OTHER)
        assert pointers(await api.request("PATCH", "/queues/orders", patch)) == [pointer]
        assert settings_of(await api.request_json("GET", "/queues/orders")) == OTHER

    async def test_an_unknown_queue_is_not_found(self, api: ApiServer) -> None:
        problem(await api.request("PATCH", "/queues/orders", {}), 404, "queue-not-found")


async def test_a_queue_shows_its_counts(api: ApiServer) -> None:
    for n in range(6):
        await api.send(delay_seconds=9 if n == 0 else 0)
    for verb in ("renew", "defer", "dead-letter"):
        (message,) = await api.receive()
        await api.settle(message, verb)
    await api.clock.advance(5)
    seen = await api.request_json("GET", "/queues/orders")
    expected = {"available": 2, "scheduled": 1, "locked": 1, "deferred": 1, "dead_lettered": 1}
    expected |= {"blocked": 0, "uncommitted": 0}
    assert (seen["counts"], seen["oldest_available_seconds"]) == (expected, 5)


async def test_an_empty_queue_has_no_oldest_message(api: ApiServer) -> None:
    await api.request_json("PUT", "/queues/orders")
    assert (await api.request_json("GET", "/queues/orders"))["oldest_available_seconds"] is None


async def test_queues_are_listed_by_name_in_pages(api: ApiServer) -> None:
    names = [f"q{n}" for n in range(5)]
    for name in reversed(names):
        await api.request_json("PUT", f"/queues/{name}")
    seen: list[str] = []
    cursor: dict[str, str] = {}
    sizes = []
    for _ in bounded("a page has no next one", len(names)):
        page = await api.request_json("GET", "/queues", params={"limit": 2, **cursor})
        sizes.append(len(page["items"]))
        seen += [queue["name"] for queue in page["items"]]
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}
    assert (seen, sizes) == (names, [2, 2, 1])
    assert (await api.request_json("GET", "/queues", params={"limit": 5}))["next_cursor"] is None


@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        ("limit=0", "#/query/limit"),
        ("limit=1001", "#/query/limit"),
        ("limit=many", "#/query/limit"),
        ("limit=1&limit=2", "#/query/limit"),
        ("cursor=%00", "#/query/cursor"),
        ("cursor=-", "#/query/cursor"),
        ("lmit=5", "#/query/lmit"),
    ],
)
async def test_an_invalid_query_is_refused(api: ApiServer, query: str, pointer: str) -> None:
    assert pointers(await api.request("GET", f"/queues?{query}")) == [pointer]


async def test_a_deleted_queue_is_gone_with_its_messages(api: ApiServer) -> None:
    await api.send()
    answer = await api.request("DELETE", "/queues/orders")
    assert (answer.status_code, answer.content) == (204, b"")
    problem(await api.request("GET", "/queues/orders"), 404, "queue-not-found")
    problem(await api.request("DELETE", "/queues/orders"), 404, "queue-not-found")
    await api.request_json("PUT", "/queues/orders")
    assert await api.counts() == {}


class TestPurge:
    """A purge moves the selected messages to the archive."""

    async def fill(self, api: ApiServer) -> Any:
        for n in range(6):
            await api.send(body=n, delay_seconds=9 if n == 5 else 0, properties={"n": n})
        first, second, third = await api.receive(max_messages=3)
        await api.settle(second, "defer")
        await api.settle(third, "dead-letter")
        return first

    async def purge(self, api: ApiServer, **wanted: Any) -> int:
        return (await api.request_json("POST", "/queues/orders/purge", wanted))["removed"]

    async def test_all_messages_but_locked_ones_are_purged(self, api: ApiServer) -> None:
        message = await self.fill(api)
        assert await self.purge(api) == 5
        assert await api.counts() == {"locked": 1}
        assert (await api.settle(message, "complete")).is_success
        assert await self.purge(api) == 0

    async def test_locked_messages_are_purged_if_the_state_is_named(self, api: ApiServer) -> None:
        message = await self.fill(api)
        assert await self.purge(api, states=["locked", "locked"]) == 1
        lost = problem(await api.settle(message, "complete"), 410, "lock-lost")
        assert (lost["cause"], lost["delivered_again"]) == ("settled_by_administrator", False)

    async def test_states_filter_and_limit_select(self, api: ApiServer) -> None:
        await self.fill(api)
        assert await self.purge(api, states=["dead_lettered", "deferred"]) == 2
        assert await self.purge(api, filter="message.properties.n == 4") == 1
        assert await self.purge(api, limit=1) == 1
        assert await api.counts() == {"locked": 1, "scheduled": 1}

    @pytest.mark.parametrize(
        ("wanted", "pointer"),
        [
            ({"states": []}, "/states"),
            ({"states": ["gone"]}, "/states/0"),
            ({"limit": 0}, "/limit"),
            ({"filter": "("}, "/filter"),
            ({"all": True}, "/all"),
        ],
    )
    async def test_an_invalid_purge_removes_nothing(self, api: ApiServer, wanted: dict[str, Any], pointer: str) -> None:
        await api.send()
        assert pointers(await api.request("POST", "/queues/orders/purge", wanted)) == [pointer]
        assert await api.counts() == {"available": 1}

    async def test_an_unknown_queue_is_not_found(self, api: ApiServer) -> None:
        problem(await api.request("POST", "/queues/orders/purge"), 404, "queue-not-found")

    async def test_a_dry_run_answers_what_the_purge_would_remove(self, api: ApiServer) -> None:
        await self.fill(api)
        before = await api.counts()
        wanted = {"states": ["available", "scheduled"], "filter": "message.properties.n != 3", "limit": 5}
        plan = await api.request_json("POST", "/queues/orders/purge", {**wanted, "dry_run": True})
        assert await api.counts() == before
        sample = plan.pop("sample")
        assert plan == {"removed": 0, "count": 2, "bytes": 2 * len('0{"n":0}'), "complete": True}
        assert [message["state"] for message in sample] == ["available", "scheduled"]
        seen = await api.request_json("GET", f"/queues/orders/messages/{sample[0]['sequence_number']}")
        assert sample[0].items() <= seen.items()
        assert await self.purge(api, **wanted) == 2


class TestPlanOfDeletion:
    """The plan of a deletion counts every message, and the queue stays."""

    async def test_a_dry_run_counts_messages_in_every_state(self, api: ApiServer) -> None:
        await api.send(body=1)
        await api.send(body=2, delay_seconds=60)
        await api.receive()
        before = await api.counts()
        answer = await api.request("DELETE", "/queues/orders?dry_run=true")
        assert answer.status_code == 200
        plan = answer.json()
        assert [message["state"] for message in plan.pop("sample")] == ["locked", "scheduled"]
        assert plan == {"count": 2, "bytes": 2, "complete": True}
        assert await api.counts() == before
        assert (await api.request("DELETE", "/queues/orders?dry_run=false")).status_code == 204

    async def test_a_dry_run_is_refused_as_the_deletion_is(self, api: ApiServer) -> None:
        problem(await api.request("DELETE", "/queues/orders?dry_run=true"), 404, "queue-not-found")
        await api.request_json("PUT", "/queues/orders")
        refused = await api.request("DELETE", "/queues/orders?dry_run=true", headers={"If-Match": '"x"'})
        problem(refused, 412, "precondition-failed")

    async def test_a_dry_run_of_the_target_of_a_subscription_is_refused(self, api: ApiServer) -> None:
        await api.request_json("PUT", "/topics/orders", {})
        await api.request_json("PUT", "/topics/orders/subscriptions/all", {})
        for query in ("", "?dry_run=true"):
            problem(await api.request("DELETE", f"/queues/orders.all{query}"), 409, "queue-is-target")

    @pytest.mark.parametrize("query", ["dryrun=true", "dry_run=maybe", "dry_run=true&dry_run=false"])
    async def test_a_misspelt_parameter_deletes_nothing(self, api: ApiServer, query: str) -> None:
        await api.request_json("PUT", "/queues/orders")
        problem(await api.request("DELETE", f"/queues/orders?{query}"), 422, "invalid-request")
        assert await api.counts() == {}
