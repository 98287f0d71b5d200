"""Entries become one array a column. A column of equal values is sent once, and one of nulls not at all."""

from collections.abc import Sequence
from typing import Any

import pytest

from app.store.postgresql.entries import entry_columns, short_array


@pytest.mark.parametrize(
    ("array", "sent"),
    [
        ([7, 7, 7], [7]),
        ([None, None], []),
        ([7, 8, 7], [7, 8, 7]),
        ([7, 7, 8], [7, 7, 8]),
        ([None, 7, None], [None, 7, None]),
        ([7, None], [7, None]),
        ([b"", b""], [b""]),
        ([7], [7]),
        ([None], []),
    ],
)
def test_an_array_is_shortened_only_if_one_value_stands_for_all(array: Sequence[Any], sent: Sequence[Any]) -> None:
    assert list(short_array(array)) == sent


def test_each_column_is_shortened_on_its_own() -> None:
    columns = entry_columns(("number", "queue", "group"), [(1, "orders", None), (2, "orders", None)])
    assert columns == {"number": (1, 2), "queue": ("orders",), "group": ()}


def test_equal_entries_still_count_as_often_as_they_occur() -> None:
    assert entry_columns(("queue", "group"), [("orders", None)] * 3) == {"queue": ("orders",) * 3, "group": ()}
