"""Values that the chart refuses, and the sentences it refuses them with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import helm_python
import pytest

from tests.chart.release import CHART, REQUIRED, VALUE_SETS, chart, render

# Maps whose keys belong to the operator or to Kubernetes.
FREE = {
    *(
        f"pipeline.jobs.{name}.resources.{kind}"
        for name in chart().values["pipeline"]["jobs"]
        for kind in ("limits", "requests")
    ),
    "affinity",
    "ingress.annotations",
    "metrics.dashboard.labels",
    "metrics.prometheusRule.labels",
    "metrics.serviceMonitor.labels",
    "nodeSelector",
    "pipeline.lake.storageOptions",
    "pipeline.podAnnotations",
    "pipeline.podLabels",
    "pipeline.serviceAccount.annotations",
    "podAnnotations",
    "podLabels",
    "push.podAnnotations",
    "push.podLabels",
    "push.resources.limits",
    "push.resources.requests",
    "push.targets",
    "resources.limits",
    "resources.requests",
    "service.annotations",
    "serviceAccount.annotations",
}


def maps(values: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Walk every map of the values, the outermost first."""
    yield path
    for key, value in values.items():
        if isinstance(value, dict):
            yield from maps(value, (*path, key))


def nested(path: tuple[str, ...], leaf: dict[str, Any]) -> dict[str, Any]:
    """Wrap a map into the maps that lead to it."""
    for key in reversed(path):
        leaf = {key: leaf}
    return leaf


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    """Follow the reference that a part of the schema may be."""
    while "$ref" in schema:
        whole: Any = chart().schema
        for key in schema["$ref"].removeprefix("#/").split("/"):
            whole = whole[key]
        schema = whole
    return schema


def merged(left: dict[str, Any], right: dict[str, Any]) -> dict[str, Any]:
    """Lay one set of values over another."""
    both = left.keys() & right.keys()
    deeper = {key: merged(left[key], right[key]) for key in both if isinstance(left[key], dict)}
    return {**left, **right, **deeper}


CLOSED = [path for path in maps(chart().values) if ".".join(path) not in FREE]


@pytest.mark.parametrize("path", CLOSED, ids=".".join)
def test_an_unknown_key_is_refused_at_every_level(path: tuple[str, ...]) -> None:
    with pytest.raises(helm_python.HelmValuesError, match="'replicas' not allowed"):
        render(merged(REQUIRED, nested(path, {"replicas": 3})))


@pytest.mark.parametrize("missing", ["existingSecret", "image"])
def test_values_without_a_default_are_required(missing: str) -> None:
    given = {key: value for key, value in REQUIRED.items() if key != missing}
    with pytest.raises(helm_python.HelmValuesError, match=missing):
        render(given)


@pytest.mark.parametrize(
    "several",
    [{"replicaCount": 2}, {"server": {"workers": 2}}, {"autoscaling": {"enabled": True}}],
    ids=["replicas", "workers", "autoscaling"],
)
def test_several_processes_without_redis_are_refused_with_the_reason(several: dict[str, Any]) -> None:
    alone = {**REQUIRED, "redis": {"enabled": False}, "replicaCount": 1}
    render(alone)
    with pytest.raises(helm_python.HelmValuesError, match=r"/redis/enabled.*keep locks together only through Redis"):
        render({**alone, **several})


@pytest.mark.parametrize(
    "several", [{"server": {"workers": 2}}, {"autoscaling": {"enabled": True}}], ids=["workers", "autoscaling"]
)
def test_several_embedded_processes_are_refused_with_the_reason(several: dict[str, Any]) -> None:
    with pytest.raises(helm_python.HelmValuesError, match="SQLite file belongs to exactly one process"):
        render({**REQUIRED, "mode": "embedded", **several})


@pytest.mark.parametrize(
    "name",
    [
        "PEEKLOCK_DATABASE_URL",
        "PEEKLOCK_REDIS_URL",
        "PEEKLOCK_BOOTSTRAP_KEY",
        "PEEKLOCK_METRICS_KEY",
        "PEEKLOCK_SQS_SECRET",
    ],
)
def test_credentials_in_plain_text_are_refused(name: str) -> None:
    with pytest.raises(helm_python.HelmValuesError, match="come from existingSecret"):
        render({**REQUIRED, "extraEnv": [{"name": name, "value": "postgresql://me:secret@db/queue"}]})


@pytest.mark.parametrize("timeout", [49, 50])
def test_a_proxy_that_gives_up_before_a_receive_does_is_refused(timeout: int) -> None:
    ingress = {"enabled": True, "readTimeoutSeconds": timeout}
    with pytest.raises(helm_python.HelmRenderError, match=r"must be above server\.longPollCapSeconds \(50\)"):
        render({**REQUIRED, "ingress": ingress})
    render({**REQUIRED, "ingress": ingress, "server": {"longPollCapSeconds": 40}})


def test_an_autoscaler_with_minimum_above_maximum_is_refused() -> None:
    with pytest.raises(helm_python.HelmRenderError, match=r"minReplicas \(11\) must not be above"):
        render({**REQUIRED, "autoscaling": {"enabled": True, "minReplicas": 11}})


@pytest.mark.parametrize(
    ("values", "place"),
    [
        ({"mode": "cluster"}, "/mode"),
        ({"replicaCount": 0}, "/replicaCount"),
        ({"replicaCount": "3"}, "/replicaCount"),
        ({"redis": {"enabled": "no"}}, "/redis/enabled"),
        ({"existingSecret": "Not A Name"}, "/existingSecret"),
        ({"image": {"repository": "peeklock", "digest": "latest"}}, "/image/digest"),
        ({"server": {"longPollCapSeconds": 0}}, "/server/longPollCapSeconds"),
        ({"ingress": {"enabled": True, "hosts": []}}, "/ingress/hosts"),
        ({"ingress": {"maxBodySize": "big"}}, "/ingress/maxBodySize"),
        ({"podSecurity": {"runAsUser": 0}}, "/podSecurity/runAsUser"),
        ({"podLabels": {"app.kubernetes.io/name": "other"}}, "app.kubernetes.io/name"),
        ({"podDisruptionBudget": {"maxUnavailable": 0}}, "/podDisruptionBudget/maxUnavailable"),
        ({"persistence": {"size": "much"}}, "/persistence/size"),
    ],
    ids=str,
)
def test_a_value_out_of_range_is_refused_by_its_path(values: dict[str, Any], place: str) -> None:
    with pytest.raises(helm_python.HelmValuesError, match=place):
        render({**REQUIRED, **values})


def test_every_setting_the_schema_knows_has_a_default_to_read() -> None:
    schema = chart().schema
    assert schema is not None
    assert schema["properties"].keys() - {"global"} == chart().values.keys()
    for path in CLOSED[1:]:
        properties, defaults = schema, chart().values
        for key in path:
            properties, defaults = resolved(properties["properties"][key]), defaults[key]
        assert properties["properties"].keys() == defaults.keys(), ".".join(path)


@pytest.mark.parametrize("values", VALUE_SETS.values(), ids=VALUE_SETS)
def test_helm_lint_finds_nothing(values: dict[str, Any]) -> None:
    report = helm_python.lint(CHART, values, strict=True)
    warning = 2
    assert [message for message in report["messages"] if message["severity"] >= warning] == []
    assert report["errors"] == []
