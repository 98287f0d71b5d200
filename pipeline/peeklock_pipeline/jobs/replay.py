"""replay: sends messages from the lake to a queue over HTTP, each once.

Each portion is recorded as begun, sent by all executors, and recorded as sent. After a crash, the next run sends the
begun portion again with the same message ids, while the queue remembers them. Later than that the portion is in doubt:
the replay then refuses and asks for a decision, because a message could be stored twice.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from peeklock_pipeline import plurals
from peeklock_pipeline.lake import Lake
from peeklock_pipeline.message_json import new_messages
from peeklock_pipeline.progress import Progress, no_progress
from peeklock_pipeline.refusals import BadLake, BadOption, InDoubt
from peeklock_pipeline.replay_log import Portion, ReplayLog, ReplayState
from peeklock_pipeline.replay_request import InDoubtAction, ReplayRequest
from peeklock_pipeline.sending import Destination, RateLimiter, Sender, SendResult
from peeklock_pipeline.table_specs import ARCHIVE, TableSpec
from peeklock_pipeline.task_refusals import task_refusals
from peeklock_pipeline.transforms.replay import counted_ranges, matching, narrowed, outgoing

TASK_RATE = 100.0
"""Messages per second for which a further task is used."""

SHARE_OF_WINDOW = 0.25
"""The share of the queue's window that a portion may take, if one task sends all of it because it is one group."""

SAMPLE = 5
SAMPLE_COLUMNS = ("sequence_number", "queue", "outcome", "settled_at", "message_id")

LAST_NUMBER = (1 << 63) - 1
"""No sequence number is greater."""

COUNTS_SCHEMA = "messages bigint, duplicates bigint"
COUNTS_ARROW_SCHEMA = pa.schema([("messages", pa.int64()), ("duplicates", pa.int64())])

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """What a replay would send: the matching messages, those already sent or skipped, and those in doubt."""

    replay: str
    last_batch: int
    messages: int
    bytes: int
    done: int
    in_doubt: int
    remaining: int
    sample: list[dict[str, Any]]

    def sentence(self, queue: str) -> str:
        """Return the plan as text, with its first messages."""
        selected = f"{plurals.messages(self.messages)} with {plurals.size(self.bytes)}"
        sentence = f"Replay {self.replay} selects {selected}, up to batch {self.last_batch}."
        if self.done:
            sentence += f" {self.done} had been sent or skipped, and would not be sent again."
        if self.in_doubt:
            sentence += f" A run ended while it sent {self.in_doubt}."
        sentence += f" {self.remaining} would be sent to {queue}" + (", first of them:" if self.sample else ".")
        return "\n".join([sentence, *("  " + "  ".join(str(value) for value in row.values()) for row in self.sample)])


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """What a run sent. `duplicates` of these were already in the queue, sent by a run that crashed."""

    replay: str
    messages: int
    duplicates: int
    skipped: int
    done_before: int

    def sentence(self, queue: str) -> str:
        """Return the run as text."""
        sentence = f"Replay {self.replay} sent {plurals.messages(self.messages)} to {queue}"
        sentence += f", of which {self.duplicates} had arrived before." if self.duplicates else "."
        if self.skipped:
            sentence += f" It skipped {self.skipped} in doubt."
        if self.done_before:
            sentence += f" {self.done_before} had been sent or skipped before, and were not sent again."
        return sentence


@task_refusals()
def plan(spark: SparkSession, lake: Lake, replay_request: ReplayRequest) -> ReplayPlan:
    """Return what would be sent, and change nothing. Refuses with `BadLake`, `BadExpression` and `BadOption`."""
    state = _load_state(spark, lake, ReplayLog(lake, replay_request.name), replay_request)
    selection = _Selection(spark, lake, replay_request.where, state.last_batch)
    messages = selection.between(0, LAST_NUMBER, narrowed(replay_request.where, "body", *SAMPLE_COLUMNS))
    is_done = fn.col("sequence_number") <= state.done_up_to
    counts = messages.agg(
        fn.count("*").alias("messages"), fn.sum(fn.length("body")).alias("bytes"), fn.count_if(is_done).alias("done")
    ).collect()[0]
    sample = messages.where(~is_done).select(*SAMPLE_COLUMNS)
    return ReplayPlan(
        replay=replay_request.name,
        last_batch=state.last_batch,
        messages=counts.messages,
        bytes=counts.bytes or 0,
        done=counts.done,
        in_doubt=state.unfinished.messages if state.unfinished else 0,
        remaining=counts.messages - counts.done,
        sample=[row.asDict() for row in sample.orderBy("sequence_number").limit(SAMPLE).collect()],
    )


