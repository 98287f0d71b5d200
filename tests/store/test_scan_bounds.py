"""The rules of `ScanBounds`: which scans are costly, and how start positions rise, sink and expire."""

from app.store.postgresql.scan_bounds import (
    COSTLY_SCAN,
    MAX_SHARE_WHEN_SHORT,
    PRIORITIES,
    SECONDS_PER_ENTRY,
    START,
    Scan,
    ScanBounds,
    ScanResult,
)

QUEUE = 7
NOON = 1_000_000_000_000
"""The store's clock."""


class ManualClock:
    """A monotonic clock that moves only when a test sets it."""

    seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def bounds_after_costly_scan(clock: ManualClock, skipped: int = COSTLY_SCAN, priority: int = 4) -> ScanBounds:
    """Return the `ScanBounds` after one costly scan of the queue that ended at the message at position (500, 5)."""
    bounds = ScanBounds(clock)
    scan = bounds.scan([QUEUE])
    bounds.update(scan, {QUEUE: ScanResult((priority, (500, 5)), is_exhausted=False)}, skipped, NOON)
    bounds.finish(scan)
    return bounds


def start_positions(scan: Scan) -> dict[int, tuple[int, int]]:
    """Return where a scan of one queue begins, by priority."""
    return dict(zip(PRIORITIES, scan.positions(), strict=True))


def test_without_costly_scans_every_scan_begins_at_the_start() -> None:
    bounds = bounds_after_costly_scan(ManualClock(), skipped=COSTLY_SCAN - 1)
    assert bounds.is_idle
    scan = bounds.scan([QUEUE])
    assert scan.from_start == {QUEUE}
    assert scan.positions() == []


def test_after_a_costly_scan_the_next_begins_at_its_last_message() -> None:
    scan = bounds_after_costly_scan(ManualClock()).scan([QUEUE])
    assert not scan.from_start
    assert start_positions(scan)[4] == (500, 5)


def test_priorities_above_the_last_message_are_empty_and_those_below_unknown() -> None:
    positions = start_positions(bounds_after_costly_scan(ManualClock()).scan([QUEUE]))
    assert {priority for priority, position in positions.items() if position == START} == {0, 1, 2, 3}
    assert all(START < positions[priority] < (NOON, 0) for priority in range(5, 10))


def test_an_exhausted_queue_is_empty_except_for_uncommitted_messages() -> None:
    bounds = ScanBounds(ManualClock())
    scan = bounds.scan([QUEUE])
    bounds.update(scan, {QUEUE: ScanResult(None, is_exhausted=True)}, COSTLY_SCAN, NOON)
    assert set(bounds.scan([QUEUE]).positions()) == {(NOON - 1_000_000, 0)}


def test_messages_found_above_a_scan_bound_never_lower_it() -> None:
    bounds = bounds_after_costly_scan(ManualClock())
    scan = bounds.scan([QUEUE])
    bounds.update(scan, {QUEUE: ScanResult((4, (400, 4)), is_exhausted=False)}, 0, NOON)
    assert start_positions(bounds.scan([QUEUE]))[4] == (500, 5)


def test_a_message_that_this_process_stores_below_a_scan_bound_lowers_it() -> None:
    bounds = bounds_after_costly_scan(ManualClock())
    bounds.lower(QUEUE, 4, (300, 3))
    assert start_positions(bounds.scan([QUEUE]))[4] == (300, 3)


def test_a_message_stored_during_a_scan_keeps_the_scan_bound_down() -> None:
    bounds = bounds_after_costly_scan(ManualClock())
    scan = bounds.scan([QUEUE])
    bounds.lower(QUEUE, 4, (300, 3))
    bounds.update(scan, {QUEUE: ScanResult((4, (900, 9)), is_exhausted=False)}, 0, NOON)
    bounds.finish(scan)
    assert start_positions(bounds.scan([QUEUE]))[4] == (300, 3)


def test_a_message_stored_before_the_first_scan_bound_keeps_it_down() -> None:
    bounds = ScanBounds(ManualClock())
    scan = bounds.scan([QUEUE])
    bounds.lower(QUEUE, 4, (300, 3))
    bounds.update(scan, {QUEUE: ScanResult((4, (900, 9)), is_exhausted=False)}, COSTLY_SCAN, NOON)
    bounds.finish(scan)
    assert start_positions(bounds.scan([QUEUE]))[4] == (300, 3)


