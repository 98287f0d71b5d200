"""How a consumer is listed after each of its reports."""

from app.domain.consumer import ConsumerReport, ConsumerState, ListedConsumer, listed_after

RECEIVING = ConsumerReport("a", "shop", ConsumerState.RECEIVING)
PAUSED = ConsumerReport("a", "shop", ConsumerState.PAUSED, "The circuit is open.")


def test_the_first_report_sets_every_time() -> None:
    assert listed_after(None, PAUSED, 7) == ListedConsumer(PAUSED, 7, 7, 7)


def test_a_report_of_the_same_state_is_only_newer() -> None:
    other = ConsumerReport("a", "shop", ConsumerState.PAUSED, "Another reason.")
    assert listed_after(ListedConsumer(PAUSED, 1, 2, 3), other, 7) == ListedConsumer(other, 1, 2, 7)


def test_a_report_of_another_state_begins_that_state() -> None:
    assert listed_after(ListedConsumer(PAUSED, 1, 2, 3), RECEIVING, 7) == ListedConsumer(RECEIVING, 1, 7, 7)
