"""Metrics of one run of a job: written as a file for the node exporter, and pushed to a Pushgateway of Prometheus."""

import fcntl
import hashlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from prometheus_client import CollectorRegistry, Gauge, pushadd_to_gateway, write_to_textfile
from prometheus_client.parser import text_fd_to_metric_families

from peeklock_pipeline.loopback import direct_mounts
from peeklock_pipeline.uris import without_credentials

PREFIX = "peeklock_pipeline_"

METRICS: Mapping[str, str] = {
    "success": "1 if the last run ended, also with findings; 0 if it was refused or failed.",
    "end_timestamp_seconds": "When the last run ended.",
    "last_success_timestamp_seconds": "When the last run with success ended.",
    "duration_seconds": "How long the last run took.",
    "messages": "Messages that the last run with success copied, removed, sent, read or counted.",
    "batches": "Batches that the last export copied, or the last audit compared.",
    "files": "Files that the last export wrote, the last compaction left, or the last vacuum removed.",
    "missed_messages": "Messages that the archive removed before an export came for them, since the lake began.",
    "findings": "Findings of the last audit, or batches that differ in the last trim.",
    "exported_until_timestamp_seconds": "Every batch that was sealed before this time is in the lake, or recorded as missed.",
    "archive_retention_seconds": "The shortest time for which the archive keeps the last batch of the lake and those after it.",
}
"""Every metric without its prefix, and its meaning. A run sets those that it knows; the others keep their last value."""

LABELS = ("command", "lake")

AUDIT_FROM_SCRATCH = "audit-from-scratch"
"""The label `command` of an audit from scratch, which finds more than the audits of what is new that follow it."""

RESULT_FIELDS = ("messages", "batches", "files")
"""Fields of the results of jobs that are metrics of the same name."""

PUSH_JOB = "peeklock-pipeline"

PUSH_SECONDS = 10.0
"""A push takes at most this time. A Pushgateway in the same network answers within milliseconds."""

WRITE_SECONDS = 10.0
"""A run waits at most this time for its file. An update takes milliseconds, unless its process is stopped."""

REASON_BYTES = 200
"""The bytes of a refusal that are read and printed."""


@dataclass(slots=True)
class RunMetrics:
    """The metrics of one run of a command on a lake."""

    command: str
    lake: str
    values: dict[str, float] = field(default_factory=dict[str, float])

    def registry(self, earlier: Mapping[str, float] | None = None) -> CollectorRegistry:
        """Return the metrics, and earlier values of those that this run did not set."""
        registry = CollectorRegistry()
        for name, value in {**(earlier or {}), **self.values}.items():
            gauge = Gauge(PREFIX + name, METRICS[name], LABELS, registry=registry)
            gauge.labels(self.command, self.lake).set(value)
        return registry

    def file_name(self) -> str:
        """Return the name of the file, one for each command and lake."""
        lake = hashlib.sha256(self.lake.encode()).hexdigest()[:8]
        return f"{PREFIX}{self.command.replace('-', '_')}_{lake}.prom"


_current: ContextVar[RunMetrics | None] = ContextVar("current_run", default=None)


@contextmanager
def current_run(command: str, lake: object) -> Iterator[RunMetrics]:
    """Yield the metrics of a run, to which `measure` adds within the block."""
    run = RunMetrics(command, lake_label(lake))
    token = _current.set(run)
    try:
        yield run
    finally:
        _current.reset(token)


def measure(**values: float) -> None:
    """Set metrics of the current run, by their names without prefix. Without a run, does nothing."""
    if (run := _current.get()) is not None:
        run.values.update(values)


def name_run(name: str) -> None:
    """Give the metrics of the current run another name than its command, so that they do not replace each other."""
    if (run := _current.get()) is not None:
        run.command = name


def measure_result(result: Any) -> None:
    """Set the metrics of the current run that a job's result has as numbers."""
    found = {name: getattr(result, name, None) for name in RESULT_FIELDS}
    measure(**{name: value for name, value in found.items() if isinstance(value, int)})


