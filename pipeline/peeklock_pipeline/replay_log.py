"""The table `replays` of a lake: the plan of each replay, and the portions that it has begun and sent.

A replay sends in the order of sequence numbers, portion by portion. It records a portion before it sends the first
message and after it has sent the last. So after a crash, the next run knows which portion is in doubt.
"""

import time
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as fn

from peeklock_pipeline.files import write
from peeklock_pipeline.lake import Lake
from peeklock_pipeline.refusals import BadLake
from peeklock_pipeline.sending import SendResult
from peeklock_pipeline.table_specs import REPLAYS

REPLAY_KEY_PREFIX = "peeklock-replay-"
"""The prefix of applications named after a replay. The version of a transaction is the number of its entries."""

PLANNED, BEGUN, SENT, SKIPPED = "planned", "begun", "sent", "skipped"


@dataclass(frozen=True, slots=True)
class Portion:
    """Messages between two sequence numbers, inclusive, that are sent together; `begun_at` in seconds since 1970."""

    first: int
    last: int
    messages: int
    begun_at: float = 0.0


@dataclass(frozen=True, slots=True)
class ReplayState:
    """The state of a replay.

    Messages that match `condition` in the batches up to `last_batch` go to `target_queue`. Those up to sequence number
    `done_up_to` are sent or skipped. `unfinished` is the portion that was begun and has not ended.
    """

    condition: str
    target_queue: str
    last_batch: int
    done_up_to: int = 0
    sent: int = 0
    skipped: int = 0
    unfinished: Portion | None = None


class ReplayLog:
    """The entries of one replay. Of two runs that continue it at once, one fails at the first entry that both write."""

    def __init__(self, lake: Lake, replay: str) -> None:
        self._lake = lake
        self._replay = replay
        self._app_id = REPLAY_KEY_PREFIX + replay
        self._version = lake.transaction_version(REPLAYS, self._app_id)

    @property
    def is_empty(self) -> bool:
        """Whether the replay has no entry yet."""
        return self._version == 0

    def state(self, spark: SparkSession) -> ReplayState | None:
        """Return the state of the replay; None if it has no plan yet."""
        entries = self._lake.read(spark, REPLAYS).where(fn.col("replay") == self._replay)
        latest = fn.max_by(fn.struct(*entries.columns), fn.struct("last_sequence", "at")).alias("latest")
        found = {
            row.event: (row.latest, row.messages)
            for row in entries.groupBy("event").agg(latest, fn.sum("messages").alias("messages")).collect()
        }
        if PLANNED not in found:
            return None
        plan = found[PLANNED][0]
        ends = [found[event][0].last_sequence for event in (SENT, SKIPPED) if event in found]
        state = ReplayState(
            condition=plan.condition,
            target_queue=plan.target_queue,
            last_batch=plan.last_batch,
            done_up_to=max(ends, default=0),
            sent=found[SENT][1] if SENT in found else 0,
            skipped=found[SKIPPED][1] if SKIPPED in found else 0,
        )
        if BEGUN not in found or found[BEGUN][0].last_sequence <= state.done_up_to:
            return state
        begun = found[BEGUN][0]
        portion = Portion(begun.first_sequence, begun.last_sequence, begun.messages, begun.at.timestamp())
        return replace(state, unfinished=portion)

    def plan(self, state: ReplayState) -> None:
        """Record the plan of the replay."""
        self._add_entry(
            PLANNED,
            condition=state.condition,
            target_queue=state.target_queue,
            last_batch=state.last_batch,
        )

    def begin(self, portion: Portion, at: float) -> Portion:
        """Record that messages of a portion may be in the queue from now on."""
        self._add_entry(BEGUN, portion, at=at)
        return replace(portion, begun_at=at)

    def end(self, portion: Portion, sent: SendResult) -> None:
        """Record that all messages of a portion are in the queue."""
        self._add_entry(SENT, replace(portion, messages=sent.messages), duplicates=sent.duplicates)

    def skip(self, portion: Portion) -> None:
        """Record that the rest of a portion is not sent."""
        self._add_entry(SKIPPED, portion)

    def _add_entry(
        self, event: str, portion: Portion = Portion(0, 0, 0), at: float | None = None, **more: object
    ) -> None:
        """Add an entry. Refuses with `BadLake` if another run of this replay has added one meanwhile."""
        entry = {
            "replay": self._replay, "event": event, "at": int((time.time() if at is None else at) * 1_000_000),
            "first_sequence": portion.first, "last_sequence": portion.last, "messages": portion.messages,
        } | more  # fmt: skip
        table = pa.Table.from_pylist([entry], schema=REPLAYS.schema)
        files = list(write(table, self._lake.directory(REPLAYS), REPLAYS))
        if not self._lake.append_at_version(REPLAYS, files, self._app_id, self._version):
            raise BadLake(f"Another run has continued the replay {self._replay} meanwhile; wait for its end.")
        self._version += 1
