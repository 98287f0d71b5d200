"""How far a claim looks ahead: less where messages are large, twice as far once they fit again."""

from app.store.mysql.scan_limits import MAX_KEYS, MAX_SCAN, ScanLimits

KEY = "line"


def test_a_line_that_is_not_known_is_looked_at_as_far_as_a_claim_asks() -> None:
    limits = ScanLimits[str]()
    assert limits.limit(KEY, 7) == 7
    assert limits.limit(KEY, MAX_SCAN) == MAX_SCAN


def test_after_a_look_that_was_cut_twice_as_many_as_fitted_are_looked_at() -> None:
    limits = ScanLimits[str]()
    limits.shrink(KEY, 3)
    assert limits.limit(KEY, MAX_SCAN) == 6
    assert limits.limit("another line", MAX_SCAN) == MAX_SCAN


def test_no_look_goes_farther_than_its_claim_asks() -> None:
    limits = ScanLimits[str]()
    limits.shrink(KEY, 300)
    assert limits.limit(KEY, 5) == 5


def test_where_all_fitted_the_look_doubles_until_the_line_is_forgotten() -> None:
    limits = ScanLimits[str]()
    limits.shrink(KEY, 125)
    assert limits.grow(KEY) == 500
    assert limits.limit(KEY, MAX_SCAN) == 500
    assert limits.grow(KEY) == MAX_SCAN
    assert limits.limit(KEY, 5 * MAX_SCAN) == 5 * MAX_SCAN


def test_with_too_many_lines_all_begin_again() -> None:
    limits = ScanLimits[int]()
    for key in range(MAX_KEYS):
        limits.shrink(key, 1)
    assert {limits.limit(key, MAX_SCAN) for key in range(MAX_KEYS)} == {2}
    limits.shrink(MAX_KEYS, 1)
    scanned = [limits.limit(key, MAX_SCAN) for key in range(MAX_KEYS + 1)]
    assert scanned == [MAX_SCAN] * MAX_KEYS + [2]
