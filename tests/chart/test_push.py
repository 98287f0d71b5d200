"""The Deployments of pushes: each runs a command line that the worker accepts, with secrets that the values name."""

from __future__ import annotations

from typing import Any

import helm_python
import pytest
from peeklock_client.command.main import parser
from peeklock_client.command.push import check_options, given_options

from tests.chart.release import ALL_OPTIONS, COMPONENT, REQUIRED, Release, environment, example, render

IMAGE = {"repository": "registry.example.com/peeklock-worker"}
TARGET = {"url": "https://shop.example.com/orders?v=1", "queues": ["orders"], "existingSecret": "shop"}


def values(target: dict[str, Any] | None = None, **push: Any) -> dict[str, Any]:
    """Values with one target."""
    return {**REQUIRED, "push": {"image": IMAGE, "targets": {"shop": {**TARGET, **(target or {})}}, **push}}


def pod_of(release: Release) -> dict[str, Any]:
    return release.one("Deployment", "push")["spec"]["template"]


def container_of(release: Release) -> dict[str, Any]:
    [container] = pod_of(release)["spec"]["containers"]
    return container


def test_without_a_target_there_is_no_push() -> None:
    for given in (REQUIRED, ALL_OPTIONS):
        assert [one for one in render(given).documents if one["metadata"]["labels"][COMPONENT] == "push"] == []


def test_the_arguments_are_a_push_that_the_command_accepts() -> None:
    options = parser()
    chosen = options.parse_args(container_of(render(example("push")))["args"])
    check_options(options, chosen)
    assert given_options(chosen) == {
        "push": "https://shop.example.com/orders", "queue": ["orders", "returns"], "concurrency": 20, "batch": 10,
    }  # fmt: skip
    assert (chosen.host, chosen.port) == ("0.0.0.0", 8080)
    deployment = render(example("push")).one("Deployment", "push")
    assert deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] > chosen.grace_seconds
    assert deployment["spec"]["replicas"] == 2


def test_credentials_come_from_the_secret_of_the_target_and_the_url_from_the_service() -> None:
    release = render({**values(), "service": {"port": 9090}})
    given = environment(container_of(release))
    service = release.one("Service")
    assert given["PEEKLOCK_URL"]["value"] == (
        f"http://{service['metadata']['name']}.{service['metadata']['namespace']}:9090"
    )
    keys = {name: given[name]["valueFrom"]["secretKeyRef"] for name in ("PEEKLOCK_API_KEY", "PEEKLOCK_PUSH_SECRET")}
    assert keys == {
        "PEEKLOCK_API_KEY": {"name": "shop", "key": "api-key"},
        "PEEKLOCK_PUSH_SECRET": {"name": "shop", "key": "push-secret"},
    }


def test_each_target_has_a_deployment_that_selects_its_own_pods() -> None:
    targets = {"shop": TARGET, "post": {**TARGET, "queues": ["letters"]}}
    release = render({**REQUIRED, "push": {"image": IMAGE, "targets": targets}})
    deployments = [one for one in release.all("Deployment") if one["metadata"]["labels"][COMPONENT] == "push"]
    labels = {one["metadata"]["name"]: one["spec"]["template"]["metadata"]["labels"] for one in deployments}
    assert [name.rpartition("-push-")[2] for name in labels] == ["post", "shop"]
    server = release.one("Deployment")["spec"]["selector"]["matchLabels"]
    for deployment in deployments:
        selector = deployment["spec"]["selector"]["matchLabels"]
        assert [name for name, found in labels.items() if selector.items() <= found.items()] == [
            deployment["metadata"]["name"]
        ]
        assert not server.items() <= deployment["spec"]["template"]["metadata"]["labels"].items()


def test_values_of_the_pods_reach_them() -> None:
    resources = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "1Gi"}}
    release = render(
        values(
            {"replicas": 3, "arguments": ["--allow-private"]},
            image={**IMAGE, "digest": "sha256:" + "d" * 64, "pullPolicy": "Always"},
            resources=resources,
            podLabels={"example.com/tier": "edge"},
            podAnnotations={"example.com/note": "push"},
            extraEnv=[{"name": "SSL_CERT_FILE", "value": "/etc/ca/ca.pem"}],
            extraVolumes=[{"name": "ca", "configMap": {"name": "ca"}}],
            extraVolumeMounts=[{"name": "ca", "mountPath": "/etc/ca"}],
        )
    )
    container, pod = container_of(release), pod_of(release)
    assert (container["image"], container["imagePullPolicy"]) == (f"{IMAGE['repository']}@sha256:{'d' * 64}", "Always")
    assert (container["resources"], container["args"][0]) == (resources, "--allow-private")
    assert pod["metadata"]["labels"]["example.com/tier"] == "edge"
    assert pod["metadata"]["annotations"] == {"example.com/note": "push"}
    assert environment(container)["SSL_CERT_FILE"]["value"] == "/etc/ca/ca.pem"
    assert {mount["mountPath"] for mount in container["volumeMounts"]} == {"/tmp", "/etc/ca"}
    assert {volume["name"] for volume in pod["spec"]["volumes"]} == {"tmp", "ca"}
    assert release.one("Deployment", "push")["spec"]["replicas"] == 3


def test_network_policies_let_workers_reach_the_servers_and_what_the_values_name() -> None:
    release = render(example("push"))
    labels = pod_of(release)["metadata"]["labels"]
    own = release.one("NetworkPolicy", "push")["spec"]
    assert own["podSelector"]["matchLabels"].items() <= labels.items()
    dns, server, *allowed = own["egress"]
    assert {entry["port"] for entry in dns["ports"]} == {53}
    server_labels = release.one("Deployment")["spec"]["template"]["metadata"]["labels"]
    assert server["to"][0]["podSelector"]["matchLabels"].items() <= server_labels.items()
    assert allowed == example("push")["push"]["egress"]
    [ingress] = release.one("NetworkPolicy")["spec"]["ingress"]
    selectors = [peer["podSelector"]["matchLabels"] for peer in ingress["from"] if "podSelector" in peer]
    assert any(selector.items() <= labels.items() for selector in selectors)
    unlimited = render({**values(), "networkPolicy": {"enabled": True}})
    assert [one["metadata"]["labels"][COMPONENT] for one in unlimited.all("NetworkPolicy")] == ["server"]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({**REQUIRED, "push": {"targets": {"shop": TARGET}}}, "where you pushed the image of client/Dockerfile"),
        (values({"url": "https://user:tiger@shop.example/"}), "/push/targets/shop/url"),
        (values({"url": "shop.example"}), "/push/targets/shop/url"),
        (values({"queues": []}), "/push/targets/shop/queues"),
        (values({"replicas": 0}), "/push/targets/shop/replicas"),
        (values({"existingSecret": ""}), "/push/targets/shop/existingSecret"),
        (values({"arguments": ["x"]}), "/push/targets/shop/arguments/0"),
        (values({"batch": 3}), "batch"),
        (values(extraEnv=[{"name": "PEEKLOCK_PUSH_SECRET", "value": "tiger"}]), "come from existingSecret of a target"),
        ({**REQUIRED, "push": {"image": IMAGE, "targets": {"Shop": TARGET}}}, "Shop"),
    ],
    ids=str,
)
def test_a_target_that_cannot_work_is_refused(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(helm_python.HelmValuesError, match=sentence) as refused:
        render(given)
    assert "tiger" not in str(refused.value) or "user:tiger" in str(given)
