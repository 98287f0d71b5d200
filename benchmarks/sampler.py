"""Serves as `peeklock serve` does and, from SIGUSR1 on, samples which part of the server uses the CPU.

A sample belongs to the innermost frame whose file belongs to a part, so the standard library counts for its caller. C code
without a Python frame, such as the event loop's reads, counts for the Python code that runs next.
"""

import json
import os
import signal
from collections import Counter
from pathlib import Path
from types import FrameType

from app.cli import main

SAMPLES_FILE = "BENCH_SAMPLES_FILE"
"""The variable that names the file for the counts."""

INTERVAL_SECONDS = 0.001

PARTS = {
    "/uvicorn/": "HTTP server",
    "/app/server/": "HTTP server",
    "/prometheus_client/": "counts and metrics",
    "/app/http/metrics": "counts and metrics",
    "/app/http/message_counters": "counts and metrics",
    "/app/runtime/shared_numbers": "counts and metrics",
    "/app/console/": "counts and metrics",
    "/app/main.py": "dispatch, decode, encode",
    "/app/http/": "dispatch, decode, encode",
    "/app/api/": "dispatch, decode, encode",
    "/app/sqs/": "dispatch, decode, encode",
    "/app/wire/": "dispatch, decode, encode",
    "/app/broker/": "verbs and rules",
    "/app/domain/": "verbs and rules",
    "/app/runtime/": "batching and waiting",
    "/app/store/shared/": "rows",
    "/app/store/": "SQL client",
    "/asyncpg/": "SQL client",
    "/app/locks/": "lock store",
    "/redis/": "lock store",
    "/app/maintenance/": "background loops",
}
"""By a piece of the path of a file: the part to which it belongs. The first one counts."""
REST = "event loop"
"""What belongs to no part: the start of the process, and turns of the event loop."""

samples: Counter[str] = Counter()


def count_sample(_: int, frame: FrameType | None) -> None:
    """Count the running part."""
    while frame is not None:
        if part := part_of(frame.f_code.co_filename):
            samples[part] += 1
            return
        frame = frame.f_back
    samples[REST] += 1


def part_of(file: str) -> str | None:
    """Return the part to which a file belongs, None if it counts for its caller."""
    return next((part for path, part in PARTS.items() if path in file), None)


def start_sampling(_: int, __: FrameType | None) -> None:
    """Sample at intervals of CPU time from now on."""
    signal.setitimer(signal.ITIMER_PROF, INTERVAL_SECONDS, INTERVAL_SECONDS)


if __name__ == "__main__":
    signal.signal(signal.SIGPROF, count_sample)
    signal.signal(signal.SIGUSR1, start_sampling)
    try:
        main()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        Path(os.environ[SAMPLES_FILE]).write_text(json.dumps(samples))
