"""Lists of queues and topics for keys that may not browse all of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.broker.administration.range_pages import _MAX_STATEMENTS, page_of_ranges
from app.domain.access import Grant, Right
from tests.api.api_server import ApiServer, pointers, problem
from tests.bounds import bounded

NAMES = ["a", "order", "orders", "orders-old", "orders.eu", "orders.us", "orders0", "z"]


@pytest.fixture(params=["queues", "topics"])
async def path(request: pytest.FixtureRequest, api_with_keys: ApiServer) -> str:
    """The path of a list, with entries of `NAMES`."""
    admin = {"authorization": f"Bearer {await api_with_keys.new_key(*Right, principal='admin')}"}
    for name in NAMES:
        await api_with_keys.request_json("PUT", f"/{request.param}/{name}", {}, headers=admin)
    return f"/{request.param}"


async def pages(api: ApiServer, path: str, secret: str, patterns: tuple[str, ...], limit: int) -> list[list[str]]:
    """Return the names on each page that the key with these patterns gets. Cursors tell no name of others."""
    headers = {"authorization": f"Bearer {secret}"}
    found: list[list[str]] = []
    parameters: dict[str, str | int] = {"limit": limit}
    for _ in bounded("a page has no next one", 100):
        page = await api.request_json("GET", path, params=parameters, headers=headers)
        found.append([item["name"] for item in page["items"]])
        if page["next_cursor"] is None:
            break
        parameters["cursor"] = page["next_cursor"]
        seen = {name for names in found for name in names}
        assert page["next_cursor"] in seen or page["next_cursor"].removesuffix("~") in {p.rstrip("*") for p in patterns}
    return found


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        (("*",), NAMES),
        (("orders.*",), ["orders.eu", "orders.us"]),
        (("orders",), ["orders"]),
        (("orders*",), ["orders", "orders-old", "orders.eu", "orders.us", "orders0"]),
        (("z", "a", "orders.*", "orders.eu"), ["a", "orders.eu", "orders.us", "z"]),
        (("missing", "nothing.*", "z*"), ["z"]),
        (("ö*", "z"), ["z"]),
        (("missing",), []),
    ],
)
async def test_a_key_lists_the_names_that_it_may_browse(
    api_with_keys: ApiServer, path: str, patterns: tuple[str, ...], expected: list[str]
) -> None:
    secret = await api_with_keys.new_key(Right.BROWSE, patterns=patterns)
    for limit in (1, 2, 3, 100):
        found = await pages(api_with_keys, path, secret, patterns, limit)
        assert [name for names in found for name in names] == expected
        assert all(len(names) <= limit for names in found)


@pytest.mark.parametrize(("end", "limit", "empty"), [("missing", 100, 2), ("*", 1, 1)], ids=["names", "prefixes"])
async def test_a_page_needs_a_bounded_number_of_statements(
    api_with_keys: ApiServer, path: str, end: str, limit: int, empty: int
) -> None:
    """A page without names may end where a pattern ends, and the next one begins there."""
    admin = {"authorization": f"Bearer {await api_with_keys.new_key(*Right, principal='other')}"}
    count = 3 * _MAX_STATEMENTS
    for number in range(count):
        await api_with_keys.request_json("PUT", f"{path}/p{number:02}", {}, headers=admin)
    patterns = (*(f"p{number:02}.{end}" for number in range(count - 1)), "z")
    secret = await api_with_keys.new_key(Right.BROWSE, patterns=patterns)
    assert await pages(api_with_keys, path, secret, patterns, limit) == [*([[]] * empty), ["z"]]


class Entry(str):
    """An entry of a store, which is its name."""

    __slots__ = ()

    @property
    def name(self) -> str:
        """Its name."""
        return str(self)


@given(
    st.lists(st.text("-.az", min_size=1, max_size=4), unique=True),
    st.lists(st.tuples(st.text("-.az", max_size=3), st.booleans()), min_size=1, max_size=20),
    st.integers(1, 5),
)
async def test_the_pages_have_what_the_patterns_match(
    names: list[str], drawn: list[tuple[str, bool]], limit: int
) -> None:
    grant = Grant(
        frozenset({Right.BROWSE}), tuple(f"{text}*" if is_prefix or not text else text for text, is_prefix in drawn)
    )

    async def page(after: str, count: int) -> list[Entry]:
        return [Entry(name) for name in sorted(names) if name > after][:count]

    found: list[str] = []
    after: str | None = ""
    for _ in bounded("a page has no next one", 100):
        items, after = await page_of_ranges(page, grant.ranges(Right.BROWSE), after or "", limit)
        assert len(items) <= limit
        found += items
        if after is None:
            break
    assert found == [name for name in sorted(names) if grant.allows(Right.BROWSE, name)]


@pytest.mark.parametrize("patterns", [("orders.?",), ("*.eu",), ("orders.*", "a*z"), ("[a]",)])
async def test_a_key_with_another_wildcard_lists_nothing(
    api_with_keys: ApiServer, path: str, patterns: tuple[str, ...]
) -> None:
    headers = {"authorization": f"Bearer {await api_with_keys.new_key(Right.BROWSE, patterns=patterns)}"}
    problem(await api_with_keys.request("GET", path, headers=headers), 403, "forbidden")


async def test_a_key_without_the_right_to_browse_lists_nothing(api_with_keys: ApiServer, path: str) -> None:
    headers = {"authorization": f"Bearer {await api_with_keys.new_key(Right.SEND, patterns=('orders',))}"}
    problem(await api_with_keys.request("GET", path, headers=headers), 403, "forbidden")


@pytest.mark.parametrize("cursor", ["z~", "~", "orders.~", "a b"])
async def test_a_cursor_of_another_list_is_refused(api_with_keys: ApiServer, path: str, cursor: str) -> None:
    headers = {"authorization": f"Bearer {await api_with_keys.new_key(Right.BROWSE, patterns=('a*',))}"}
    answer = await api_with_keys.request("GET", path, params={"cursor": cursor}, headers=headers)
    assert pointers(answer) == ["#/query/cursor"]


@pytest.mark.parametrize("pattern", ["*.eu", "orders.??", "o*s"])
async def test_a_key_whose_patterns_are_no_ranges_is_told_so(api_with_keys: ApiServer, path: str, pattern: str) -> None:
    headers = {"authorization": f"Bearer {await api_with_keys.new_key(Right.BROWSE, patterns=(pattern,))}"}
    refused = problem(await api_with_keys.request("GET", path, headers=headers), 403, "forbidden")
    assert refused["detail"].startswith(
        "This API key cannot list what it may browse: a list needs patterns that are names"
    )
