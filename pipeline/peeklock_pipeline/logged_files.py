"""The files of a table, as its log has them: which of them may have some rows, and which are missing or replaced."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from types import MappingProxyType
from typing import Any, overload

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyarrow.fs import FileSystem

from peeklock_pipeline.files import DataFile, Value
from peeklock_pipeline.plurals import messages
from peeklock_pipeline.refusals import BadLake
from peeklock_pipeline.storage import Storage

FOOTER_READERS = 16
"""Footers that are read at the same time, because an object store answers each after milliseconds."""

PORTION_FILES = 10_000
"""Files for which a pass over all files of a table holds objects at the same time."""

PARTITION = "partition."
"""The prefix of a column of partitions among the columns of a log."""

COLUMNS = {"path": "path", "num_records": "rows", "size_bytes": "size"}
"""The columns of a log that `LoggedFiles` has, and their names in it."""

NO_BOUNDS: Mapping[str, tuple[Value, Value]] = MappingProxyType({})


class LoggedFiles(Sequence[DataFile]):
    """Files of a table at one version, as columns: about a hundred bytes for each file.

    The columns are `path`, `rows`, `size`, and `partition.` with the name of each partition column. `rows` is null where
    the log does not have it. An object needs six times as much, so a pass makes them for `PORTION_FILES` at a time.
    """

    def __init__(self, columns: pa.Table) -> None:
        self._columns = columns

    def __len__(self) -> int:
        return self._columns.num_rows

    def __iter__(self) -> Iterator[DataFile]:
        for begun in range(0, len(self), PORTION_FILES):
            yield from _data_files(self._columns.slice(begun, PORTION_FILES))

    @overload
    def __getitem__(self, place: int) -> DataFile: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[DataFile]: ...
    def __getitem__(self, place: int | slice) -> DataFile | Sequence[DataFile]:
        chosen = range(len(self))[place]
        if isinstance(chosen, int):
            return _data_files(self._columns.slice(chosen, 1))[0]
        return _data_files(self._columns.take(pa.array(chosen, pa.int64())))

    @property
    def rows(self) -> int | None:
        """The number of rows; None if the log does not have it for each file."""
        counts: Any = self._columns["rows"].to_pylist()
        return sum(counts) if all(counts) else None

    @property
    def paths(self) -> list[str]:
        """The path of each file."""
        paths: Any = self._columns["path"].to_pylist()
        return paths

    def where(self, condition: pc.Expression) -> "LoggedFiles":
        """Return the files whose columns meet a condition."""
        return LoggedFiles(self._columns.filter(condition))

    def without(self, paths: Collection[str]) -> "LoggedFiles":
        """Return the files that do not have one of these paths."""
        return self.where(~pc.field("path").isin(pa.array(paths, pa.string()))) if paths else self

    def by_partition(self, names: Sequence[str]) -> "LoggedFiles":
        """Return the files ordered by these partition columns first."""
        ascending: Any = [(f"{PARTITION}{name}", "ascending") for name in names]
        return LoggedFiles(self._columns.sort_by([*ascending, ("path", "ascending")]))


def files_of(table: DeltaTable, within: Mapping[str, tuple[Value, Value]] = NO_BOUNDS) -> LoggedFiles:
    """Return the files of a table at its opened version, ordered by path.

    `within` names columns with a lowest and a highest value: files that have no such row, by their partition or their
    statistics, are left out. Files without statistics of a column are returned.
    """
    log = pa.table(table.get_add_actions(flatten=True))
    for name, (low, high) in within.items():
        least, most = _bounds(name, log)
        if least and most:
            outside: Any = pc.or_kleene(pc.greater(log[least], pa.scalar(high)), pc.less(log[most], pa.scalar(low)))
            log = log.filter(pc.invert(outside.fill_null(False)))
    names = COLUMNS | {name: name for name in log.column_names if name.startswith(PARTITION)}
    return LoggedFiles(log.select(list(names)).rename_columns(list(names.values())).sort_by("path"))


def paths_of(table: DeltaTable, paths: Set[str]) -> set[str]:
    """Return those of these paths that are files of a table at its opened version."""
    present: Any = pa.table(table.get_add_actions())["path"]
    return set(present.filter(pc.is_in(present, value_set=pa.array(paths, pa.string()))).to_pylist())


@dataclass(frozen=True, slots=True)
class DamagedFile:
    """A file that is not as the log describes it. `rows` and `size` are the found ones; None without a readable footer."""

    file: DataFile
    rows: int | None = None
    size: int | None = None

    @property
    def is_gone(self) -> bool:
        """Whether the file is missing or cannot be read, so that its rows are lost."""
        return self.rows is None

    def __str__(self) -> str:
        held = messages(self.file.rows)
        if self.is_gone:
            return f"is missing from the lake or cannot be read; it held {held}"
        return (
            f"was replaced: it has {messages(self.rows or 0)} in {self.size} bytes, "
            f"and the log of its table has {held} in {self.file.size} bytes"
        )


def damaged_files(files: Iterable[DataFile], storage: Storage) -> list[DamagedFile]:
    """Return the files that do not exist, have no readable footer, or have another number of bytes or rows than logged.

    A log may lack the number of rows of a file.
    """
    filesystem, left, found = storage.filesystem(), iter(files), list[DamagedFile]()
    with ThreadPoolExecutor(FOOTER_READERS) as readers:
        while portion := [*islice(left, PORTION_FILES)]:
            looked_at = readers.map(lambda file: _damage(file, filesystem), portion)
            found += [damaged for damaged in looked_at if damaged]
    return found


def require_files(files: Iterable[DataFile], storage: Storage) -> None:
    """Refuse with `BadLake` if `damaged_files` finds one of the files missing or replaced."""
    if found := damaged_files(files, storage):
        raise BadLake(f"{storage}/{found[0].file.path} {found[0]}. `peeklock-pipeline audit` names what is lost.")


def _data_files(columns: pa.Table) -> list[DataFile]:
    partitions = [name for name in columns.column_names if name.startswith(PARTITION)]
    names = [name.removeprefix(PARTITION) for name in partitions]
    values = [map(str, columns[name].to_pylist()) for name in partitions]
    found: Any = zip(*(columns[name].to_pylist() for name in ("path", "rows", "size")), *values, strict=True)
    return [
        DataFile(path, dict(zip(names, partition, strict=True)), rows or 0, size)
        for path, rows, size, *partition in found
    ]


def _bounds(name: str, log: pa.Table) -> tuple[str, str] | tuple[None, None]:
    """Return the columns of a log that bound a column of the table."""
    for least, most in ((f"{PARTITION}{name}", f"{PARTITION}{name}"), (f"min.{name}", f"max.{name}")):
        if least in log.column_names and most in log.column_names:
            return least, most
    return None, None


def _damage(file: DataFile, filesystem: FileSystem) -> DamagedFile | None:
    try:
        with filesystem.open_input_file(file.path) as stream:
            rows, size = pq.read_metadata(stream).num_rows, stream.size()
    except (OSError, pa.ArrowInvalid):
        return DamagedFile(file)
    is_as_logged = size == file.size and rows == (file.rows or rows)
    return None if is_as_logged else DamagedFile(file, rows, size)