@task_refusals()
def replay(
    spark: SparkSession,
    lake: Lake,
    replay_request: ReplayRequest,
    in_doubt_action: InDoubtAction = InDoubtAction.REFUSE,
    progress: Progress = no_progress,
    clock: Clock = time.time,
) -> ReplayResult:
    """Send what is not sent yet.

    Refuses as `plan` does, and with `NoDuplicateDetection`, `SendRefused`, `ServerUnavailable` and `InDoubt`; what was
    sent by then is recorded.
    """
    with Sender(replay_request.destination) as sender:
        window = sender.window()
    replay_log = ReplayLog(lake, replay_request.name)
    state = _load_state(spark, lake, replay_log, replay_request)
    run = _Run(
        _Selection(spark, lake, replay_request.where, state.last_batch), replay_request, replay_log, window, clock
    )
    if replay_log.is_empty:
        replay_log.plan(state)
    begun = state.unfinished
    remaining_portions = run.portions(begun.last if begun else state.done_up_to)
    again = run.resume(begun, in_doubt_action) if begun else None
    total = sum(portion.messages for portion in remaining_portions) + (again.messages if again else 0)
    sent = run.send(again) if again else SendResult()
    for part in (part for portion in remaining_portions for part in run.pieces(portion)):
        progress(sent.messages, total)
        sent += run.send(run.begun(part))
    progress(sent.messages, total)
    return ReplayResult(
        replay=replay_request.name,
        messages=sent.messages,
        duplicates=sent.duplicates,
        skipped=begun.messages if begun and not again else 0,
        done_before=state.sent + state.skipped,
    )


def _load_state(spark: SparkSession, lake: Lake, replay_log: ReplayLog, replay_request: ReplayRequest) -> ReplayState:
    """Return the state of a replay, or the initial state on its first run.

    Refuses with `BadOption` a name that another replay has.
    """
    lake.archive_table()
    queue = replay_request.destination.queue
    state = replay_log.state(spark) or ReplayState(replay_request.where, queue, lake.last_batch())
    if (state.condition, state.target_queue) != (replay_request.where, queue):
        raise BadOption(
            f"The replay {replay_request.name} sends what matches {state.condition!r} to {state.target_queue}: "
            "continue that one, or give this one another name."
        )
    return state


class _Selection:
    """The messages of a replay, at the version of the lake that this run found.

    Refuses with `BadExpression`.
    """

    def __init__(self, spark: SparkSession, lake: Lake, where: str, last_batch: int) -> None:
        self.spark = spark
        self._lake = lake
        self._table = lake.archive_table()
        self._where = where
        self._last_batch = last_batch
        matching(lake.read_files(spark, []), where, last_batch)

    def between(self, first: int, last: int, spec: TableSpec = ARCHIVE) -> DataFrame:
        """Return the messages between these sequence numbers, inclusive, from the files that may have one.

        Refuses with `BadLake`.
        """
        within = {"sequence_number": (first, last), "export_batch": (0, self._last_batch)}
        try:
            archive = self._lake.read_version(self.spark, self._table, spec, within)
        except BadLake:
            if self._lake.archive_table().version() == self._table.version():
                raise
            raise BadLake(
                "Another job has removed files of the lake that this replay was reading; run it again to continue."
            ) from None
        return matching(archive, self._where, self._last_batch).where(fn.col("sequence_number").between(first, last))

    def count(self, first: int, last: int) -> list[Portion]:
        """Count the messages between these sequence numbers, in ranges. Reads no other columns than the filter's."""
        found = counted_ranges(self.between(first, last, narrowed(self._where)))
        return [Portion(row["first"], row["last"], row["messages"]) for row in found.collect()]


