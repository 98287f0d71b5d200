"""What an install of the chart would send to Kubernetes, rendered by Helm's own engine."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import helm_python
import yaml

CHART = Path(__file__).parents[2] / "helm" / "peeklock"
NAMESPACE = "queues"
NAME = "demo"
COMPONENT = "app.kubernetes.io/component"

# The two values without a default.
REQUIRED: dict[str, Any] = {"image": {"repository": "registry.example.com/peeklock"}, "existingSecret": "queue-access"}

# Everything that can be switched on, so that every template is rendered.
ALL_OPTIONS: dict[str, Any] = {
    **REQUIRED,
    "image": {"repository": "registry.example.com/peeklock", "digest": "sha256:" + "a" * 64},
    "imagePullSecrets": [{"name": "registry"}],
    "autoscaling": {"enabled": True},
    "server": {"workers": 2, "longPollCapSeconds": 110, "shutdownGraceSeconds": 90},
    "service": {"annotations": {"example.com/owner": "platform"}, "type": "NodePort"},
    "ingress": {
        "enabled": True,
        "className": "nginx",
        "readTimeoutSeconds": 120,
        "annotations": {"example.com/owner": "platform"},
        "tls": [{"hosts": ["peeklock.example.com"], "secretName": "peeklock-tls"}],
    },
    "serviceAccount": {"annotations": {"example.com/role": "queue"}},
    "migration": {"serviceAccountName": "migrator"},
    "metrics": {
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}},
        "dashboard": {"enabled": True},
    },
    "networkPolicy": {
        "enabled": True,
        "from": [{"namespaceSelector": {"matchLabels": {"team": "orders"}}}],
        "egress": [{"to": [{"podSelector": {"matchLabels": {"app": "postgresql"}}}], "ports": [{"port": 5432}]}],
    },
    "pipeline": {
        "enabled": True,
        "image": {"repository": "registry.example.com/pipeline", "tag": "2.0"},
        "databaseSecret": "reader",
        "lake": {
            "uri": "s3://example/lake",
            "storageOptions": {"AWS_REGION": "eu-central-1"},
            "storageSecret": "lake-access",
        },
        "serviceAccount": {"annotations": {"example.com/role": "lake"}},
        "podLabels": {"example.com/identity": "lake"},
        "podAnnotations": {"example.com/note": "lake"},
        "threads": 3,
        "driverMemory": "2g",
        "pushGateway": "http://pushgateway:9091",
        "egress": [{"to": [{"podSelector": {"matchLabels": {"app": "postgresql"}}}], "ports": [{"port": 5432}]}],
        "extraEnv": [{"name": "TZ", "value": "UTC"}],
        "extraVolumes": [{"name": "ca", "configMap": {"name": "database-ca"}}],
        "extraVolumeMounts": [{"name": "ca", "mountPath": "/etc/database-ca", "readOnly": True}],
        "jobs": {
            "snapshot": {"enabled": True},
            "report": {"enabled": True, "arguments": ["--queue=orders"]},
            "retention": {"enabled": True, "olderThan": "400d"},
        },
    },
    "resources": {"limits": {"memory": "2304Mi"}},
    "podAnnotations": {"example.com/note": "yes"},
    "podLabels": {"example.com/tier": "middle"},
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "tolerations": [{"key": "dedicated", "operator": "Exists"}],
    "affinity": {"podAntiAffinity": {}},
    "priorityClassName": "important",
    "extraEnv": [{"name": "TZ", "value": "UTC"}],
    "extraVolumes": [{"name": "ca", "configMap": {"name": "database-ca"}}],
    "extraVolumeMounts": [{"name": "ca", "mountPath": "/etc/database-ca", "readOnly": True}],
}


def example(name: str) -> dict[str, Any]:
    """Read one of the value files that the chart ships as examples."""
    return yaml.safe_load((CHART / "examples" / f"{name}.yaml").read_text())


VALUE_SETS: dict[str, dict[str, Any]] = {
    "defaults": REQUIRED,
    "everything": ALL_OPTIONS,
    **{file.stem: example(file.stem) for file in sorted((CHART / "examples").glob("*.yaml"))},
}


@dataclass(frozen=True, slots=True)
class Release:
    """The documents of one rendering, and the text shown after the install."""

    documents: tuple[dict[str, Any], ...]
    notes: str

    def all(self, kind: str) -> list[dict[str, Any]]:
        """Return every document of a kind."""
        return [document for document in self.documents if document["kind"] == kind]

    def one(self, kind: str, component: str | None = None) -> dict[str, Any]:
        """Return the only document of a kind: of a component, or of any but the pipeline and pushes."""
        found = [(document["metadata"]["labels"][COMPONENT], document) for document in self.all(kind)]
        (document,) = [
            each for name, each in found if (name == component if component else name not in ("pipeline", "push"))
        ]
        return document

    def pods(self) -> list[dict[str, Any]]:
        """Return every pod: of the Deployments, of the migration Job, of CronJobs, and the one that `helm test` runs."""
        templates = [document["spec"]["template"] for kind in ("Deployment", "Job") for document in self.all(kind)]
        return [
            *templates,
            *(job["spec"]["jobTemplate"]["spec"]["template"] for job in self.jobs().values()),
            *self.all("Pod"),
        ]

    def jobs(self) -> dict[str, dict[str, Any]]:
        """Return the CronJobs of the pipeline, by the name of their container."""
        jobs = self.all("CronJob")
        return {job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]["name"]: job for job in jobs}

    def server(self) -> dict[str, Any]:
        """Return the server's container."""
        (container,) = self.one("Deployment")["spec"]["template"]["spec"]["containers"]
        return container


@functools.cache
def chart() -> helm_python.Chart:
    """Load the chart once."""
    return helm_python.Chart.load(CHART)


def render(values: dict[str, Any]) -> Release:
    """Render the chart as `helm install` does, schema check included; raises what Helm says when it refuses."""
    files = chart().render(values, name=NAME, namespace=NAMESPACE)
    notes = files.pop("peeklock/templates/NOTES.txt")
    documents = [document for text in files.values() for document in yaml.safe_load_all(text) if document]
    return Release(tuple(documents), notes)


def environment(container: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return a container's environment by name; a name given twice fails."""
    entries = container["env"]
    by_name = {entry["name"]: entry for entry in entries}
    assert len(by_name) == len(entries), "an environment name appears twice"
    return by_name
