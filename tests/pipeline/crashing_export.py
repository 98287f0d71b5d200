"""An export whose driver crashes at a given moment: `python -m tests.pipeline.crashing_export MOMENT DATABASE_URL LAKE
[STORAGE_OPTION ...]`."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum

from peeklock_pipeline.database import Database
from peeklock_pipeline.files import DataFile
from peeklock_pipeline.jobs.export import export
from peeklock_pipeline.lake import Lake
from peeklock_pipeline.session import open_session
from peeklock_pipeline.storage import parse_options
from peeklock_pipeline.tables import ExportPosition

CRASH_EXIT_CODE = 9
COMMIT_ROWS = 40


class Moment(StrEnum):
    """When the driver crashes."""

    BEFORE_THE_COMMIT = "before_the_commit"
    """Every file is written, and none is committed to the lake."""
    AFTER_THE_COMMIT = "after_the_commit"
    """The files are committed, and nothing is answered."""
    IN_THE_SECOND_COMMIT = "in_the_second_commit"
    """A part of the export is committed."""


class CrashingLake(Lake):
    """A lake whose driver crashes when it commits."""

    def __init__(self, root: str, moment: Moment, options: Mapping[str, str]) -> None:
        super().__init__(root, options)
        self._moment = moment

    def add_batches(self, files: Sequence[DataFile], after: ExportPosition, last: ExportPosition, begun: int) -> bool:
        """Crash before or after the commit, unless a later one is meant."""
        is_second = after.number > 0
        if self._moment is Moment.BEFORE_THE_COMMIT or (self._moment is Moment.IN_THE_SECOND_COMMIT and is_second):
            os._exit(CRASH_EXIT_CODE)
        assert super().add_batches(files, after, last, begun)
        if self._moment is Moment.AFTER_THE_COMMIT:
            os._exit(CRASH_EXIT_CODE)
        return True


if __name__ == "__main__":
    moment, database_url, lake, *options = sys.argv[1:]
    target = CrashingLake(lake, Moment(moment), parse_options(options))
    export(open_session("local[2]"), Database.from_url(database_url), target, commit_rows=COMMIT_ROWS)
