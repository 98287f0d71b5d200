"""Each value that an operator sets reaches the resources that it is for."""

from __future__ import annotations

from functools import reduce
from typing import Any

import pytest

from tests.chart.release import ALL_OPTIONS, REQUIRED, Release, environment, example, render

VALUES: dict[str, Any] = {
    **ALL_OPTIONS,
    "image": {**ALL_OPTIONS["image"], "pullPolicy": "Always"},
    "server": {"workers": 2, "longPollCapSeconds": 40, "shutdownGraceSeconds": 90, "autoCreateQueues": True},
    "autoscaling": {"enabled": True, "minReplicas": 3, "maxReplicas": 7, "targetCPUUtilizationPercentage": 55},
    "service": {**ALL_OPTIONS["service"], "port": 9090},
    "ingress": {
        **ALL_OPTIONS["ingress"],
        "maxBodySize": "20m",
        "hosts": [{"host": "queues.example.com", "paths": [{"path": "/v1", "pathType": "ImplementationSpecific"}]}],
    },
    "podDisruptionBudget": {"maxUnavailable": 2},
    "topologySpread": {"topologyKeys": ["example.com/rack"], "whenUnsatisfiable": "DoNotSchedule"},
    "serviceAccount": {"name": "broker", "annotations": {"example.com/role": "queue"}},
    "migration": {"serviceAccountName": "migrator", "activeDeadlineSeconds": 90},
    "metrics": {"serviceMonitor": {"enabled": True, "interval": "15s"}},
    "pipeline": {**ALL_OPTIONS["pipeline"], "image": {**ALL_OPTIONS["pipeline"]["image"], "pullPolicy": "Always"}},
}
SERVER = ("spec", "template", "spec")
CONTAINER = (*SERVER, "containers", 0)
SPREAD = (*SERVER, "topologySpreadConstraints", 0)
RULE = ("spec", "rules", 0)
BACKEND = (*RULE, "http", "paths", 0, "backend", "service")

PLACES: list[tuple[str, tuple[str | int, ...], Any]] = [
    ("Deployment", (*SERVER, "serviceAccountName"), "broker"),
    ("Deployment", (*SERVER, "affinity"), VALUES["affinity"]),
    ("Deployment", (*SPREAD, "topologyKey"), "example.com/rack"),
    ("Deployment", (*SPREAD, "whenUnsatisfiable"), "DoNotSchedule"),
    ("Deployment", (*SPREAD, "matchLabelKeys"), ["pod-template-hash"]),
    ("Deployment", ("spec", "template", "metadata", "annotations", "example.com/note"), "yes"),
    ("Deployment", ("spec", "template", "metadata", "labels", "example.com/tier"), "middle"),
    ("HorizontalPodAutoscaler", ("spec", "minReplicas"), 3),
    ("HorizontalPodAutoscaler", ("spec", "maxReplicas"), 7),
    ("HorizontalPodAutoscaler", ("spec", "metrics", 0, "resource", "target", "averageUtilization"), 55),
    ("Ingress", ("spec", "ingressClassName"), "nginx"),
    ("Ingress", ("spec", "tls"), VALUES["ingress"]["tls"]),
    ("Ingress", (*RULE, "host"), "queues.example.com"),
    ("Ingress", (*RULE, "http", "paths", 0, "pathType"), "ImplementationSpecific"),
    ("Ingress", ("metadata", "annotations", "example.com/owner"), "platform"),
    ("Ingress", ("metadata", "annotations", "nginx.ingress.kubernetes.io/proxy-body-size"), "20m"),
    ("Ingress", ("metadata", "annotations", "nginx.ingress.kubernetes.io/proxy-read-timeout"), "120"),
    ("Ingress", ("metadata", "annotations", "nginx.ingress.kubernetes.io/proxy-send-timeout"), "120"),
    ("Job", ("spec", "activeDeadlineSeconds"), 90),
    ("Job", (*SERVER, "serviceAccountName"), "migrator"),
    ("PodDisruptionBudget", ("spec", "maxUnavailable"), 2),
    ("PodDisruptionBudget", ("spec", "unhealthyPodEvictionPolicy"), "AlwaysAllow"),
    ("Service", ("spec", "type"), "NodePort"),
    ("Service", ("spec", "ports", 0, "port"), 9090),
    ("Service", ("metadata", "annotations"), VALUES["service"]["annotations"]),
    ("ServiceAccount", ("metadata", "name"), "broker"),
    ("ServiceAccount", ("metadata", "annotations"), VALUES["serviceAccount"]["annotations"]),
    ("ServiceMonitor", ("spec", "endpoints", 0, "interval"), "15s"),
]
"""The kind of a resource, a place in it, and the value there."""


@pytest.fixture(scope="module")
def release() -> Release:
    return render(VALUES)


def value_at(document: Any, path: tuple[str | int, ...]) -> Any:
    return reduce(lambda part, key: part[key], path, document)


@pytest.mark.parametrize(("kind", "path", "expected"), PLACES, ids=lambda part: str(part)[:40])
def test_a_value_reaches_its_place(release: Release, kind: str, path: tuple[str | int, ...], expected: Any) -> None:
    assert value_at(release.one(kind), path) == expected


