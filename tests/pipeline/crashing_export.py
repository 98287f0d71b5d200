"""An export whose driver crashes at a given moment: `python -m tests.pipeline.crashing_export MOMENT DATABASE_URL
LAKE`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

from peeklock_pipeline import cli
from peeklock_pipeline.files import DataFile
from peeklock_pipeline.jobs import export
from peeklock_pipeline.lake import ExportPosition, Lake

CRASH_EXIT_CODE = 9

add_batches = Lake.add_batches


def before_the_commit(
    lake: Lake, files: Sequence[DataFile], after: ExportPosition, last: ExportPosition, begun: int
) -> bool:
    """Crash with every file written, and none committed to the lake."""
    os._exit(CRASH_EXIT_CODE)


def after_the_commit(
    lake: Lake, files: Sequence[DataFile], after: ExportPosition, last: ExportPosition, begun: int
) -> bool:
    """Crash with the files committed, before any answer."""
    assert add_batches(lake, files, after, last, begun)
    os._exit(CRASH_EXIT_CODE)


def in_the_second_commit(
    lake: Lake, files: Sequence[DataFile], after: ExportPosition, last: ExportPosition, begun: int
) -> bool:
    """Crash with a part of the export committed."""
    return (
        before_the_commit(lake, files, after, last, begun)
        if after.number
        else add_batches(lake, files, after, last, begun)
    )


MOMENTS: dict[str, Callable[[Lake, Sequence[DataFile], ExportPosition, ExportPosition, int], bool]] = {
    moment.__name__: moment for moment in (before_the_commit, after_the_commit, in_the_second_commit)
}

if __name__ == "__main__":
    moment, database_url, lake = sys.argv[1:]
    Lake.add_batches = MOMENTS[moment]
    export.TASK_ROWS, export.COMMIT_TASKS = 40, 1
    cli.main(["export", "--database-url", database_url, "--lake", lake, "--master", "local[2]"])
