"""Where claims begin to look, by the rules alone: a look from the bottom is dear or cheap, floors rise, sink and grow stale."""

from app.store.postgresql.scan_floors import (
    COSTLY_SCAN,
    MAX_SHARE_WHEN_SHORT,
    PRIORITIES,
    SECONDS_PER_ENTRY,
    START,
    Scan,
    ScanFloors,
    ScanResult,
)

QUEUE = 7
NOON = 1_000_000_000_000
"""The store's clock."""


class ManualClock:
    """A monotonic clock that stands still until told."""

    seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def floors_after_costly_scan(clock: ManualClock, skipped: int = COSTLY_SCAN, priority: int = 4) -> ScanFloors:
    """Floors after one dear look at the queue that ended at the message with place (500, 5)."""
    floors = ScanFloors(clock)
    scan = floors.scan([QUEUE])
    floors.update(scan, {QUEUE: ScanResult((priority, (500, 5)), is_exhausted=False)}, skipped, NOON)
    floors.finish(scan)
    return floors


def start_positions(scan: Scan) -> dict[int, tuple[int, int]]:
    """Where a look at one queue begins, by priority."""
    return dict(zip(PRIORITIES, scan.positions(), strict=True))


def test_without_dear_looks_everybody_looks_from_the_bottom() -> None:
    floors = floors_after_costly_scan(ManualClock(), skipped=COSTLY_SCAN - 1)
    assert floors.is_idle
    scan = floors.scan([QUEUE])
    assert scan.from_start == {QUEUE}
    assert scan.positions() == []


def test_a_dear_look_lets_the_next_begin_at_its_last_message() -> None:
    scan = floors_after_costly_scan(ManualClock()).scan([QUEUE])
    assert not scan.from_start
    assert start_positions(scan)[4] == (500, 5)


def test_priorities_above_the_last_message_are_empty_and_those_below_unknown() -> None:
    positions = start_positions(floors_after_costly_scan(ManualClock()).scan([QUEUE]))
    assert {priority for priority, position in positions.items() if position == START} == {0, 1, 2, 3}
    assert all(START < positions[priority] < (NOON, 0) for priority in range(5, 10))


def test_an_exhausted_queue_is_empty_but_for_what_may_still_be_on_its_way() -> None:
    floors = ScanFloors(ManualClock())
    scan = floors.scan([QUEUE])
    floors.update(scan, {QUEUE: ScanResult(None, is_exhausted=True)}, COSTLY_SCAN, NOON)
    assert set(floors.scan([QUEUE]).positions()) == {(NOON - 1_000_000, 0)}


def test_a_floor_never_falls_by_what_is_seen_above_it() -> None:
    floors = floors_after_costly_scan(ManualClock())
    scan = floors.scan([QUEUE])
    floors.update(scan, {QUEUE: ScanResult((4, (400, 4)), is_exhausted=False)}, 0, NOON)
    assert start_positions(floors.scan([QUEUE]))[4] == (500, 5)


def test_what_this_process_puts_below_a_floor_lowers_it() -> None:
    floors = floors_after_costly_scan(ManualClock())
    floors.lower(QUEUE, 4, (300, 3))
    assert start_positions(floors.scan([QUEUE]))[4] == (300, 3)


def test_what_is_put_there_while_a_look_is_under_way_keeps_the_floor_down() -> None:
    floors = floors_after_costly_scan(ManualClock())
    scan = floors.scan([QUEUE])
    floors.lower(QUEUE, 4, (300, 3))
    floors.update(scan, {QUEUE: ScanResult((4, (900, 9)), is_exhausted=False)}, 0, NOON)
    floors.finish(scan)
    assert start_positions(floors.scan([QUEUE]))[4] == (300, 3)


def test_what_is_put_there_before_the_first_floor_stands_keeps_it_down() -> None:
    floors = ScanFloors(ManualClock())
    scan = floors.scan([QUEUE])
    floors.lower(QUEUE, 4, (300, 3))
    floors.update(scan, {QUEUE: ScanResult((4, (900, 9)), is_exhausted=False)}, COSTLY_SCAN, NOON)
    floors.finish(scan)
    assert start_positions(floors.scan([QUEUE]))[4] == (300, 3)


