"""Every document of the chart is valid under the Kubernetes schemas, oldest and newest supported."""

from __future__ import annotations

import copy
from typing import Any

import kubernetes_validate
import pytest

from tests.chart.release import REQUIRED, VALUE_SETS, chart, render

OLDEST = chart().metadata["kubeVersion"].removeprefix(">=").removesuffix(".0-0")
VERSIONS = [OLDEST, kubernetes_validate.latest_version()]

# Defined by an operator, not by Kubernetes, so there is no schema to hold them to; test_promises.py and test_monitoring.py
# read them field by field.
CUSTOM = {"PrometheusRule", "ServiceMonitor"}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("values", VALUE_SETS.values(), ids=VALUE_SETS)
def test_every_document_is_valid(values: dict[str, Any], version: str) -> None:
    for document in render(values).documents:
        if document["kind"] not in CUSTOM:
            kubernetes_validate.validate(document, version, strict=True)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_validation_notices_a_field_that_does_not_exist(version: str) -> None:
    document = copy.deepcopy(render(REQUIRED).one("Deployment"))
    document["spec"]["template"]["spec"]["containers"][0]["livenessProbes"] = {}
    with pytest.raises(kubernetes_validate.ValidationError, match="livenessProbes"):
        kubernetes_validate.validate(document, version, strict=True)


def test_between_them_the_value_sets_render_every_kind() -> None:
    kinds = {document["kind"] for values in VALUE_SETS.values() for document in render(values).documents}
    sources = (template["data"] for template in chart().templates)
    declared = {
        line.removeprefix("kind: ") for source in sources for line in source.splitlines() if line.startswith("kind: ")
    }
    assert kinds == declared
