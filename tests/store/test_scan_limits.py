"""How far a claim scans: less if messages are large, twice as far once they fit the budget again."""

from app.store.mysql.scan_limits import MAX_KEYS, MAX_SCAN, ScanLimits

KEY = "line"


def test_an_unknown_key_is_scanned_as_far_as_a_claim_requests() -> None:
    limits = ScanLimits[str]()
    assert limits.limit(KEY, 7) == 7
    assert limits.limit(KEY, MAX_SCAN) == MAX_SCAN


def test_a_truncated_scan_sets_the_limit_to_twice_what_fitted() -> None:
    limits = ScanLimits[str]()
    limits.shrink(KEY, 3)
    assert limits.limit(KEY, MAX_SCAN) == 6
    assert limits.limit("another line", MAX_SCAN) == MAX_SCAN


def test_no_scan_exceeds_what_its_claim_requests() -> None:
    limits = ScanLimits[str]()
    limits.shrink(KEY, 300)
    assert limits.limit(KEY, 5) == 5


def test_a_limit_doubles_while_all_fit_until_the_key_is_forgotten() -> None:
    limits = ScanLimits[str]()
    limits.shrink(KEY, 125)
    assert limits.grow(KEY) == 500
    assert limits.limit(KEY, MAX_SCAN) == 500
    assert limits.grow(KEY) == MAX_SCAN
    assert limits.limit(KEY, 5 * MAX_SCAN) == 5 * MAX_SCAN


def test_too_many_keys_reset_all_limits() -> None:
    limits = ScanLimits[int]()
    for key in range(MAX_KEYS):
        limits.shrink(key, 1)
    assert {limits.limit(key, MAX_SCAN) for key in range(MAX_KEYS)} == {2}
    limits.shrink(MAX_KEYS, 1)
    scanned = [limits.limit(key, MAX_SCAN) for key in range(MAX_KEYS + 1)]
    assert scanned == [MAX_SCAN] * MAX_KEYS + [2]
