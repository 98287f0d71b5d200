"""A SQLite database with one writer: concurrent writes of the process share one commit and one fsync."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, Generic, TypeVar

from app.broker.ports.settling import Admitted
from app.broker.ports.transactions import SettlementsFailed
from app.domain.instant import Instant
from app.domain.refusals import Refusal, StoreUnavailable
from app.domain.weight import MAX_RESPONSE_BYTES
from app.runtime.clock import Clock
from app.runtime.coalescer import RequeueEntryError, WeightLimits
from app.store.shared.database import BatchObserver, NotWritable, StoreClosed, StoreCoalescer
from app.store.shared.rows import Row
from app.store.shared.statements import Statement
from app.store.sqlite.dialect import DIALECT
from app.store.sqlite.file import FileLock, connect, translate_errors

Result = TypeVar("Result")

READERS = 3
"""Threads that read beside the writer. More would only wait for Python's one interpreter."""

MAX_BATCH_SIZE = 256
"""Steps in one commit. At this number the fsync is a negligible part, and no step waits long for the others."""


class Transaction:
    """Runs named statements on a connection at one instant of the clock. Also the `SqlSession` of a `Work`."""

    __slots__ = ("_connection", "_statements", "admitted", "now", "result_weight", "started_at")

    def __init__(self, connection: sqlite3.Connection, statements: Mapping[str, Statement], clock: Clock) -> None:
        self._connection = connection
        self._statements = statements
        self.started_at = clock.monotonic()
        """Read before `now`, so that no lock that begins at `now` is promised for too long."""
        self.now: Instant = clock.now()
        self.result_weight = 0
        """The weight of the messages in the results."""
        self.admitted: list[Admitted] = []
        """Messages that became available because others have left their groups."""

    def rows(self, name: str, /, **values: Any) -> list[Row]:
        """Return the rows of a statement that yields rows."""
        return self._execute(name, values).fetchall()

    def execute(self, name: str, /, **values: Any) -> int:
        """Run a statement that yields no rows. Return how many rows it changed."""
        return self._execute(name, values).rowcount

    async def fetch(self, name: str, /, **values: Any) -> list[Row]:
        """See `SqlSession`. Never waits."""
        return self.rows(name, **values)

    async def change(self, name: str, /, **values: Any) -> int:
        """See `SqlSession`. Never waits."""
        return self.execute(name, **values)

    def _execute(self, name: str, values: dict[str, Any]) -> sqlite3.Cursor:
        values["now"] = self.now
        return self._connection.execute(self._statements[name].text, values)


@dataclass(frozen=True, slots=True)
class Step(Generic[Result]):
    """One caller's work in the writer's next transaction.

    `run` takes effect as a whole or raises. It raises a `Refusal` or `SettlementsFailed` before it changes anything, so
    that other steps need not be undone. If the caller is
    cancelled, `compensate` turns the result into the step that undoes it, and that step's `on_committed` receives its
    result after the commit. `weight` is the bytes that the step writes or may read.
    """

    run: Callable[[Transaction], Result]
    compensate: "Callable[[Result], Step[Any] | None] | None" = None
    weight: int = 0
    on_committed: Callable[[Result], None] | None = None


WRITE_LIMITS: WeightLimits[Step[Any]] = WeightLimits(
    attrgetter("weight"), max_run_weight=4 << 20, max_waiting_weight=64 << 20
)
"""Bytes of steps. All steps of a commit are answered together, so a light step must not wait for many heavy ones."""


