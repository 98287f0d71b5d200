"""The alerts of the pipeline: each fires just above its limit, for the commands that it is about, and not below."""

from __future__ import annotations

from typing import Any

import pytest
import typer.main
import yaml
from peeklock_pipeline import cli
from peeklock_pipeline.run_metrics import AUDIT_FROM_SCRATCH, PREFIX

from tests.chart.alerts import Series, firing
from tests.chart.release import CHART

GROUPS = yaml.safe_load((CHART / "rules/peeklock.yaml").read_text())["groups"]
RULES: dict[str, dict[str, Any]] = {
    rule["alert"]: rule for group in GROUPS if group["name"] == "peeklock-pipeline" for rule in group["rules"]
}
COMMANDS = {*typer.main.get_command(cli.app).commands, AUDIT_FROM_SCRATCH}  # pyright: ignore[reportAttributeAccessIssue]

NOW = 1_800_000_000
MINUTE, HOUR, DAY = 60, 3600, 86_400
LAKE, OTHER = "/srv/lake", "s3://other/lake"


def metric(name: str, values: float | dict[int, float], command: str = "export", lake: str = LAKE) -> Series:
    """A metric of the runs of a command: its value for a week, or its values by the seconds since which each is valid."""
    since = values if isinstance(values, dict) else {7 * DAY: values}
    labels = {"command": command, "lake": lake, "job": "peeklock-pipeline"}
    return Series(PREFIX + name, labels, {NOW - ago: value for ago, value in since.items()})


def fires(alert: str, *series: Series) -> list[dict[str, str]]:
    """Return the labels of an alert that fires now."""
    return sorted(firing(RULES[f"PeeklockPipeline{alert}"], series, NOW), key=str)


def commands_for_which(alert: str, name: str, value: float) -> set[str]:
    """Return the commands for which a metric with this value lets an alert fire."""
    return {command for command in COMMANDS if fires(alert, metric(name, value, command))}


def test_every_alert_of_the_pipeline_has_a_test_here() -> None:
    assert RULES.keys() == {
        f"PeeklockPipeline{alert}"
        for alert in ("AuditFound", "MessagesMissed", "ExportLate", "JobFails", "JobOverdue", "FullAuditOverdue")
    }


def test_a_single_finding_of_either_audit_is_an_alert_of_its_lake() -> None:
    assert fires("AuditFound", metric("findings", 0, "audit")) == []
    assert commands_for_which("AuditFound", "findings", 1) == {"audit", AUDIT_FROM_SCRATCH}
    both = [metric("findings", 0, "audit"), metric("findings", 1, AUDIT_FROM_SCRATCH)]
    assert fires("AuditFound", *both, metric("findings", 0, "audit", OTHER)) == [{"lake": LAKE}]


@pytest.mark.parametrize(
    ("missed", "alert"),
    [
        ({7 * DAY: 0}, False),
        ({7 * DAY: 3}, False),
        ({HOUR: 0}, False),
        ({HOUR: 1}, True),
        ({7 * DAY: 3, MINUTE: 4}, True),
        ({7 * DAY: 3, DAY - 1: 4}, True),
        ({7 * DAY: 3, DAY: 4}, False),
        ({7 * DAY: 9, DAY + HOUR - 1: 3, MINUTE: 4}, False),  # the highest of an hour counts
        ({7 * DAY: 9, DAY + HOUR: 3, MINUTE: 4}, True),
        ({7 * DAY: 3, MINUTE: 2}, False),
    ],
    ids=str,
)
def test_messages_that_were_missed_since_yesterday_are_an_alert(missed: dict[int, float], alert: bool) -> None:
    name = "missed_messages"
    assert fires("MessagesMissed", metric(name, missed), metric(name, 7, lake=OTHER)) == [{"lake": LAKE}] * alert


def test_an_export_is_late_once_more_than_half_of_the_retention_has_passed() -> None:
    until, retention = "exported_until_timestamp_seconds", metric("archive_retention_seconds", 10 * HOUR)
    assert fires("ExportLate", metric(until, NOW - 5 * HOUR), retention) == []
    assert fires("ExportLate", metric(until, NOW - 5 * HOUR - 1), retention) == [{"lake": LAKE}]
    assert fires("ExportLate", metric(until, NOW - 5 * HOUR - 1)) == []
    later = metric(until, NOW, "audit")
    assert fires("ExportLate", metric(until, NOW - 5 * HOUR - 1), later, retention) == []


def test_a_job_that_fails_for_an_hour_is_an_alert() -> None:
    assert fires("JobFails", metric("success", 1)) == []
    assert fires("JobFails", metric("success", {DAY: 1, HOUR - MINUTE: 0})) == []
    assert fires("JobFails", metric("success", {DAY: 1, HOUR: 0})) == [{"command": "export", "lake": LAKE}]
    assert fires("JobFails", metric("success", {DAY: 0, 30 * MINUTE: 1, 28 * MINUTE: 0})) == []
    assert commands_for_which("JobFails", "success", 0) == {
        "export", "snapshot", "audit", AUDIT_FROM_SCRATCH, "report", "compact", "retention", "vacuum",
    }  # fmt: skip


def test_a_job_without_success_for_more_than_two_days_is_an_alert() -> None:
    last = "last_success_timestamp_seconds"
    assert fires("JobOverdue", metric(last, NOW - 2 * DAY)) == []
    overdue = metric(last, NOW - 2 * DAY - 1, "vacuum")
    assert fires("JobOverdue", overdue, metric(last, NOW, "vacuum", OTHER)) == [{"command": "vacuum", "lake": LAKE}]
    assert commands_for_which("JobOverdue", last, NOW - 2 * DAY - 1) == {"export", "audit", "compact", "vacuum"}


def test_no_audit_from_scratch_for_more_than_two_weeks_is_an_alert() -> None:
    last = "last_success_timestamp_seconds"
    assert fires("FullAuditOverdue", metric(last, NOW - 14 * DAY, AUDIT_FROM_SCRATCH)) == []
    assert fires("FullAuditOverdue", metric(last, NOW - 14 * DAY - 1, AUDIT_FROM_SCRATCH)) == [{"lake": LAKE}]
    assert commands_for_which("FullAuditOverdue", last, NOW - 14 * DAY - 1) == {AUDIT_FROM_SCRATCH}
