"""What an act on checked messages has done, as the list shows it to which the browser returns."""

from dataclasses import dataclass

from app.console.formats import format_number
from app.console.pages import PageRequest

DONE = {"redrive": "redriven", "resubmit": "resubmitted", "purge": "purged"}
NOTHING_CHECKED = "Select at least one message."


@dataclass(frozen=True, slots=True)
class Result:
    """A sentence, and since when a purge can be undone, empty for another act."""

    text: str
    since: str


def result_of(page: PageRequest) -> Result | None:
    """Return the result that the address of a list names, None without one."""
    verb, count = DONE.get(page.query("act")), page.query("done")
    if count == "0":
        return Result(NOTHING_CHECKED, "")
    if verb is None or not (count.isascii() and count.isdigit() and len(count) < 10):
        return None
    messages = "1 message was" if int(count) == 1 else f"{format_number(int(count))} messages were"
    return Result(f"{messages} {verb}.", page.query("since") if verb == "purged" else "")