class SqliteDatabase:
    """`Database` over a file, or in memory without a path.

    Writers gather in a `Coalescer`. One thread runs them one after the other in one transaction. They receive their
    results after its commit. Readers have connections and threads of their own and read committed data. A database in
    memory has one connection and needs no threads, because nothing there takes time. A test passes weakened
    `statements` to prove that another test notices.
    """

    def __init__(
        self, path: Path | None, clock: Clock, observe: BatchObserver, statements: Mapping[str, Statement] | None = None
    ) -> None:
        self._path = path
        self._clock = clock
        self._observe = observe
        self._statements = statements or DIALECT.statements
        self._lock = FileLock(path) if path else None
        self._writer: sqlite3.Connection | None = None
        self._idle_readers: list[sqlite3.Connection] = []
        self._connections = 0
        self._writing_thread = ThreadPoolExecutor(1, "sqlite-writer")
        self._reading_threads = ThreadPoolExecutor(READERS, "sqlite-reader")
        self._steps: StoreCoalescer[Step[Any], Any] = StoreCoalescer(
            self._run_batch,
            in_flight=1,
            max_batch_size=MAX_BATCH_SIZE,
            limits=WRITE_LIMITS,
            on_orphaned=self._compensate,
        )
        self._compensations: set[asyncio.Task[None]] = set()
        self._closed = False
        self.on_admitted: Callable[[Sequence[Admitted]], None] = _ignore_admitted
        """Receives the messages that the steps of a transaction have admitted, after its commit."""

        self.on_refused: Callable[[NotWritable], None] = _only_raise
        """Receives each error that says that the file cannot be written."""

    # ---- interface ---------------------------------------------------------------------------------------------------

    @property
    def is_on_disk(self) -> bool:
        """Whether the database outlives this process."""
        return self._path is not None

    async def write(self, step: Step[Result]) -> Result:
        """Run the step in one transaction with the other waiting steps. Return when it is on disk.

        Refuses with `Overloaded`.
        """
        return await self._steps.submit(step)

    async def fetch(self, name: str, /, **values: Any) -> Sequence[Row]:
        """See `SqlSession`."""
        if self._statements[name].is_read_only:
            return await self._read(name, values)
        return await self.write(Step(lambda transaction: transaction.rows(name, **values)))

    async def change(self, name: str, /, **values: Any) -> int:
        """See `SqlSession`."""
        return await self.write(Step(lambda transaction: transaction.execute(name, **values)))

    async def transaction(self, work: Callable[[Transaction], Awaitable[Result]], weight: int = 0) -> Result:
        """See `Database`. `weight` is that of a `Step`."""
        return await self.write(Step(lambda transaction: run_to_completion(work, transaction), weight=weight))

    async def call_on_writer(self, function: Callable[[sqlite3.Connection], Result]) -> Result:
        """Call the function with the writing connection, outside any transaction of this class."""

        def call() -> Result:
            with self._access():
                return function(self._open_writer())

        return await self._run_in(self._writing_thread, call)

    async def close(self) -> None:
        """Finish the waiting steps, close every connection and release the file. Calling it again does nothing."""
        if self._closed:
            return
        with suppress(StoreUnavailable):
            # Runs after all waiting steps. Some of those may belong to cancelled callers and need compensation.
            await self.write(Step(_no_op))
        while self._compensations:
            await asyncio.wait(self._compensations)
        await self._steps.close()
        await self._run_in(self._writing_thread, self._close_writer)
        self._closed = True
        self._writing_thread.shutdown()
        self._reading_threads.shutdown()
        for reader in self._idle_readers:
            self._disconnect(reader)
        if self._lock:
            self._lock.release()

    # ---- writing -----------------------------------------------------------------------------------------------------

    async def _run_batch(self, steps: list[Step[Any]]) -> Sequence[Any]:
        try:
            results, admitted = await self._run_in(self._writing_thread, lambda: self._commit(steps))
        except NotWritable as error:
            self.on_refused(error)
            raise
        self._observe("write", len(steps))
        if admitted:
            self.on_admitted(admitted)
        return results

    def _commit(self, steps: Sequence[Step[Any]]) -> tuple[list[Any], list[Admitted]]:
        """Run all steps in one transaction. An error undoes them all. Then the coalescer tries each alone."""
        with self._access():
            writer = self._open_writer()
            try:
                writer.execute("BEGIN IMMEDIATE")
                answer = self._run_steps(steps, writer)
                writer.execute("COMMIT")
            except BaseException:
                # Closing the connection undoes the transaction even if a damaged disk prevents a rollback. The next
                # batch begins with a new connection.
                self._rollback()
                raise
            return answer

    def _run_steps(self, steps: Sequence[Step[Any]], writer: sqlite3.Connection) -> tuple[list[Any], list[Admitted]]:
        """Run the steps one after the other, until their results reach the maximum weight of a response."""
        results: list[Any] = []
        admitted: list[Admitted] = []
        result_weight = 0
        for step in steps:
            if result_weight >= MAX_RESPONSE_BYTES:
                results.append(RequeueEntryError())
                continue
            transaction = Transaction(writer, self._statements, self._clock)
            try:
                results.append(step.run(transaction))
            except Refusal as refusal:
                results.append(refusal.as_result())
            except SettlementsFailed as failed:
                results.append(failed.with_traceback(None))
            result_weight += transaction.result_weight
            admitted += transaction.admitted
        return results, admitted

    def _open_writer(self) -> sqlite3.Connection:
        if self._writer is None:
            self._writer = self._connect()
        return self._writer

    def _connect(self) -> sqlite3.Connection:
        """Open a connection. The write-ahead log of the first one stays the same until the last one is closed."""
        if self._lock is None:
            return connect(None)
        with self._lock.connecting:
            connection = connect(self._path)
            self._connections += 1
            if self._connections == 1:
                self._lock.note_log()
            return connection

    def _disconnect(self, connection: sqlite3.Connection) -> None:
        if self._lock is None:
            connection.close()
            return
        with self._lock.connecting:
            connection.close()
            self._connections -= 1
            if not self._connections:
                self._lock.forget_log()

    def _rollback(self) -> None:
        if self._path:
            self._close_writer()
        elif self._writer and self._writer.in_transaction:
            self._writer.execute("ROLLBACK")

    def _close_writer(self) -> None:
        if self._writer:
            self._disconnect(self._writer)
            self._writer = None

    def _compensate(self, step: Step[Any], result: Any) -> None:
        if step.compensate and (compensation := step.compensate(result)):
            task = asyncio.get_running_loop().create_task(self._write_compensation(compensation))
            self._compensations.add(task)
            task.add_done_callback(self._compensations.discard)

    async def _write_compensation(self, step: Step[Any]) -> None:
        """Write a compensation. If the store cannot, the claimed messages become available when their locks expire."""
        with suppress(StoreUnavailable):
            result = await self.write(step)
            if step.on_committed:
                step.on_committed(result)

    # ---- reading -----------------------------------------------------------------------------------------------------

    async def _read(self, name: str, values: dict[str, Any]) -> list[Row]:
        if self._path is None:
            return await self._run_in(self._writing_thread, lambda: self._read_with(self._open_writer(), name, values))
        return await self._run_in(self._reading_threads, lambda: self._read_committed(name, values))

    def _read_committed(self, name: str, values: dict[str, Any]) -> list[Row]:
        with self._access():
            reader = self._idle_readers.pop() if self._idle_readers else self._connect()
            try:
                found_rows = self._read_with(reader, name, values)
            except BaseException:
                self._disconnect(reader)
                raise
            self._idle_readers.append(reader)
            return found_rows

    def _read_with(self, connection: sqlite3.Connection, name: str, values: dict[str, Any]) -> list[Row]:
        return Transaction(connection, self._statements, self._clock).rows(name, **values)

    @contextmanager
    def _access(self) -> Generator[None]:
        """Refuse work on the file, and its result, once this process no longer serves the file alone.

        The lock is checked again after the work, because a file that is replaced during a commit does not have the commit.
        """
        with translate_errors(self._path):
            if self._lock:
                self._lock.ensure_held()
            yield
            if self._lock:
                self._lock.ensure_held()

    async def _run_in(self, threads: ThreadPoolExecutor, function: Callable[[], Result]) -> Result:
        if self._closed:
            raise StoreClosed
        if self._path is None:
            return function()
        return await asyncio.get_running_loop().run_in_executor(threads, function)


def _no_op(_transaction: Transaction) -> None:
    """Change nothing."""


def _ignore_admitted(_admitted: Sequence[Admitted]) -> None:
    """Do nothing: no listener is set."""


def _only_raise(_error: NotWritable) -> None:
    """Do nothing more with the error."""


def run_to_completion(work: Callable[[Transaction], Awaitable[Result]], transaction: Transaction) -> Result:
    """Run a coroutine to its end in this thread. That works because its session never waits."""
    try:
        next(work(transaction).__await__())
    except StopIteration as end:
        return end.value
    raise RuntimeError("the work of a transaction has awaited something other than its session")
