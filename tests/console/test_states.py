"""States are listed with their versions. The page of one shows a value and what differs between two versions."""

import html
import json
import re
from typing import Any

import pytest

from app.console.differences import MAX_COMPARED_BYTES, MAX_DIFFERENCES, Difference, differences
from app.console.states import VERSIONS
from app.domain.access import Right
from tests.console.console_server import ConsoleServer, token_of

PAGE = "/states/customer.17"


async def add_version(console: ConsoleServer, number: int, value: Any, key: str = "customer.17") -> None:
    """Add a version to a state."""
    await console.api.send(body=number)
    (message,) = await console.api.receive()
    state = {"key": key, "if_version": number - 1, "value": value}
    assert (await console.api.settle(message, "commit", state=state)).is_success


def listed_versions(page: str) -> list[int]:
    """The versions of the table."""
    return [int(number) for number in re.findall(r"\?version=(\d+)[\"&][^>]*>\d", page)]


def compared(page: str) -> list[tuple[str, ...]]:
    """The rows of the comparison: member, before, after."""
    rows = re.findall(r'<tr><th scope="row" class="wrap code">.*?</tr>', page, re.DOTALL)
    return [tuple(re.findall(r">([^<>]+)</(?:th|code|span)>", row)) for row in rows]


async def test_states_are_listed_by_key(console: ConsoleServer) -> None:
    assert "There is no state yet." in await console.page("/states")
    for key in ("b", "a"):
        await add_version(console, 1, {}, key)
    assert re.findall(r'href="/console/states/(\w)"', await console.page("/states")) == ["a", "b"]
    assert re.findall(r'href="/console/states/(\w)"', await console.page("/states?after=a")) == ["b"]


async def test_the_newest_version_is_shown_with_what_it_has_changed(console: ConsoleServer) -> None:
    await add_version(console, 1, {"name": "<b>Ada</b>", "orders": 1})
    await add_version(console, 2, {"name": "<b>Ada</b>", "orders": 2, "tags": ["new"]})
    page = await console.page(PAGE)
    assert re.findall(r"\?version=(\d)", page) == ["2", "1"]
    assert compared(page) == [("/orders", "1", "2"), ("/tags", "not there", "an array of 1")]
    assert "&lt;b&gt;Ada&lt;/b&gt;" in page
    assert "<b>Ada</b>" not in page


async def test_any_two_versions_are_compared(console: ConsoleServer) -> None:
    for number in (1, 2, 3):
        await add_version(console, number, {"n": number * 10})
    assert compared(await console.page(f"{PAGE}?version=1&with=3")) == [("/n", "30", "10")]
    assert "Both versions have the same value." in await console.page(f"{PAGE}?version=2&with=2")
    assert compared(await console.page(f"{PAGE}?version=1")) == [("the whole value", "null", "an object of 1")]
    assert "Version 9 is not kept any more." in await console.page(f"{PAGE}?version=3&with=9")
    assert (await console.get(f"{PAGE}?version=9")).status_code == 404


async def test_older_versions_are_on_further_pages(console: ConsoleServer) -> None:
    for number in range(1, VERSIONS + 3):
        await add_version(console, number, number)
    newest = await console.page(PAGE)
    assert listed_versions(newest) == list(range(VERSIONS + 2, 2, -1))
    (more,) = re.findall(r'rel="next" href="/console/states/customer.17([^"]+)"', newest)
    older = await console.page(PAGE + html.unescape(more))
    assert listed_versions(older) == [2, 1]
    assert "Older versions" not in older


async def test_a_page_that_ends_with_the_first_version_leads_to_no_further_one(console: ConsoleServer) -> None:
    for number in range(1, VERSIONS + 1):
        await add_version(console, number, number)
    page = await console.page(PAGE)
    assert listed_versions(page)[-1] == 1
    assert "Older versions" not in page


