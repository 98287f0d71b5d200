"""The reference of metrics is whole: it names what a server answers after traffic, and what the code can count."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import httpx
import pytest

from app.domain.instant import MINUTE
from developing.reference.contract import ROOT, constants, errors, operations
from tests.databases import RunResources
from tests.faults.database_access import pass_time
from tests.guides import section, table
from tests.metric_traffic import (
    EVENTS,
    ORDERS,
    PATIENCE_SECONDS,
    bring_traffic,
    families,
    figures_with_all_events,
    label_values,
    receive,
)
from tests.peeklock_process import PeeklockProcess, services

PAGE = (ROOT / "docs/reference/metrics.md").read_text()
GUIDE = (ROOT / "docs/monitoring.md").read_text()
CODE = "\n".join(file.read_text() for file in sorted((ROOT / "app").rglob("*.py")))


@pytest.fixture(scope="module")
def figures(run_resources: RunResources, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """What a server answers once the traffic has been counted."""
    with services(run_resources.with_tables(tmp_path_factory.mktemp("metrics"))) as start:
        service = start()
        with httpx.Client(base_url=service.url, timeout=PATIENCE_SECONDS) as client:
            bring_traffic(client)
            yield figures_with_all_events(client)


def test_the_metrics_are_listed(figures: str) -> None:
    shown = {
        row[0].strip("`"): (row[1], set(re.findall(r"`(\w+)`", row[2]))) for row in table(PAGE, "All metrics", "metric")
    }
    assert shown == families(figures)


def test_the_buckets_are_listed(figures: str) -> None:
    for metric, *_, ends in table(PAGE, "All metrics", "histogram"):
        found = re.findall(rf'{metric.strip("`")}_bucket{{.*?le="([^"]+)"', figures)
        assert {float(end) for end in found} == {*map(float, ends.split(", ")), float("inf")}


def test_the_events_are_listed(figures: str) -> None:
    listed = words("Events", "event")
    assert listed == set(re.findall(r'counters\.count\(\s*"(\w+)"', CODE))
    assert set(EVENTS) <= label_values(figures, "peeklock_events_total", "event") <= listed


def test_the_passes_are_listed(figures: str) -> None:
    assert words("Passes", "pass") == label_values(figures, "peeklock_passes_total", "name")


def test_the_statements_are_listed(figures: str) -> None:
    written = set(re.findall(r'(?:_observed\(|_observe\()\s*"(\w+)"', CODE))
    assert words("Statements", "statement") == written
    assert label_values(figures, "peeklock_batch_entries", "statement") == {"write"}


def test_a_database_server_has_the_other_statements(serve: Callable[..., PeeklockProcess], postgres_url: str) -> None:
    with httpx.Client(base_url=serve(database_url=postgres_url).url, timeout=PATIENCE_SECONDS) as client:
        client.put(ORDERS, json={})
        for ending, wish in (("complete", {}), ("renew", {"lock_seconds": 60}), ("abandon", {})):
            client.post(f"{ORDERS}/messages", json={})
            token = receive(client, ORDERS, **wish)
            assert client.post(f"{ORDERS}/locks/{token}/{ending}", json=wish).status_code == 200
        client.post(f"{ORDERS}/locks/{token}/complete")
        pass_time(postgres_url, 2 * MINUTE)
        for _ in ("the abandoned message", "the one whose lock has ended"):
            receive(client, ORDERS, wait_seconds=20)
        text = client.get("/metrics").text
    assert label_values(text, "peeklock_batch_entries", "statement") == words("Statements", "statement") - {"write"}


def test_operations_and_outcomes_are_those_of_the_http_guide(figures: str) -> None:
    named = {call[1].strip("`") for call in operations()}
    assert label_values(figures, "peeklock_request_seconds", "operation") <= named
    outcomes = label_values(figures, "peeklock_request_seconds", "outcome")
    assert {"ok", "queue-not-found"} <= outcomes <= {"ok", "client-gone", *errors()}


def test_what_to_watch_exists(figures: str) -> None:
    for metric in set(re.findall(r"`(peeklock_\w+)", section(GUIDE, "What to watch"))):
        assert metric in families(figures)


def test_the_names_of_queues_are_for_those_whom_the_guide_names(serve: Callable[..., PeeklockProcess]) -> None:
    token = "m" * 32
    with httpx.Client(base_url=serve(metrics_key=token).url, timeout=PATIENCE_SECONDS) as client:
        client.put(ORDERS, json={})
        assert names_queues(client)
        browser = make_key(client, "admin", ["browse", "manage"])
        sender = make_key(client, "shop", ["send"], browser)
        assert [names_queues(client, key) for key in (None, token, browser, sender)] == [False, True, True, False]
        assert client.get("/metrics", headers=bearer("wrong")).status_code == 401


def test_the_limits_are_those_of_the_code() -> None:
    limits = constants()
    assert f"The first {limits['metrics.MAX_NAMED_QUEUES']:,} queues by name" in section(
        GUIDE, "Who sees the names of queues"
    )
    assert limits["queue_statistics.CACHE_SECONDS"] == 1.0
    assert "counted at most once per second" in section(PAGE, "All metrics")


def test_no_queue_is_named_where_the_setting_says_so(serve: Callable[..., PeeklockProcess]) -> None:
    with httpx.Client(base_url=serve(metrics_per_queue="false").url, timeout=PATIENCE_SECONDS) as client:
        client.put(ORDERS, json={})
        assert not names_queues(client)


def words(heading: str, first: str) -> set[str]:
    """The first column of a table."""
    return {row[0].strip("`") for row in table(PAGE, heading, first)}


def names_queues(client: httpx.Client, token: str | None = None) -> bool:
    """Whether the metrics name a queue for the bearer of this token."""
    answer = client.get("/metrics", headers=bearer(token))
    assert answer.status_code == 200
    assert "peeklock_messages{" in answer.text
    return 'queue="orders"' in answer.text


def bearer(token: str | None) -> dict[str, str]:
    """The header of a caller with this token."""
    return {} if token is None else {"Authorization": f"Bearer {token}"}


def make_key(client: httpx.Client, principal: str, rights: list[str], token: str | None = None) -> str:
    """The secret of a new key."""
    headers = bearer(token) | {"Peeklock-Local-Admin": "true"}
    made = client.post("/v1/keys", json={"principal": principal, "rights": rights}, headers=headers)
    return str(made.json()["secret"])