def test_the_lowest_of_what_is_put_there_meanwhile_counts() -> None:
    floors = floors_after_costly_scan(ManualClock())
    scan = floors.scan([QUEUE])
    for position in ((350, 4), (300, 3), (400, 5)):
        floors.lower(QUEUE, 4, position)
    floors.update(scan, {QUEUE: ScanResult((4, (900, 9)), is_exhausted=False)}, 0, NOON)
    floors.finish(scan)
    assert start_positions(floors.scan([QUEUE]))[4] == (300, 3)


def test_a_look_that_ended_hears_of_nothing_more() -> None:
    floors = ScanFloors(ManualClock())
    scan = floors.scan([QUEUE])
    assert not floors.is_idle
    floors.finish(scan)
    assert floors.is_idle


def test_after_a_change_nobody_can_place_the_queue_is_looked_at_from_the_bottom() -> None:
    floors = floors_after_costly_scan(ManualClock())
    scan = floors.scan([QUEUE])
    floors.discard(QUEUE)
    floors.update(scan, {QUEUE: ScanResult((4, (900, 9)), is_exhausted=False)}, COSTLY_SCAN, NOON)
    floors.finish(scan)
    assert floors.scan([QUEUE]).from_start == {QUEUE}


def test_a_look_from_the_bottom_that_began_before_such_a_change_makes_no_floor() -> None:
    floors = ScanFloors(ManualClock())
    scan = floors.scan([QUEUE])
    floors.discard(QUEUE)
    floors.update(scan, {QUEUE: ScanResult((4, (900, 9)), is_exhausted=False)}, COSTLY_SCAN, NOON)
    floors.finish(scan)
    assert floors.scan([QUEUE]).from_start == {QUEUE}


def test_a_floor_is_trusted_for_a_second() -> None:
    clock = ManualClock()
    floors = floors_after_costly_scan(clock)
    clock.seconds += 0.99
    assert not floors.scan([QUEUE]).from_start
    clock.seconds += 0.01
    assert floors.scan([QUEUE]).from_start == {QUEUE}


def test_looking_below_takes_at_most_a_tenth_of_the_time_however_much_is_dead() -> None:
    clock = ManualClock()
    floors = floors_after_costly_scan(clock, skipped=10_000_000)  # two seconds of looking
    clock.seconds += 19.9
    assert not floors.scan([QUEUE]).from_start
    clock.seconds += 0.2
    assert floors.scan([QUEUE]).from_start == {QUEUE}


def test_whoever_comes_short_looks_below_as_soon_as_that_is_cheap_and_once() -> None:
    clock = ManualClock()
    floors = floors_after_costly_scan(clock, skipped=10_000)  # two milliseconds of looking
    scan_started = clock.seconds
    clock.seconds = scan_started + 0.09
    assert floors.cheap_to_scan_below([QUEUE]) == []
    clock.seconds = scan_started + 10_000 * SECONDS_PER_ENTRY / MAX_SHARE_WHEN_SHORT
    assert floors.cheap_to_scan_below([QUEUE]) == [QUEUE]
    assert floors.scan_below([QUEUE]).from_start == {QUEUE}
    assert floors.cheap_to_scan_below([QUEUE]) == []


def test_a_cheap_look_from_the_bottom_ends_it() -> None:
    clock = ManualClock()
    floors = floors_after_costly_scan(clock)
    clock.seconds += 2
    scan = floors.scan([QUEUE])
    floors.update(scan, {QUEUE: ScanResult((4, (900, 9)), is_exhausted=False)}, 3, NOON)
    floors.finish(scan)
    assert floors.is_idle


def test_queues_have_floors_of_their_own() -> None:
    floors = floors_after_costly_scan(ManualClock())
    scan = floors.scan([QUEUE, QUEUE + 1])
    assert scan.from_start == {QUEUE + 1}
    assert scan.positions()[len(PRIORITIES) :] == [START] * len(PRIORITIES)
