"""Metrics of several processes: each process answers for all of them."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from app.runtime.shared_numbers import DIRECTORY_VARIABLE, end_process

WORKER_SCRIPT = """
import os
import signal
import time

from app.http.metrics import Metrics, MetricsSnapshot

metrics = Metrics()
for _ in range(3):
    metrics.observe("send_message", "ok", time.perf_counter())
metrics.count("locks_expired", 2)
metrics.record_batch("send", 5)
metrics.record_pass("sweep", "ok")
metrics.count_messages(1, "sent", 7)
with metrics.waiting_receiver():
    print(metrics.render(MetricsSnapshot([], "ok")).decode(), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_one_answer_has_the_counts_of_every_process(tmp_path: Path) -> None:
    environment = {**os.environ, DIRECTORY_VARIABLE: str(tmp_path)}
    run = [sys.executable, "-c", WORKER_SCRIPT]
    with subprocess.Popen(run, env=environment, stdout=subprocess.DEVNULL) as ended:
        assert ended.wait() == -signal.SIGKILL
    end_process(tmp_path, ended.pid)
    done = subprocess.run(run, env=environment, capture_output=True, text=True, check=False)
    for line in (
        'peeklock_request_seconds_count{operation="send_message",outcome="ok"} 6.0',
        'peeklock_events_total{event="locks_expired"} 4.0',
        'peeklock_batch_entries_sum{statement="send"} 10.0',
        'peeklock_passes_total{name="sweep",outcome="ok"} 2.0',
        "peeklock_waiting_receivers 1.0",  # receivers of an ended process do not count
        'peeklock_lock_store{state="ok"} 1.0',
        'peeklock_message_events_total{event="sent"} 14.0',
    ):
        assert line in done.stdout.splitlines()


def test_processes_that_have_counted_nothing_yet_answer(tmp_path: Path) -> None:
    environment = {**os.environ, DIRECTORY_VARIABLE: str(tmp_path)}
    script = """
from app.http.metrics import Metrics, MetricsSnapshot

print(Metrics().render(MetricsSnapshot([], "ok")).decode())
"""
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert "peeklock_waiting_receivers 0.0" in done.stdout.splitlines()
