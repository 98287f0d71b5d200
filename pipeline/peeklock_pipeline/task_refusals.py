"""Refusals of Spark's tasks, as the user of a command reads them: one sentence with the cause, not a traceback."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from peeklock_pipeline import refusals
from peeklock_pipeline.causes import cause_of

REFUSAL = re.compile(r"peeklock_pipeline\.refusals\.(\w+): (.+)")
"""The end of the traceback that Spark sends to the driver when a task refuses."""


@contextmanager
def task_refusals() -> Iterator[None]:
    """Raise the refusal of Spark's tasks again; `TasksFailed` with the cause if they failed without a refusal."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        if not (found := REFUSAL.search(str(error))):
            raise refusals.TasksFailed(f"Spark's tasks failed, also when repeated: {cause_of(str(error))}") from error
        raise getattr(refusals, found[1])(found[2]) from error