class _Run:
    """One run of a replay."""

    def __init__(
        self, selection: _Selection, replay_request: ReplayRequest, replay_log: ReplayLog, window: float, clock: Clock
    ) -> None:
        self._selection = selection
        self._request = replay_request
        self._destination = replay_request.destination.limited_to_window(window)
        self._log = replay_log
        self._window = window
        self._clock = clock
        self._rate_limiter = RateLimiter(replay_request.rate)
        cores = selection.spark.sparkContext.defaultParallelism
        self._tasks = max(1, min(cores, int(replay_request.rate / TASK_RATE)))
        self._max_messages = min(
            replay_request.portion_messages, int(replay_request.rate / self._tasks * window * SHARE_OF_WINDOW)
        )

    def portions(self, done_to: int) -> list[Portion]:
        """Return what is still to be sent, in order. Some portions may be too large."""
        return self._cut(done_to + 1, LAST_NUMBER)

    def pieces(self, portion: Portion) -> Iterator[Portion]:
        """Yield a portion in pieces that are not too large."""
        if portion.messages <= self._max_messages or portion.first == portion.last:
            yield portion
        else:
            for part in self._cut(portion.first, portion.last):
                yield from self.pieces(part)

    def begun(self, portion: Portion) -> Portion:
        """Record a portion as begun: its messages may be sent from now on."""
        self._rate_limiter.wait(portion.messages)
        return self._log.begin(portion, self._clock())

    def resume(self, portion: Portion, in_doubt_action: InDoubtAction) -> Portion | None:
        """Return a portion that an earlier run began, if it may be sent now; None if it is skipped.

        Refuses with `InDoubt` if the queue may have forgotten its ids and no action is given.
        """
        if self._clock() < portion.begun_at + self._window:
            return portion
        if in_doubt_action is InDoubtAction.SEND:
            return self.begun(portion)
        if in_doubt_action is InDoubtAction.SKIP:
            self._log.skip(portion)
            return None
        raise InDoubt(
            f"A run of the replay {self._request.name} ended while it sent {plurals.messages(portion.messages)} with sequence "
            f"numbers from {portion.first} to {portion.last}, so long ago that the queue no longer knows which it has. "
            "Look there for messages of this replay, and choose --in-doubt send or --in-doubt skip."
        )

    def send(self, portion: Portion) -> SendResult:
        """Send a portion, and record that it is sent."""
        messages = outgoing(self._selection.between(portion.first, portion.last), self._request.name)
        # One task sends all messages of a group, in their order.
        groups = messages.repartition(self._tasks, fn.coalesce("group_id", fn.col("sequence_number").cast("string")))
        ordered = groups.sortWithinPartitions("sequence_number").drop("sequence_number")
        task = _task(self._destination, self._request.rate / self._tasks, portion.begun_at + self._window)
        counts = ordered.mapInArrow(task, COUNTS_SCHEMA).collect()
        sent = sum((SendResult(send_counts.messages, send_counts.duplicates) for send_counts in counts), SendResult())
        self._log.end(portion, sent)
        return sent

    def _cut(self, first: int, last: int) -> list[Portion]:
        return merge_ranges(self._selection.count(first, last), self._max_messages)


def merge_ranges(counted: Sequence[Portion], max_messages: int) -> list[Portion]:
    """Merge neighbouring ranges, in order, into portions of at most `max_messages`, or of a single range."""
    found: list[Portion] = []
    for portion in counted:
        if found and found[-1].messages + portion.messages <= max_messages:
            found[-1] = Portion(found[-1].first, portion.last, found[-1].messages + portion.messages)
        else:
            found.append(portion)
    return found


def _task(
    destination: Destination, rate: float, deadline: float
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def send_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with Sender(destination, deadline) as sender:
            sent = sender.send(new_messages(batches, ""), RateLimiter(rate))
        send_counts = {"messages": sent.messages, "duplicates": sent.duplicates}
        yield pa.RecordBatch.from_pylist([send_counts], schema=COUNTS_ARROW_SCHEMA)

    return send_rows
