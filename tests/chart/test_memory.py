"""The chart's memory limit covers the maximum of a pod's processes, and the documentation gives that sum."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from app.settings import Settings
from tests.chart.release import CHART, REQUIRED, VALUE_SETS, environment, render
from tests.memory_bound import MIB, max_resident_bytes

UNITS = {"Mi": MIB, "Gi": 1024 * MIB}


def limits(values: dict[str, Any]) -> tuple[int, int]:
    """Return the memory limit of a pod, and the largest resident memory of its processes."""
    server = render(values).server()
    given = {
        name.removeprefix("PEEKLOCK_").lower(): entry["value"]
        for name, entry in environment(server).items()
        if name.startswith("PEEKLOCK_") and "value" in entry
    }
    settings = Settings.model_validate(given)
    amount, unit = re.fullmatch(r"([0-9]+)(Mi|Gi)", server["resources"]["limits"]["memory"]).groups()
    return int(amount) * UNITS[unit], settings.workers * max_resident_bytes(settings)


@pytest.mark.parametrize("values", VALUE_SETS.values(), ids=VALUE_SETS)
def test_the_memory_limit_of_a_pod_covers_its_processes(values: dict[str, Any]) -> None:
    limit, needed = limits(values)
    assert limit >= needed


def test_settings_of_the_operator_count_towards_the_sum() -> None:
    extra = [{"name": "PEEKLOCK_MAX_CONNECTIONS", "value": "1000"}]
    limit, needed = limits({**REQUIRED, "extraEnv": extra})
    assert limit < needed


def test_the_documentation_gives_the_sum_of_the_defaults() -> None:
    guide = (Path(CHART).parents[1] / "docs" / "deploy.md").read_text()
    assert f"That is {max_resident_bytes(Settings()) // MIB} MiB with the defaults" in guide
