"""A retention whose driver crashes at a given moment: `python -m tests.pipeline.crashing_retention MOMENT LAKE
[STORAGE_OPTION ...]`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from datetime import date

from deltalake import DeltaTable
from peeklock_pipeline.jobs.retention import retention
from peeklock_pipeline.lake import Lake
from peeklock_pipeline.session import open_session
from peeklock_pipeline.storage import parse_options
from peeklock_pipeline.tables import Change

from tests.pipeline.crashing_export import CRASH_EXIT_CODE

BEFORE, QUEUES = date(2026, 9, 22), ("orders",)


class CrashingLake(Lake):
    """A lake whose driver crashes before or after the messages are removed."""

    def __init__(self, root: str, moment: str, options: Mapping[str, str]) -> None:
        super().__init__(root, options)
        self._moment = moment

    def remove(self, change: Change, removal: str, is_valid: Callable[[DeltaTable], bool]) -> None:
        """Crash before the commit, or after it and before anything is answered."""
        if self._moment == "after_the_commit":
            super().remove(change, removal, is_valid)
        os._exit(CRASH_EXIT_CODE)


if __name__ == "__main__":
    moment, lake, *options = sys.argv[1:]
    retention(open_session("local[2]"), CrashingLake(lake, moment, parse_options(options)), BEFORE, QUEUES)
