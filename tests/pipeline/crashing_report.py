"""A report whose driver crashes at a given moment: `python -m tests.pipeline.crashing_report MOMENT LAKE`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from peeklock_pipeline.jobs.report import report
from peeklock_pipeline.lake import Lake
from peeklock_pipeline.session import open_session

CRASH_EXIT_CODE = 9


class CrashingLake(Lake):
    """A lake whose driver crashes before or after the parts of a report are committed."""

    def __init__(self, root: str, moment: str) -> None:
        super().__init__(root)
        self._moment = moment

    def commit_at_version(self, *arguments: Any) -> bool:
        """Crash before the commit, or after it and before anything is answered."""
        if self._moment == "after_the_commit":
            assert super().commit_at_version(*arguments)
        os._exit(CRASH_EXIT_CODE)


if __name__ == "__main__":
    moment, lake = sys.argv[1:]
    report(open_session("local[2]"), CrashingLake(lake, moment), Path(os.devnull))
