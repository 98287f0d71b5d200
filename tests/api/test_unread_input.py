"""Input that an operation does not read is refused where a client would take the answer for something else."""

import pytest

from app.api.endpoints.routes import OPERATIONS
from tests.api.api_server import ApiServer, pointers
from tests.api.expected_rights import PAGES, PATH_VALUES, RIGHTS, headers_of
from tests.walks import for_each

TOLERANT = ("/livez", "/readyz", *PAGES)

RAW_HEADERS = {
    "Peeklock-Transaction-Id": "5d0a1f6f2b0c4d51a2f5a0b8a1c9e7d3",
    "Peeklock-Delay-Seconds": "60",
    "Peeklock-Property-Region": "eu",
}
"""Headers of raw sends. A send that ignored them would take effect at once, or without the property."""


@pytest.mark.parametrize("content", [b'{"dry_run": true}', b"{}"])
async def test_a_deletion_with_a_body_deletes_nothing(api: ApiServer, content: bytes) -> None:
    await api.send()
    refused = await api.request("DELETE", "/queues/orders", content=content)
    assert pointers(refused) == [""]
    assert await api.counts() == {"available": 1}


async def test_a_deletion_with_a_body_in_chunks_deletes_nothing(api: ApiServer) -> None:
    await api.send()
    refused = await api.request("DELETE", "/queues/orders", headers={"transfer-encoding": "chunked"}, content=b"1")
    assert pointers(refused) == [""]
    assert await api.counts() == {"available": 1}


@pytest.mark.parametrize("headers", [{}, {"content-length": "0"}])
async def test_a_deletion_without_a_body_deletes(api: ApiServer, headers: dict[str, str]) -> None:
    await api.send()
    assert (await api.request("DELETE", "/queues/orders", headers=headers)).status_code == 204


@pytest.mark.parametrize(("name", "value"), RAW_HEADERS.items())
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/queues/orders/messages", {"body": 1}),
        ("/queues/orders/messages/batch", {"messages": [{"body": 1}]}),
        ("/queues/orders/locks/1.00000000000000000000000000000000/complete", {}),
        ("/topics/orders/messages", {"body": 1}),
        ("/transactions/execute", {"sends": [{"queue": "orders"}]}),
    ],
)
async def test_headers_of_raw_sends_are_refused_with_a_json_body(
    api: ApiServer, path: str, body: dict[str, object], name: str, value: str
) -> None:
    await api.request("PUT", "/queues/orders", {})
    refused = await api.request("POST", path, body, headers={name: value})
    assert pointers(refused) == [f"#/header/{name}"]
    assert await api.counts() == {}


READ = {(operation.method, operation.path): operation.headers for operation in OPERATIONS}
STRICT = [asked for asked in RIGHTS if not asked[1].startswith(TOLERANT)]
CONDITIONS = ("If-Match", "Idempotency-Key")


@pytest.mark.parametrize("header", CONDITIONS)
@for_each(("method", "path"), STRICT, " ".join)
async def test_a_condition_is_read_or_refused(api: ApiServer, method: str, path: str, header: str) -> None:
    await api.request("PUT", "/queues/orders", {})
    (needed,) = [headers_of(one) for one in OPERATIONS if (one.method, one.path) == (method, path)]
    answer = await api.http.request(method, path.format(**PATH_VALUES), headers={**needed, header: '"x"'})
    is_refused = answer.status_code == 422 and f"#/header/{header}" in [
        error["pointer"] for error in answer.json().get("errors", ())
    ]
    assert is_refused is (header not in READ[method, path])


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/openapi.json"])
async def test_probes_and_pages_ignore_conditions(api: ApiServer, path: str) -> None:
    headers = {"If-Match": '"x"', "Idempotency-Key": "x"}
    assert (await api.http.get(path, headers=headers)).status_code == 200


async def test_a_condition_that_is_not_read_has_no_effect(api: ApiServer) -> None:
    await api.send()
    refused = await api.request("POST", "/queues/orders/purge", {}, headers={"If-Match": "*"})
    assert pointers(refused) == ["#/header/If-Match"]
    assert await api.counts() == {"available": 1}


async def test_conditions_of_caches_are_ignored_where_they_are_not_read(api: ApiServer) -> None:
    await api.send()
    headers = {"If-None-Match": "*", "If-Modified-Since": "Sat, 01 Jan 2000 00:00:00 GMT"}
    assert (await api.request("GET", "/queues", headers=headers)).status_code == 200


@pytest.mark.parametrize(
    "path", ["/states/k?before_message=%ff", "/queues/orders/messages?filter=%c3", "/states/k?%ff=1"]
)
async def test_a_query_that_is_not_utf8_is_refused(api: ApiServer, path: str) -> None:
    assert pointers(await api.request("GET", path)) == ["#/query"]