def test_the_lowest_message_stored_during_a_scan_counts() -> None:
    bounds = bounds_after_costly_scan(ManualClock())
    scan = bounds.scan([QUEUE])
    for position in ((350, 4), (300, 3), (400, 5)):
        bounds.lower(QUEUE, 4, position)
    bounds.update(scan, {QUEUE: ScanResult((4, (900, 9)), is_exhausted=False)}, 0, NOON)
    bounds.finish(scan)
    assert start_positions(bounds.scan([QUEUE]))[4] == (300, 3)


def test_a_finished_scan_records_no_more_messages() -> None:
    bounds = ScanBounds(ManualClock())
    scan = bounds.scan([QUEUE])
    assert not bounds.is_idle
    bounds.finish(scan)
    assert bounds.is_idle


def test_after_a_change_at_unknown_positions_scans_begin_at_the_start() -> None:
    bounds = bounds_after_costly_scan(ManualClock())
    scan = bounds.scan([QUEUE])
    bounds.discard(QUEUE)
    bounds.update(scan, {QUEUE: ScanResult((4, (900, 9)), is_exhausted=False)}, COSTLY_SCAN, NOON)
    bounds.finish(scan)
    assert bounds.scan([QUEUE]).from_start == {QUEUE}


def test_a_scan_that_began_before_such_a_change_sets_no_scan_bound() -> None:
    bounds = ScanBounds(ManualClock())
    scan = bounds.scan([QUEUE])
    bounds.discard(QUEUE)
    bounds.update(scan, {QUEUE: ScanResult((4, (900, 9)), is_exhausted=False)}, COSTLY_SCAN, NOON)
    bounds.finish(scan)
    assert bounds.scan([QUEUE]).from_start == {QUEUE}


def test_a_scan_bound_is_trusted_for_a_second() -> None:
    clock = ManualClock()
    bounds = bounds_after_costly_scan(clock)
    clock.seconds += 0.99
    assert not bounds.scan([QUEUE]).from_start
    clock.seconds += 0.01
    assert bounds.scan([QUEUE]).from_start == {QUEUE}


def test_scans_below_take_at_most_a_tenth_of_the_time() -> None:
    clock = ManualClock()
    bounds = bounds_after_costly_scan(clock, skipped=10_000_000)  # two seconds of scanning
    clock.seconds += 19.9
    assert not bounds.scan([QUEUE]).from_start
    clock.seconds += 0.2
    assert bounds.scan([QUEUE]).from_start == {QUEUE}


def test_a_claim_that_got_nothing_scans_below_once_as_soon_as_that_is_cheap() -> None:
    clock = ManualClock()
    bounds = bounds_after_costly_scan(clock, skipped=10_000)  # two milliseconds of scanning
    scan_started = clock.seconds
    clock.seconds = scan_started + 0.09
    assert bounds.cheap_to_scan_below([QUEUE]) == []
    clock.seconds = scan_started + 10_000 * SECONDS_PER_ENTRY / MAX_SHARE_WHEN_SHORT
    assert bounds.cheap_to_scan_below([QUEUE]) == [QUEUE]
    assert bounds.scan_below([QUEUE]).from_start == {QUEUE}
    assert bounds.cheap_to_scan_below([QUEUE]) == []


def test_a_cheap_scan_from_the_start_drops_the_scan_bound() -> None:
    clock = ManualClock()
    bounds = bounds_after_costly_scan(clock)
    clock.seconds += 2
    scan = bounds.scan([QUEUE])
    bounds.update(scan, {QUEUE: ScanResult((4, (900, 9)), is_exhausted=False)}, 3, NOON)
    bounds.finish(scan)
    assert bounds.is_idle


def test_each_queue_has_its_own_scan_bound() -> None:
    bounds = bounds_after_costly_scan(ManualClock())
    scan = bounds.scan([QUEUE, QUEUE + 1])
    assert scan.from_start == {QUEUE + 1}
    assert scan.positions()[len(PRIORITIES) :] == [START] * len(PRIORITIES)
