"""What an operator may rely on for all values of the chart."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import helm_python
import pytest

from app.settings import Settings
from tests.chart.release import (
    ALL_OPTIONS,
    CHART,
    COMPONENT,
    NAMESPACE,
    REQUIRED,
    VALUE_SETS,
    Release,
    chart,
    environment,
    example,
    render,
)

CREDENTIALS = {
    "PEEKLOCK_DATABASE_URL": "database-url",
    "PEEKLOCK_REDIS_URL": "redis-url",
    "PEEKLOCK_BOOTSTRAP_KEY": "bootstrap-key",
}
PUSH_CREDENTIALS = {"PEEKLOCK_API_KEY": "api-key", "PEEKLOCK_PUSH_SECRET": "push-secret"}


@pytest.fixture(params=VALUE_SETS)
def values(request: pytest.FixtureRequest) -> dict[str, Any]:
    return VALUE_SETS[request.param]


@pytest.fixture
def release(values: dict[str, Any]) -> Release:
    return render(values)


def is_selected(selector: dict[str, str], labels: dict[str, str]) -> bool:
    return selector.items() <= labels.items()


# ---- every rendering -------------------------------------------------------------------------------------------------


def test_no_pod_is_root_or_can_become_it(release: Release) -> None:
    for pod in release.pods():
        security = pod["spec"]["securityContext"]
        assert security["runAsNonRoot"] is True
        assert security["runAsUser"] == 10001
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in pod["spec"]["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }


def test_no_pod_gets_a_token_for_kubernetes_or_variables_named_after_services(release: Release) -> None:
    for pod in release.pods():
        assert pod["spec"]["automountServiceAccountToken"] is False
        assert pod["spec"]["enableServiceLinks"] is False


def test_everything_is_in_the_namespace_of_the_release(release: Release) -> None:
    assert {document["metadata"]["namespace"] for document in release.documents} == {NAMESPACE}


def test_credentials_come_only_from_the_given_secret(values: dict[str, Any], release: Release) -> None:
    assert release.all("Secret") == []
    known = CREDENTIALS | PUSH_CREDENTIALS
    for pod in release.pods():
        for container in pod["spec"]["containers"]:
            for name, entry in environment({"env": [], **container}).items():
                if name in known:
                    reference = entry["valueFrom"]["secretKeyRef"]
                    secrets = {values["existingSecret"], values.get("pipeline", {}).get("databaseSecret")}
                    targets = values.get("push", {}).get("targets", {})
                    secrets |= {target["existingSecret"] for target in targets.values()}
                    assert reference["key"] == known[name]
                    assert reference["name"] in secrets
                elif name == "PEEKLOCK_URL":
                    assert entry["value"] == "http://demo-peeklock.queues:8080"
                else:
                    assert not {"key", "password", "url", "token"} & set(name.lower().split("_"))
                    assert "://" not in entry["value"]


def test_the_server_understands_every_setting_it_is_given(release: Release) -> None:
    given = {name: entry.get("value", "x") for name, entry in environment(release.server()).items()}
    settings = {name.removeprefix("PEEKLOCK_").lower(): text for name, text in given.items() if "PEEKLOCK" in name}
    assert settings.keys() <= Settings.model_fields.keys()
    Settings(**settings)


def test_every_setting_is_a_value_of_the_chart_or_in_the_guide() -> None:
    given = {name for values in VALUE_SETS.values() for name in environment(render(values).server())}
    guide = (Path(__file__).parents[2] / "docs/deploy.md").read_text(encoding="utf-8")
    names = [f"PEEKLOCK_{name.upper()}" for name in Settings.model_fields]
    assert [name for name in names if name not in given and f"`{name}`" not in guide] == []


def test_probes_ask_the_port_the_server_listens_on(release: Release) -> None:
    container = release.server()
    (port,) = container["ports"]
    assert str(port["containerPort"]) == environment(container)["PEEKLOCK_PORT"]["value"]
    paths = {kind: container[kind]["httpGet"] for kind in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert {kind: probe["path"] for kind, probe in paths.items()} == {
        "startupProbe": "/livez",
        "livenessProbe": "/livez",
        "readinessProbe": "/readyz",
    }
    assert {probe["port"] for probe in paths.values()} == {port["name"]}


def test_kubernetes_waits_longer_than_the_server_needs_to_stop(release: Release) -> None:
    container = release.server()
    (delay,) = re.findall(r"time\.sleep\((\d+)\)", container["lifecycle"]["preStop"]["exec"]["command"][-1])
    grace = int(environment(container)["PEEKLOCK_SHUTDOWN_GRACE_SECONDS"]["value"])
    # Once for open requests, once for volatile messages that are not stored yet.
    needed = int(delay) + 2 * grace
    assert release.one("Deployment")["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] > needed


def test_the_stop_delay_may_be_zero() -> None:
    release = render({**REQUIRED, "server": {"stopDelaySeconds": 0}})
    assert "lifecycle" not in release.server()


def test_everything_the_server_writes_to_is_a_mount(release: Release) -> None:
    for workload in (release.one("Deployment"), *release.all("Job")):
        pod = workload["spec"]["template"]["spec"]
        volumes = {volume["name"] for volume in pod["volumes"]}
        (container,) = pod["containers"]
        mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
        assert {"/tmp", environment(container)["PEEKLOCK_DATA_DIR"]["value"]} <= mounts.keys()
        assert set(mounts.values()) == volumes


def test_selectors_find_the_servers_and_no_other_pod(release: Release) -> None:
    selectors = [
        release.one("Service")["spec"]["selector"],
        release.one("Deployment")["spec"]["selector"]["matchLabels"],
        *(budget["spec"]["selector"]["matchLabels"] for budget in release.all("PodDisruptionBudget")),
        *(
            policy["spec"]["podSelector"]["matchLabels"]
            for policy in release.all("NetworkPolicy")
            if policy["metadata"]["labels"][COMPONENT] == "server"
        ),
    ]
    server, *others = [pod["metadata"]["labels"] for pod in release.pods()]
    for selector in selectors:
        assert is_selected(selector, server)
        assert not any(is_selected(selector, labels) for labels in others)


def test_the_migration_uses_nothing_that_the_chart_makes(release: Release) -> None:
    made = {
        (document["kind"], document["metadata"]["name"])
        for document in release.documents
        if "helm.sh/hook" not in document["metadata"].get("annotations", {})
    }
    for job in release.all("Job"):
        pod = job["spec"]["template"]["spec"]
        assert ("ServiceAccount", pod["serviceAccountName"]) not in made
        assert not any("persistentVolumeClaim" in volume for volume in pod["volumes"])


def test_the_test_pod_requests_readyz_from_the_service(release: Release) -> None:
    pod, service = release.one("Pod"), release.one("Service")
    (container,) = pod["spec"]["containers"]
    (port,) = service["spec"]["ports"]
    assert pod["metadata"]["annotations"]["helm.sh/hook"] == "test"
    assert container["command"][-1] == f"http://{service['metadata']['name']}:{port['port']}/readyz"
    compile(container["command"][2], "helm test", "exec")


def test_the_notes_name_what_was_installed(values: dict[str, Any], release: Release) -> None:
    assert f"rollout status deployment/{release.one('Deployment')['metadata']['name']}" in release.notes
    assert f"get secret {values['existingSecret']}" in release.notes


# ---- single values ---------------------------------------------------------------------------------------------------


def test_the_defaults_run_two_servers_that_are_migrated_first() -> None:
    release = render(REQUIRED)
    kinds = sorted(document["kind"] for document in release.documents)
    assert kinds == ["Deployment", "Job", "Pod", "PodDisruptionBudget", "Service", "ServiceAccount"]
    assert release.one("Deployment")["spec"]["replicas"] == 2
    assert environment(release.server()).keys() >= CREDENTIALS.keys()
    job = release.one("Job")
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["args"] == ["migrate"]
    assert environment(container).keys() & CREDENTIALS.keys() == {"PEEKLOCK_DATABASE_URL"}


@pytest.mark.parametrize(
    ("chart_name", "setting"),
    [
        ("workers", "workers"),
        ("longPollCapSeconds", "long_poll_cap_seconds"),
        ("shutdownGraceSeconds", "shutdown_grace_seconds"),
        ("stateRetentionSeconds", "state_retention_seconds"),
    ],
)
def test_chart_and_server_have_the_same_defaults_and_upper_limits(chart_name: str, setting: str) -> None:
    field = Settings.model_fields[setting]
    (limit,) = [bound.le for bound in field.metadata if hasattr(bound, "le")]
    schema = chart().schema
    assert schema is not None
    assert chart().values["server"][chart_name] == field.default
    assert schema["properties"]["server"]["properties"][chart_name]["maximum"] == limit


def test_the_proxy_waits_longer_than_a_receive_and_allows_the_largest_body() -> None:
    release = render({**REQUIRED, "ingress": {"enabled": True}})
    annotations = release.one("Ingress")["metadata"]["annotations"]
    cap = int(environment(release.server())["PEEKLOCK_LONG_POLL_CAP_SECONDS"]["value"])
    assert int(annotations["nginx.ingress.kubernetes.io/proxy-read-timeout"]) > cap
    size = annotations["nginx.ingress.kubernetes.io/proxy-body-size"]
    assert size.endswith("m")
    assert int(size.removesuffix("m")) << 20 >= Settings.model_fields["max_request_bytes"].default


def test_the_ingress_exposes_neither_health_nor_metrics() -> None:
    (rule,) = render({**REQUIRED, "ingress": {"enabled": True}}).one("Ingress")["spec"]["rules"]
    assert {entry["path"] for entry in rule["http"]["paths"]} == {"/v1", "/openapi.json", "/docs"}


def test_an_ingress_below_a_path_and_its_server_agree_on_it() -> None:
    release = render({**REQUIRED, "ingress": {"enabled": True, "rootPath": "/apps/peeklock"}})
    (rule,) = release.one("Ingress")["spec"]["rules"]
    paths = [entry["path"] for entry in rule["http"]["paths"]]
    assert paths == ["/apps/peeklock/v1", "/apps/peeklock/openapi.json", "/apps/peeklock/docs"]
    settings = {name.removeprefix("PEEKLOCK_").lower(): entry for name, entry in environment(release.server()).items()}
    assert Settings(root_path=settings["root_path"]["value"]).public_address.root_path == "/apps/peeklock"


@pytest.mark.parametrize(
    ("root_path", "added"),
    [
        ("", {"/": "Exact", "/000000000000": "Prefix"}),
        ("/mq", {"/mq": "Exact", "/mq/": "Exact", "/mq/000000000000": "Prefix"}),
    ],
)
def test_the_ingress_passes_on_the_paths_of_aws_sdks_with_signatures(root_path: str, added: dict[str, str]) -> None:
    def paths(**sqs: bool) -> dict[str, str]:
        values = {**REQUIRED, "ingress": {"enabled": True, "rootPath": root_path}, "sqs": sqs}
        (rule,) = render(values).one("Ingress")["spec"]["rules"]
        return {entry["path"]: entry["pathType"] for entry in rule["http"]["paths"]}

    assert paths(signatures=True) == {**paths(), **added}
    assert paths(signatures=True, enabled=False) == paths()


def test_the_server_trusts_the_proxies_of_the_values() -> None:
    release = render({**REQUIRED, "server": {"trustedProxies": ["10.42.0.0/16", "fd00::/8"]}})
    named = environment(release.server())["PEEKLOCK_TRUSTED_PROXIES"]["value"]
    assert Settings(trusted_proxies=named).public_address.trusts("10.42.7.1")
    assert environment(render(REQUIRED).server())["PEEKLOCK_TRUSTED_PROXIES"]["value"] == ""


def test_annotations_of_the_operator_win_over_those_of_the_chart() -> None:
    mine = {"nginx.ingress.kubernetes.io/proxy-body-size": "64m", "nginx.org/proxy-read-timeout": "90s"}
    release = render({**REQUIRED, "ingress": {"enabled": True, "annotations": mine}})
    assert release.one("Ingress")["metadata"]["annotations"].items() >= mine.items()


def test_embedded_runs_one_server_with_a_persistent_file_and_no_migration_job() -> None:
    release = render({**example("embedded"), "replicaCount": 5})
    deployment = release.one("Deployment")
    assert deployment["spec"]["replicas"] == 1
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}
    assert environment(release.server()).keys() & CREDENTIALS.keys() == {"PEEKLOCK_BOOTSTRAP_KEY"}
    assert [release.all(kind) for kind in ("Job", "PodDisruptionBudget", "HorizontalPodAutoscaler")] == [[], [], []]
    claim = release.one("PersistentVolumeClaim")
    assert claim["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    data = next(volume for volume in deployment["spec"]["template"]["spec"]["volumes"] if volume["name"] == "data")
    assert data["persistentVolumeClaim"] == {"claimName": claim["metadata"]["name"]}


def test_embedded_takes_a_claim_that_exists() -> None:
    release = render({**example("embedded"), "persistence": {"existingClaim": "messages"}})
    assert release.all("PersistentVolumeClaim") == []
    volumes = release.one("Deployment")["spec"]["template"]["spec"]["volumes"]
    assert {"name": "data", "persistentVolumeClaim": {"claimName": "messages"}} in volumes


def test_without_redis_two_servers_never_overlap_during_an_upgrade() -> None:
    release = render(example("single"))
    assert release.one("Deployment")["spec"]["replicas"] == 1
    assert release.one("Deployment")["spec"]["strategy"] == {"type": "Recreate"}
    assert "PEEKLOCK_REDIS_URL" not in environment(release.server())


def test_with_redis_an_upgrade_starts_a_server_before_it_stops_one() -> None:
    strategy = render(REQUIRED).one("Deployment")["spec"]["strategy"]
    assert strategy == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}


def test_with_an_autoscaler_the_deployment_sets_no_replicas() -> None:
    release = render({**REQUIRED, "autoscaling": {"enabled": True}})
    deployment = release.one("Deployment")
    assert "replicas" not in deployment["spec"]
    assert release.one("HorizontalPodAutoscaler")["spec"]["scaleTargetRef"]["name"] == deployment["metadata"]["name"]


def test_migrations_can_be_left_to_the_operator() -> None:
    assert render({**REQUIRED, "migration": {"enabled": False}}).all("Job") == []


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ({}, "registry.example.com/peeklock:{version}"),
        ({"tag": "2.0"}, "registry.example.com/peeklock:2.0"),
        ({"tag": "2.0", "digest": "sha256:" + "b" * 64}, "registry.example.com/peeklock@sha256:" + "b" * 64),
    ],
)
def test_every_pod_runs_the_same_image(image: dict[str, str], expected: str) -> None:
    release = render({**REQUIRED, "image": {**REQUIRED["image"], **image}})
    wanted = expected.format(version=chart().metadata["appVersion"])
    assert {container["image"] for pod in release.pods() for container in pod["spec"]["containers"]} == {wanted}


def test_the_platform_may_choose_the_user() -> None:
    release = render({**REQUIRED, "podSecurity": {"runAsUser": None, "runAsGroup": None, "fsGroup": None}})
    for pod in release.pods():
        assert pod["spec"]["securityContext"].keys() == {"runAsNonRoot", "seccompProfile"}


def test_a_network_policy_lets_in_those_it_names_and_the_test_pod() -> None:
    release = render(ALL_OPTIONS)
    policy = release.one("NetworkPolicy")["spec"]
    (rule,) = policy["ingress"]
    test_pod, *named = rule["from"]
    assert named == ALL_OPTIONS["networkPolicy"]["from"]
    assert is_selected(test_pod["podSelector"]["matchLabels"], release.one("Pod")["metadata"]["labels"])
    dns, *allowed = policy["egress"]
    assert {entry["port"] for entry in dns["ports"]} == {53}
    assert allowed == ALL_OPTIONS["networkPolicy"]["egress"]


def test_the_monitor_scrapes_the_service() -> None:
    release = render(ALL_OPTIONS)
    monitor, service = release.one("ServiceMonitor"), release.one("Service")
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert is_selected(monitor["spec"]["selector"]["matchLabels"], service["metadata"]["labels"])
    (endpoint,) = monitor["spec"]["endpoints"]
    assert (endpoint["port"], endpoint["path"]) == (service["spec"]["ports"][0]["name"], "/metrics")


def test_server_and_monitor_have_the_metrics_key_where_queues_are_named() -> None:
    plain, named = (
        render(ALL_OPTIONS),
        render({**ALL_OPTIONS, "metrics": {**ALL_OPTIONS["metrics"], "namesQueues": True}}),
    )
    assert "PEEKLOCK_METRICS_KEY" not in environment(plain.server())
    (endpoint,) = plain.one("ServiceMonitor")["spec"]["endpoints"]
    assert "authorization" not in endpoint
    secret = environment(named.server())["PEEKLOCK_METRICS_KEY"]["valueFrom"]["secretKeyRef"]
    (endpoint,) = named.one("ServiceMonitor")["spec"]["endpoints"]
    assert endpoint["authorization"] == {"type": "Bearer", "credentials": secret}


def test_servers_have_the_sqs_secret_where_signatures_are_accepted() -> None:
    plain = environment(render(REQUIRED).server())
    assert plain["PEEKLOCK_SQS"]["value"] == "true"
    assert "PEEKLOCK_SQS_SECRET" not in plain
    chosen = {"enabled": False, "signatures": True, "url": "https://mq.example.com/apps/mq"}
    given = environment(render({**REQUIRED, "sqs": chosen}).server())
    assert (given["PEEKLOCK_SQS"]["value"], given["PEEKLOCK_SQS_URL"]["value"]) == ("false", chosen["url"])
    secret = given["PEEKLOCK_SQS_SECRET"]["valueFrom"]["secretKeyRef"]
    assert secret == {"name": REQUIRED["existingSecret"], "key": "sqs-secret"}


@pytest.mark.parametrize("url", ["mq.example.com", "https://mq.example.com/", "ftp://mq.example.com"])
def test_a_malformed_url_of_queues_is_refused(url: str) -> None:
    with pytest.raises(helm_python.HelmValuesError, match="/sqs/url"):
        render({**REQUIRED, "sqs": {"url": url}})


def test_names_fit_for_every_name_of_a_release() -> None:
    for document in render({**ALL_OPTIONS, "fullnameOverride": "n" * 80}).documents:
        assert len(document["metadata"]["name"]) <= 63


def test_the_chart_is_for_the_version_in_this_tree() -> None:
    project = tomllib.loads((Path(CHART).parents[1] / "pyproject.toml").read_text())["project"]
    assert chart().metadata["appVersion"] == project["version"]
