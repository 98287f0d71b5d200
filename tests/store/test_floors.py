"""Where claims begin to look, by the rules alone: a look from the bottom is dear or cheap, floors rise, sink and grow stale."""

from app.store.floors import BOTTOM, DEAR, PRIORITIES, SECONDS_PER_ENTRY, SHARE_WHEN_SHORT, Floors, Look, Seen

QUEUE = 7
NOON = 1_000_000_000_000
"""The store's clock."""


class Watch:
    """A monotonic clock that stands still until told."""

    seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def engaged(watch: Watch, passed: int = DEAR, priority: int = 4) -> Floors:
    """Floors after one dear look at the queue that ended at the message with place (500, 5)."""
    floors = Floors(watch)
    look = floors.look([QUEUE])
    floors.learn(look, {QUEUE: Seen((priority, (500, 5)), is_exhausted=False)}, passed, NOON)
    floors.finish(look)
    return floors


def begins(look: Look) -> dict[int, tuple[int, int]]:
    """Where a look at one queue begins, by priority."""
    return dict(zip(PRIORITIES, look.places(), strict=True))


def test_without_dear_looks_everybody_looks_from_the_bottom() -> None:
    floors = engaged(Watch(), passed=DEAR - 1)
    assert floors.is_idle
    look = floors.look([QUEUE])
    assert look.from_bottom == {QUEUE}
    assert look.places() == []


def test_a_dear_look_lets_the_next_begin_at_its_last_message() -> None:
    look = engaged(Watch()).look([QUEUE])
    assert not look.from_bottom
    assert begins(look)[4] == (500, 5)


def test_priorities_above_the_last_message_are_known_to_be_empty_and_those_below_unknown() -> None:
    places = begins(engaged(Watch()).look([QUEUE]))
    assert {priority for priority, place in places.items() if place == BOTTOM} == {0, 1, 2, 3}
    assert all(BOTTOM < places[priority] < (NOON, 0) for priority in range(5, 10))


def test_an_exhausted_queue_is_empty_but_for_what_may_still_be_on_its_way() -> None:
    floors = Floors(Watch())
    look = floors.look([QUEUE])
    floors.learn(look, {QUEUE: Seen(None, is_exhausted=True)}, DEAR, NOON)
    assert set(floors.look([QUEUE]).places()) == {(NOON - 1_000_000, 0)}


def test_a_floor_never_falls_by_what_is_seen_above_it() -> None:
    floors = engaged(Watch())
    look = floors.look([QUEUE])
    floors.learn(look, {QUEUE: Seen((4, (400, 4)), is_exhausted=False)}, 0, NOON)
    assert begins(floors.look([QUEUE]))[4] == (500, 5)


def test_what_this_process_puts_below_a_floor_lowers_it() -> None:
    floors = engaged(Watch())
    floors.lower(QUEUE, 4, (300, 3))
    assert begins(floors.look([QUEUE]))[4] == (300, 3)


def test_what_is_put_there_while_a_look_is_under_way_keeps_the_floor_down() -> None:
    floors = engaged(Watch())
    look = floors.look([QUEUE])
    floors.lower(QUEUE, 4, (300, 3))
    floors.learn(look, {QUEUE: Seen((4, (900, 9)), is_exhausted=False)}, 0, NOON)
    floors.finish(look)
    assert begins(floors.look([QUEUE]))[4] == (300, 3)


def test_what_is_put_there_before_the_first_floor_stands_keeps_it_down() -> None:
    floors = Floors(Watch())
    look = floors.look([QUEUE])
    floors.lower(QUEUE, 4, (300, 3))
    floors.learn(look, {QUEUE: Seen((4, (900, 9)), is_exhausted=False)}, DEAR, NOON)
    floors.finish(look)
    assert begins(floors.look([QUEUE]))[4] == (300, 3)


def test_the_lowest_of_what_is_put_there_meanwhile_counts() -> None:
    floors = engaged(Watch())
    look = floors.look([QUEUE])
    for place in ((350, 4), (300, 3), (400, 5)):
        floors.lower(QUEUE, 4, place)
    floors.learn(look, {QUEUE: Seen((4, (900, 9)), is_exhausted=False)}, 0, NOON)
    floors.finish(look)
    assert begins(floors.look([QUEUE]))[4] == (300, 3)


def test_a_look_that_ended_hears_of_nothing_more() -> None:
    floors = Floors(Watch())
    look = floors.look([QUEUE])
    assert not floors.is_idle
    floors.finish(look)
    assert floors.is_idle


def test_after_a_change_nobody_can_place_the_queue_is_looked_at_from_the_bottom() -> None:
    floors = engaged(Watch())
    look = floors.look([QUEUE])
    floors.forget(QUEUE)
    floors.learn(look, {QUEUE: Seen((4, (900, 9)), is_exhausted=False)}, DEAR, NOON)
    floors.finish(look)
    assert floors.look([QUEUE]).from_bottom == {QUEUE}


def test_a_look_from_the_bottom_that_began_before_such_a_change_makes_no_floor() -> None:
    floors = Floors(Watch())
    look = floors.look([QUEUE])
    floors.forget(QUEUE)
    floors.learn(look, {QUEUE: Seen((4, (900, 9)), is_exhausted=False)}, DEAR, NOON)
    floors.finish(look)
    assert floors.look([QUEUE]).from_bottom == {QUEUE}


def test_a_floor_is_trusted_for_a_second() -> None:
    watch = Watch()
    floors = engaged(watch)
    watch.seconds += 0.99
    assert not floors.look([QUEUE]).from_bottom
    watch.seconds += 0.01
    assert floors.look([QUEUE]).from_bottom == {QUEUE}


def test_looking_below_takes_at_most_a_tenth_of_the_time_however_much_is_dead() -> None:
    watch = Watch()
    floors = engaged(watch, passed=10_000_000)  # two seconds of looking
    watch.seconds += 19.9
    assert not floors.look([QUEUE]).from_bottom
    watch.seconds += 0.2
    assert floors.look([QUEUE]).from_bottom == {QUEUE}


def test_whoever_comes_short_looks_below_as_soon_as_that_is_cheap_and_once() -> None:
    watch = Watch()
    floors = engaged(watch, passed=10_000)  # two milliseconds of looking
    begun = watch.seconds
    watch.seconds = begun + 0.09
    assert floors.cheap_to_pass([QUEUE]) == []
    watch.seconds = begun + 10_000 * SECONDS_PER_ENTRY / SHARE_WHEN_SHORT
    assert floors.cheap_to_pass([QUEUE]) == [QUEUE]
    assert floors.look_below([QUEUE]).from_bottom == {QUEUE}
    assert floors.cheap_to_pass([QUEUE]) == []


def test_a_cheap_look_from_the_bottom_ends_it() -> None:
    watch = Watch()
    floors = engaged(watch)
    watch.seconds += 2
    look = floors.look([QUEUE])
    floors.learn(look, {QUEUE: Seen((4, (900, 9)), is_exhausted=False)}, 3, NOON)
    floors.finish(look)
    assert floors.is_idle


def test_queues_have_floors_of_their_own() -> None:
    floors = engaged(Watch())
    look = floors.look([QUEUE, QUEUE + 1])
    assert look.from_bottom == {QUEUE + 1}
    assert look.places()[len(PRIORITIES) :] == [BOTTOM] * len(PRIORITIES)
