"""The alerts and the dashboard: each expression names metrics, labels and values that servers or the pipeline have."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import httpx
import promql_parser
import pytest
import typer.main
import yaml
from peeklock_pipeline import cli
from peeklock_pipeline.run_metrics import AUDIT_FROM_SCRATCH, LABELS, PREFIX
from peeklock_pipeline.run_metrics import METRICS as PIPELINE_METRICS
from prometheus_client import CollectorRegistry, Gauge, generate_latest

from developing.reference.contract import errors, operations
from developing.reference.words import METRIC_WORDS
from tests.chart.release import ALL_OPTIONS, CHART, NAMESPACE, REQUIRED, render
from tests.databases import RunResources
from tests.metric_traffic import PATIENCE_SECONDS, bring_traffic, families, figures_with_all_events, label_values
from tests.peeklock_process import services
from tests.walks import for_each

RULES_FILE, DASHBOARD_FILE = CHART / "rules/peeklock.yaml", CHART / "dashboards/peeklock.json"
RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load(RULES_FILE.read_text())["groups"] for rule in group["rules"]
]
DASHBOARD: dict[str, Any] = json.loads(DASHBOARD_FILE.read_text())
PLOTS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
GUIDE = (CHART.parents[1] / "docs/monitoring.md").read_text()

FROM_PROMETHEUS = {"instance"}
"""Labels that Prometheus adds to every series."""

PARTS = ("_bucket", "_count", "_sum")
"""The series of a histogram."""

EXPRESSIONS = {rule["alert"]: rule["expr"] for rule in RULES} | {
    f"{panel['title']} {target['refId']}": target["expr"].replace("$__rate_interval", "5m").replace('"$queue"', '".*"')
    for panel in PLOTS
    for target in panel["targets"]
}

each_expression = for_each(("name", "expression"), EXPRESSIONS.items(), lambda case: case[0])
each_rule = for_each("rule", RULES, lambda rule: rule["alert"])


@pytest.fixture(scope="module")
def answer(run_resources: RunResources, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """What a server answers at /metrics after traffic of every kind."""
    directory = tmp_path_factory.mktemp("monitoring")
    with (
        services(run_resources.with_tables(directory)) as start,
        httpx.Client(base_url=start().url, timeout=PATIENCE_SECONDS) as client,
    ):
        bring_traffic(client)
        yield figures_with_all_events(client) + figures_of_the_pipeline()


def figures_of_the_pipeline() -> str:
    """What runs of every command of the pipeline write, with every metric."""
    commands = typer.main.get_command(cli.app).commands  # pyright: ignore[reportAttributeAccessIssue]
    registry = CollectorRegistry()
    for name, meaning in PIPELINE_METRICS.items():
        gauge = Gauge(PREFIX + name, meaning, LABELS, registry=registry)
        for command in (*commands, AUDIT_FROM_SCRATCH):
            gauge.labels(command, "/srv/lake").set(1)
    return generate_latest(registry).decode()


@pytest.fixture(scope="module")
def metrics(answer: str) -> dict[str, tuple[str, set[str]]]:
    """Each metric with its type and labels."""
    return families(answer)


Metrics = Mapping[str, tuple[str, set[str]]]


@each_expression
def test_an_expression_names_metrics_that_a_server_has(
    name: str, expression: str, metrics: Metrics, answer: str
) -> None:
    check_names(expression, metrics, answer)


@each_expression
def test_an_expression_groups_by_labels_that_its_metrics_have(name: str, expression: str, metrics: Metrics) -> None:
    check_groups(expression, metrics)


@each_expression
def test_only_counters_have_rates(name: str, expression: str, metrics: Metrics) -> None:
    check_rates(expression, metrics)


def check_names(expression: str, metrics: Metrics, answer: str) -> None:
    """Each metric, label and value that an expression names exists."""
    selectors = [part for part in parts_of(promql_parser.parse(expression)) if is_selector(part)]
    assert selectors
    for selector in selectors:
        name, kind, labels = metric_of(selector.name, metrics)
        assert (selector.name != name) == (kind == "histogram"), selector.name
        for matcher in selector.matchers.matchers:
            assert matcher.name in labels, f"{name} has no label {matcher.name}"
            check_values(name, matcher.name, matcher.value, answer)


def check_groups(expression: str, metrics: Metrics) -> None:
    """An aggregation groups by labels of the metrics inside it."""
    for part in parts_of(promql_parser.parse(expression)):
        if isinstance(part, promql_parser.AggregateExpr) and part.modifier is not None:
            inside = [metric_of(one.name, metrics) for one in parts_of(part.expr) if is_selector(one)]
            for _, kind, labels in inside:
                assert set(part.modifier.labels) <= labels | ({"le"} if kind == "histogram" else set())


def check_rates(expression: str, metrics: Metrics) -> None:
    """Only what grows has a rate."""
    for part in parts_of(promql_parser.parse(expression)):
        if isinstance(part, promql_parser.Call) and part.func.name in ("rate", "increase"):
            (ranged,) = part.args
            assert metric_of(ranged.vector_selector.name, metrics)[1] in ("counter", "histogram")


def test_a_metric_a_label_or_a_value_that_does_not_exist_is_found(metrics: Metrics, answer: str) -> None:
    for wrong in ("peeklock_message == 0", 'peeklock_messages{status="locked"}', 'peeklock_messages{state="open"}'):
        with pytest.raises(AssertionError):
            check_names(wrong, metrics, answer)
    with pytest.raises(AssertionError):
        check_groups("sum by (queue) (peeklock_messages)", metrics)
    with pytest.raises(AssertionError):
        check_rates("rate(peeklock_messages[5m])", metrics)
    with pytest.raises(ValueError, match="unclosed"):
        promql_parser.parse("sum by (queue (x)")


@each_rule
def test_a_rule_has_the_form_that_prometheus_reads(rule: dict[str, Any]) -> None:
    assert (
        {"alert", "expr", "labels", "annotations"} <= rule.keys() <= {"alert", "expr", "for", "labels", "annotations"}
    )
    assert re.fullmatch(r"Peeklock[A-Za-z]+", rule["alert"])
    assert re.fullmatch(r"[1-9][0-9]*[mh]", rule.get("for", "1m"))
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert rule["annotations"].keys() == {"summary"}


@each_rule
def test_a_summary_names_labels_that_the_alert_has(rule: dict[str, Any], metrics: Metrics) -> None:
    named = set(re.findall(r"{{ \$labels\.(\w+) }}", rule["annotations"]["summary"]))
    expression = promql_parser.parse(rule["expr"])
    groups = {
        label
        for part in parts_of(expression)
        if isinstance(part, promql_parser.AggregateExpr) and part.modifier
        for label in part.modifier.labels
    }
    is_grouped = any(isinstance(part, promql_parser.AggregateExpr) for part in parts_of(expression))
    assert named <= (groups if is_grouped else FROM_PROMETHEUS)


def test_every_alert_has_a_section_that_says_what_to_do() -> None:
    assert re.findall(r"^### (Peeklock\w+)$", GUIDE, re.MULTILINE) == [rule["alert"] for rule in RULES]


def test_the_chart_ships_the_rules_and_the_dashboard() -> None:
    release = render(ALL_OPTIONS)
    rule = release.one("PrometheusRule")
    assert rule["spec"] == yaml.safe_load(RULES_FILE.read_text())
    assert rule["metadata"]["namespace"] == NAMESPACE
    assert rule["metadata"]["labels"]["release"] == "prometheus"
    dashboard = release.one("ConfigMap")
    assert json.loads(dashboard["data"]["peeklock.json"]) == DASHBOARD
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"


def test_the_chart_ships_them_only_if_a_value_says_so() -> None:
    kinds = {document["kind"] for document in render(REQUIRED).documents}
    assert kinds.isdisjoint({"PrometheusRule", "ConfigMap"})


def test_the_panels_of_the_dashboard_do_not_overlap() -> None:
    places = [panel["gridPos"] for panel in DASHBOARD["panels"]]
    fields = [
        (x, y)
        for place in places
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(fields) == len(set(fields))
    assert max(x for x, _ in fields) < 24
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(places)


def test_a_panel_has_a_title_a_description_and_the_chosen_data_source() -> None:
    source = {"type": "prometheus", "uid": "${datasource}"}
    for panel in PLOTS:
        assert panel["title"]
        assert panel["description"].endswith(".")
        assert [panel["datasource"], *(target["datasource"] for target in panel["targets"])] == [source] * (
            len(panel["targets"]) + 1
        )


def test_the_variables_of_the_dashboard_are_used(metrics: Metrics) -> None:
    source, queue = DASHBOARD["templating"]["list"]
    assert (source["name"], queue["name"]) == ("datasource", "queue")
    found = re.fullmatch(r"label_values\((\w+), (\w+)\)", queue["definition"])
    assert found is not None
    assert found[2] in metrics[found[1]][1]


def parts_of(expression: Any) -> Iterator[Any]:
    """Yield an expression and all expressions in it."""
    yield expression
    inside = [getattr(expression, name, None) for name in ("expr", "lhs", "rhs", "vector_selector", "param")]
    for part in [*inside, *getattr(expression, "args", [])]:
        if isinstance(part, promql_parser.Expr):
            yield from parts_of(part)


def is_selector(part: Any) -> bool:
    """Whether an expression selects series."""
    return isinstance(part, promql_parser.VectorSelector)


def metric_of(series: str, metrics: Metrics) -> tuple[str, str, set[str]]:
    """The metric that a series belongs to, with its type and labels."""
    name = next((series.removesuffix(part) for part in PARTS if series.removesuffix(part) in metrics), series)
    assert name in metrics, f"no server has {series}"
    return name, *metrics[name]


def check_values(metric: str, label: str, pattern: str, answer: str) -> None:
    """Each value that a matcher names is one that the label may have."""
    if pattern == ".*":
        return
    known = label_values(answer, metric, label) | {
        "event": {*METRIC_WORDS["events"]} if metric == "peeklock_events_total" else {*METRIC_WORDS["message_events"]},
        "outcome": {"ok", "client-gone", *errors()} if metric == "peeklock_request_seconds" else {"ok", "failed"},
        "operation": {name.strip("`") for _, name, *_ in operations()},
    }.get(label, set())
    assert set(pattern.split("|")) <= known, f"{metric}: {label} is never {pattern}"