@pytest.mark.parametrize("name", ["imagePullSecrets", "priorityClassName", "nodeSelector", "tolerations"])
def test_every_pod_is_placed_as_the_operator_says(release: Release, name: str) -> None:
    assert len(release.pods()) == 3 + len(release.jobs()) == 11
    assert all(pod["spec"][name] == VALUES[name] for pod in release.pods())


def test_every_pod_pulls_its_image_as_the_operator_says(release: Release) -> None:
    policies = [container["imagePullPolicy"] for pod in release.pods() for container in pod["spec"]["containers"]]
    assert policies == ["Always"] * 11


@pytest.mark.parametrize("kind", ["Deployment", "Job"])
def test_server_and_migration_have_the_resources_and_extras_of_the_operator(release: Release, kind: str) -> None:
    container = value_at(release.one(kind), CONTAINER)
    assert container["resources"]["limits"] == VALUES["resources"]["limits"]
    assert environment(container)["TZ"]["value"] == "UTC"
    assert VALUES["extraVolumeMounts"][0] in container["volumeMounts"]
    assert VALUES["extraVolumes"][0] in value_at(release.one(kind), (*SERVER, "volumes"))


def test_the_server_has_the_settings_of_the_operator(release: Release) -> None:
    given = environment(release.server())
    assert {name: given[f"PEEKLOCK_{name}"].get("value") for name in ("HOST", "WORKERS", "LOG_FORMAT")} == {
        "HOST": "0.0.0.0", "WORKERS": "2", "LOG_FORMAT": "json",
    }  # fmt: skip
    assert given["PEEKLOCK_LONG_POLL_CAP_SECONDS"]["value"] == "40"
    assert given["PEEKLOCK_SHUTDOWN_GRACE_SECONDS"]["value"] == "90"
    assert given["PEEKLOCK_AUTO_CREATE_QUEUES"]["value"] == "true"
    assert environment(render(REQUIRED).server())["PEEKLOCK_AUTO_CREATE_QUEUES"]["value"] == "false"


def test_the_operator_chooses_the_number_of_servers() -> None:
    assert render({**REQUIRED, "replicaCount": 4}).one("Deployment")["spec"]["replicas"] == 4


def test_a_server_has_two_minutes_to_start(release: Release) -> None:
    probe = release.server()["startupProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] == 120


def test_only_the_bootstrap_key_may_be_missing_from_the_secret(release: Release) -> None:
    sources = {
        name: entry["valueFrom"] for name, entry in environment(release.server()).items() if "value" not in entry
    }
    optional = [name for name, source in sources.items() if source["secretKeyRef"].get("optional")]
    assert optional == ["PEEKLOCK_BOOTSTRAP_KEY"]
    assert len(sources) == 3


def test_the_ingress_reaches_the_service_and_the_service_its_servers(release: Release) -> None:
    service = release.one("Service")
    (port,), (server_port,) = service["spec"]["ports"], release.server()["ports"]
    backend = value_at(release.one("Ingress"), BACKEND)
    assert backend == {"name": service["metadata"]["name"], "port": {"name": port["name"]}}
    assert port["targetPort"] == server_port["name"]
    (allowed,) = value_at(release.one("NetworkPolicy"), ("spec", "ingress", 0, "ports"))
    assert allowed["port"] == server_port["name"]


def test_a_policy_without_egress_rules_limits_no_egress() -> None:
    limited, unlimited = render(ALL_OPTIONS), render({**REQUIRED, "networkPolicy": {"enabled": True}})
    assert limited.one("NetworkPolicy")["spec"]["policyTypes"] == ["Ingress", "Egress"]
    assert unlimited.one("NetworkPolicy")["spec"]["policyTypes"] == ["Ingress"]
    assert "from" not in value_at(unlimited.one("NetworkPolicy"), ("spec", "ingress", 0))


def test_the_volume_of_an_embedded_server_is_as_the_operator_says() -> None:
    release = render({**example("embedded"), "persistence": {"size": "3Gi", "storageClassName": "fast"}})
    claim = release.one("PersistentVolumeClaim")["spec"]
    assert (claim["storageClassName"], claim["resources"]["requests"]["storage"]) == ("fast", "3Gi")
    assert "topologySpreadConstraints" not in value_at(release.one("Deployment"), SERVER)


def test_what_is_switched_off_is_not_made() -> None:
    off = {"podDisruptionBudget": {"enabled": False}, "topologySpread": {"enabled": False}}
    release = render({**REQUIRED, **off, "serviceAccount": {"create": False}})
    assert release.all("PodDisruptionBudget") == release.all("ServiceAccount") == []
    pod = value_at(release.one("Deployment"), SERVER)
    assert pod["serviceAccountName"] == "default"
    assert "topologySpreadConstraints" not in pod


def test_an_account_that_exists_is_used() -> None:
    release = render({**REQUIRED, "serviceAccount": {"create": False, "name": "shared"}})
    assert value_at(release.one("Deployment"), (*SERVER, "serviceAccountName")) == "shared"


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ({}, "demo-peeklock"),
        ({"nameOverride": "messages"}, "demo-messages"),
        ({"nameOverride": "demo"}, "demo"),
        ({"fullnameOverride": "queues"}, "queues"),
        ({"fullnameOverride": "n" * 49 + "-" + "n" * 20}, "n" * 49),
    ],
)
def test_the_operator_may_choose_the_names(names: dict[str, str], expected: str) -> None:
    assert render({**REQUIRED, **names}).one("Deployment")["metadata"]["name"] == expected
