"""How far a claim looks ahead: less where messages are large, twice as far once they fit again."""

from app.store.pace import LARGEST_LOOK, MOST_LINES, Pace

LINE = "line"


def test_a_line_that_is_not_known_is_looked_at_as_far_as_a_claim_asks() -> None:
    pace = Pace[str]()
    assert pace.most(LINE, 7) == 7
    assert pace.most(LINE, LARGEST_LOOK) == LARGEST_LOOK


def test_after_a_look_that_was_cut_twice_as_many_as_fitted_are_looked_at() -> None:
    pace = Pace[str]()
    pace.was_cut(LINE, 3)
    assert pace.most(LINE, LARGEST_LOOK) == 6
    assert pace.most("another line", LARGEST_LOOK) == LARGEST_LOOK


def test_no_look_goes_farther_than_its_claim_asks() -> None:
    pace = Pace[str]()
    pace.was_cut(LINE, 300)
    assert pace.most(LINE, 5) == 5


def test_where_all_fitted_the_look_doubles_until_the_line_is_forgotten() -> None:
    pace = Pace[str]()
    pace.was_cut(LINE, 125)
    assert pace.was_short(LINE) == 500
    assert pace.most(LINE, LARGEST_LOOK) == 500
    assert pace.was_short(LINE) == LARGEST_LOOK
    assert pace.most(LINE, 5 * LARGEST_LOOK) == 5 * LARGEST_LOOK


def test_with_too_many_lines_all_begin_again() -> None:
    pace = Pace[int]()
    for line in range(MOST_LINES):
        pace.was_cut(line, 1)
    assert {pace.most(line, LARGEST_LOOK) for line in range(MOST_LINES)} == {2}
    pace.was_cut(MOST_LINES, 1)
    looked_at = [pace.most(line, LARGEST_LOOK) for line in range(MOST_LINES + 1)]
    assert looked_at == [LARGEST_LOOK] * MOST_LINES + [2]