async def test_a_value_needs_the_right_to_listen_and_a_deletion_that_to_manage(
    console_with_keys: ConsoleServer,
) -> None:
    api = console_with_keys.api
    api.http.headers["authorization"] = f"Bearer {await api.new_key(*Right, principal='admin')}"
    await add_version(console_with_keys, 1, {"secret": "hidden value"})
    await console_with_keys.sign_in(await api.new_key(Right.BROWSE))
    page = await console_with_keys.page(PAGE)
    assert "hidden value" not in page
    assert "Your key may not read values" in page
    assert "Delete" not in page
    response = await console_with_keys.http.post(f"/console{PAGE}/delete", data={"csrf_token": token_of(page)})
    assert response.status_code == 403


async def test_a_state_is_deleted_with_its_versions(console: ConsoleServer) -> None:
    await add_version(console, 1, 1)
    response = await console.post(f"{PAGE}/delete", PAGE)
    assert " was deleted." in await console.following(response)
    assert (await console.get(PAGE)).status_code == 404


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("1", "1", []),
        ("1", "1.0", [Difference("", "1", "1.0")]),
        ("1", "true", [Difference("", "1", "true")]),
        ('"1"', "1", [Difference("", '"1"', "1")]),
        ("[1]", '{"0": 1}', [Difference("", "an array of 1", "an object of 1")]),
        ('{"a/b~": 1}', '{"a/b~": 2}', [Difference("/a~1b~0", "1", "2")]),
        ("[1, [2, 3]]", "[1, [2, 4], 5]", [Difference("/1/1", "3", "4"), Difference("/2", None, "5")]),
        ('{"a": null}', "{}", [Difference("/a", "null", None)]),
        ("12345678901234567890123", "12345678901234567890124", [Difference("", "12345678901234567890123", "12345678901234567890124")]),
        ('"\\ud800"', "0", [Difference("", '"\\ud800"', "0")]),
    ],
)  # fmt: skip
def test_differences_are_found_member_by_member(before: str, after: str, expected: list[Difference]) -> None:
    assert differences(before.encode(), after.encode()) == (expected, False)


def test_a_comparison_is_bounded() -> None:
    many = json.dumps(list(range(MAX_DIFFERENCES + 1))).encode()
    found = differences(b"[]", many)
    assert found is not None
    assert (len(found[0]), found[1]) == (MAX_DIFFERENCES, True)
    assert differences(b"0", b" " * MAX_COMPARED_BYTES + b"0") is None
    deep = b"[" * 400 + b"1" + b"]" * 400
    ((difference,), _) = differences(deep, deep.replace(b"1", b"2")) or ((None,), False)
    assert difference is not None
    assert len(difference.pointer) < 300


@pytest.mark.parametrize(
    ("right", "pattern", "seen"),
    [
        (Right.BROWSE, "shop.*", ["shop.orders"]),
        (Right.BROWSE, "*", ["private", "shop.orders"]),
        (Right.SEND, "*", []),
        (Right.LISTEN, "*", []),
        (Right.MANAGE, "*", []),
    ],
)
async def test_the_list_has_what_a_key_may_browse(
    console_with_keys: ConsoleServer, right: Right, pattern: str, seen: list[str]
) -> None:
    api = console_with_keys.api
    api.http.headers["authorization"] = f"Bearer {await api.new_key(*Right, principal='admin')}"
    for name in ("shop.orders", "private"):
        await add_version(console_with_keys, 1, {}, name)
    await console_with_keys.sign_in(await api.new_key(right, patterns=(pattern,)))
    assert re.findall(r'href="/console/states/([^"]+)"', await console_with_keys.page("/states")) == seen


async def test_a_value_is_shown_to_a_key_that_may_listen_to_this_state(console_with_keys: ConsoleServer) -> None:
    api = console_with_keys.api
    api.http.headers["authorization"] = f"Bearer {await api.new_key(*Right, principal='admin')}"
    await add_version(console_with_keys, 1, {"secret": "hidden value"})
    await console_with_keys.sign_in(await api.new_key(Right.BROWSE, Right.LISTEN, patterns=("customer.*",)))
    assert "hidden value" in await console_with_keys.page(PAGE)


@pytest.mark.parametrize("query", ["version", "with", "before"])
async def test_a_number_with_thousands_of_digits_is_none(console: ConsoleServer, query: str) -> None:
    await add_version(console, 1, {"n": 1})
    assert await console.page(f"{PAGE}?{query}={'9' * 5000}")
