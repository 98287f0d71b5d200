"""A replay in small portions: `python -m tests.pipeline.replay_in_portions URL QUEUE LAKE`."""

from __future__ import annotations

import sys
from dataclasses import replace

from peeklock_pipeline.jobs import replay as job
from peeklock_pipeline.lake import Lake
from peeklock_pipeline.replay_request import ReplayRequest
from peeklock_pipeline.sending import Destination
from peeklock_pipeline.session import open_session

NAME = "killed"
RATE = 200.0
PORTION_MESSAGES = 50
"""Two tasks send a portion in a request each."""

if __name__ == "__main__":
    url, queue, lake = sys.argv[1:]
    request = ReplayRequest.create("true", Destination.from_url(url, queue, None), RATE, NAME)
    job.replay(open_session("local[2]"), Lake(lake), replace(request, portion_messages=PORTION_MESSAGES))
