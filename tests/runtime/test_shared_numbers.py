"""Numbers that the processes of a server share: each sees those of all, and adds to its own."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from resource import RLIMIT_FSIZE, getrlimit, setrlimit

from app.runtime.shared_numbers import Series, SharedNumbers, end_process


def listed(series: Iterable[Series]) -> list[tuple[str, tuple[str, ...], list[float]]]:
    """The series, sorted."""
    return sorted((one.name, one.labels, [*one.numbers]) for one in series)


@contextmanager
def files_of_at_most(size: int) -> Generator[None]:
    """Let no file grow further in this block, as on a full disk."""
    before = getrlimit(RLIMIT_FSIZE)
    setrlimit(RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        setrlimit(RLIMIT_FSIZE, before)


def test_a_series_begins_with_zeros_and_is_found_again() -> None:
    numbers = SharedNumbers(None)
    numbers.of("requests", ("send", "ok"))[0] += 1
    numbers.of("requests", ("send", "failed"), 2)[1] += 0.5
    numbers.of("requests", ("send", "ok"))[0] += 1
    assert listed(numbers.read()) == [("requests", ("send", "failed"), [0, 0.5]), ("requests", ("send", "ok"), [2])]


def test_processes_without_a_directory_share_nothing() -> None:
    SharedNumbers(None).of("requests")[0] += 1
    assert listed(SharedNumbers(None).read()) == []


def test_each_process_reads_the_numbers_of_all(tmp_path: Path) -> None:
    first, second = SharedNumbers(tmp_path), SharedNumbers(tmp_path)
    first.of("waiting")[0] = 1
    first.of("requests", ("send",), 2)[1] = 2
    second.of("waiting")[0] = 3
    assert listed(first.read()) == listed(second.read())
    assert listed(first.read()) == [("requests", ("send",), [0, 2]), ("waiting", (), [1]), ("waiting", (), [3])]
    first.of("waiting")[0] += 1
    assert ("waiting", (), [2]) in listed(second.read())


def test_a_series_that_a_process_is_about_to_add_is_not_read(tmp_path: Path) -> None:
    numbers = SharedNumbers(tmp_path)
    numbers.of("waiting")
    (names,) = tmp_path.glob("*.series")
    with names.open("ab") as file:
        file.write(b'["requ')
    assert listed(numbers.read()) == [("waiting", (), [0])]


def test_series_that_begin_while_the_disk_is_full_are_read_after_the_next_one(tmp_path: Path) -> None:
    numbers = SharedNumbers(tmp_path)
    numbers.of("waiting")[0] = 1
    (names,) = tmp_path.glob("*.series")
    with files_of_at_most(names.stat().st_size + 5):
        numbers.of("batches", ("send",), 2)[1] = 2
        numbers.of("passes")[0] = 3
        assert listed(numbers.read()) == [("waiting", (), [1])]
    numbers.of("requests")[0] = 4
    assert listed(numbers.read()) == [
        ("batches", ("send",), [0, 2]), ("passes", (), [3]), ("requests", (), [4]), ("waiting", (), [1]),
    ]  # fmt: skip


def test_the_end_of_a_process_ends_what_it_does_but_not_its_counts(tmp_path: Path) -> None:
    numbers = SharedNumbers(tmp_path)
    numbers.of("waiting")[0] = 1
    numbers.of("requests")[0] = 2
    for other in (os.getpid() + 1, os.getpid() // 10):
        end_process(tmp_path, other)
    assert listed(numbers.read()) == [("requests", (), [2]), ("waiting", (), [1])]
    end_process(tmp_path, os.getpid())
    assert listed(numbers.read()) == [("requests", (), [2]), ("waiting", (), [0])]