def lake_label(lake: object) -> str:
    """Return a lake as a label: an absolute path, or a URI without credentials."""
    text = str(lake or "").encode(errors="backslashreplace").decode()
    if "://" in text:
        return without_credentials(text).rstrip("/")
    return str(Path(text).absolute()) if text else ""


def write_file(run: RunMetrics, directory: Path, seconds: float = WRITE_SECONDS) -> str | None:
    """Write the metrics into the directory of the textfile collector; return why that failed, or None.

    The file is replaced as a whole. Metrics that this run did not set keep the value of the file before. Of two runs
    that end at once, the second one reads what the first has written.
    """
    file = directory / run.file_name()

    def write() -> str | None:
        try:
            with update_of(directory):
                write_to_textfile(str(file), run.registry(_earlier(file)))
        except (OSError, ValueError) as error:
            return str(error)
        return None

    reason = _within(seconds, write, ", because another run locks its directory, or the file system hangs")
    return None if reason is None else f"The metrics of this run were not written to {file}: {reason}"


@contextmanager
def update_of(directory: Path) -> Iterator[None]:
    """Let no other run of this machine update the files of a directory meanwhile."""
    opened = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        os.close(opened)


def _earlier(file: Path) -> dict[str, float]:
    """Return the metrics of the last run; none if there was no run, or the file is not one of these."""
    if not file.exists():
        return {}
    with file.open(encoding="utf-8", newline="\n") as text:
        samples = [sample for family in text_fd_to_metric_families(text) for sample in family.samples]
    values = {sample.name.removeprefix(PREFIX): sample.value for sample in samples}
    return {name: value for name, value in values.items() if name in METRICS}


def push(run: RunMetrics, gateway: str, seconds: float = PUSH_SECONDS) -> str | None:
    """Push the metrics to a Pushgateway; return why that failed, or None.

    Metrics that this run did not set keep their last value there.
    """

    def send() -> str | None:
        try:
            pushadd_to_gateway(
                gateway, PUSH_JOB, run.registry(), {"command": run.command, "lake": run.lake}, seconds, _handler
            )
        except httpx.InvalidURL:  # the error may name a part of the password
            return "it is no valid URL"
        except (OSError, ValueError, httpx.HTTPError) as error:
            return str(error) or type(error).__name__
        return None

    reason = _within(seconds, send)
    if reason is None:
        return None
    return f"The metrics of this run were not pushed to {gateway.rpartition('@')[2]}: {reason}"


def _within(seconds: float, act: Callable[[], str | None], cause: str = "") -> str | None:
    """Do this in a thread that cannot delay the end of the process; return why it failed, or None.

    `cause` says why it may take too long. No timeout of a connection bounds the resolution of a name or a slow answer,
    and none a lock of files.
    """
    outcome: list[str | None] = []
    thread = threading.Thread(target=lambda: outcome.append(act()), daemon=True)
    thread.start()
    thread.join(seconds)
    return outcome[0] if outcome else f"no answer within {seconds:g} seconds{cause}"


def _handler(
    url: str, method: str, timeout: float | None, headers: Sequence[tuple[str, str]], data: bytes
) -> Callable[[], None]:
    """Return a function that sends a request for the library, whose own handler follows redirects without the body."""

    def send() -> None:
        given = [*headers, ("Accept-Encoding", "identity")]
        with (
            httpx.Client(mounts=direct_mounts(url), timeout=timeout) as http,
            http.stream(method, url, headers=given, content=data) as answer,
        ):
            if not answer.is_success:
                raise OSError(f"it answers {answer.status_code} {_reason(answer)}".strip())

    return send


def _reason(answer: httpx.Response) -> str:
    """Return the start of an answer in one line. An answer may have no end."""
    start = next(answer.iter_raw(REASON_BYTES), b"").decode(errors="replace")
    return " ".join("".join(letter if letter.isprintable() else " " for letter in start).split())
