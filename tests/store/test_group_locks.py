"""Servers agree on the row that they lock for a group."""

from app.store.shared.groups import bucket_of


def test_names_that_a_database_takes_for_one_share_a_row() -> None:
    assert bucket_of((1, "a ")) == bucket_of((1, "a"))


def test_every_server_locks_a_group_by_the_same_row() -> None:
    assert [bucket_of(group) for group in ((1, "a"), (1, "b"), (2, "a"), (1, "\U0001f600"))] == [
        6402,
        2232,
        10075,
        16340,
    ]
