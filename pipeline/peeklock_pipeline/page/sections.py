"""The content of each view of a page, ready to be written: its tiles, figures, lists and changes."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from peeklock_pipeline.page import changes, formatting
from peeklock_pipeline.page.changes import Change
from peeklock_pipeline.page.figures import Figure, Figures, Numbers
from peeklock_pipeline.page.links import fragment
from peeklock_pipeline.page.summary import Measures, Summary, View, ViewKey

ALL = ViewKey("all")


@dataclass(frozen=True, slots=True)
class Tile:
    """A headline number, a detail about it, and its change since the period before, if there is one."""

    label: str
    value: str
    detail: str
    change: str


@dataclass(frozen=True, slots=True)
class Bar:
    """A row of a list: a name, None for all others; the fragment of its view, if it has one; its share of the longest."""

    name: str | None
    link: str
    share: float
    value: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Bars:
    """A list of names with a bar each, or a sentence if it is empty."""

    title: str
    head: str
    unit: str
    rows: Sequence[Bar]
    none: str


@dataclass(frozen=True, slots=True)
class QueuePlot:
    """The small plot of a queue among those of all queues; the name is None for all others."""

    name: str | None
    link: str
    words: str
    drawing: Markup


@dataclass(frozen=True, slots=True)
class Section:
    """A view as it is written; `parent` is the fragment of the view of its queue, if there is one.

    `unknown` is a sentence about messages of which only the number is known; empty if there is none.
    """

    view: View
    fragment: str
    title: str
    parent: str
    tiles: Sequence[Tile]
    figures: Sequence[Figure]
    numbers: Numbers
    bars: Sequence[Bars]
    changes: Sequence[Change]
    queues: Sequence[QueuePlot] = ()
    unknown: str = ""


def sections(summary: Summary) -> list[Section]:
    """Return the view of everything, and then all others; none if there is no message."""
    if summary.overview is None:
        return []
    links = Links(summary)
    of_queues = [view for view in summary.queues if view.key.queue is not None] if summary.queue is None else []
    return [links.section(view) for view in (summary.overview, *of_queues, *summary.views)]


class Links:
    """Writes the views of a summary, with links to those that exist."""

    def __init__(self, summary: Summary) -> None:
        self._summary = summary
        queues = summary.queues if summary.queue is None else ()
        self._known = {view.key for view in (*queues, *summary.views) if view.key.queue or view.key.name}

    def section(self, view: View) -> Section:
        """Return a view as it is written."""
        drawn = Figures(self._summary, view)
        figures = drawn.all()
        key = view.key
        return Section(
            view=view,
            fragment=fragment(key),
            title=self._title(key),
            parent=self.link(ViewKey("queue", key.queue)) if key.kind == "group" else "",
            tiles=tiles(view, self._summary.unarchived_of(view)),
            figures=figures,
            numbers=drawn.numbers(figures),
            bars=self._bars(view),
            changes=changes.all_changes(view),
            queues=[self._small(one) for one in self._summary.queues] if self._shows_queues(key) else (),
            unknown=unknown_ends(self._summary.unarchived_of(view)),
        )

    def link(self, key: ViewKey) -> str:
        """Return the fragment of a view; empty if there is none."""
        return fragment(key) if key in self._known else ""

    def _shows_queues(self, key: ViewKey) -> bool:
        return key == ALL and self._summary.queue is None

    def _title(self, key: ViewKey) -> str:
        return key.name or key.queue or self._summary.queue or "All queues"

    def _small(self, view: View) -> QueuePlot:
        name = view.key.queue
        of = view.totals
        words = f"{formatting.count(of['sent'])} sent, {formatting.count(changes.completed(of))} completed"
        return QueuePlot(name, self.link(view.key), words, Figures(self._summary, view).small())

    def _bars(self, view: View) -> list[Bars]:
        key = view.key
        match key.kind:
            case "all":
                return [self._reasons(self._summary.reasons), self._groups(self._summary.groups)]
            case "queue":
                own = [row for row in self._summary.reasons if row["queue"] == key.queue]
                groups = [row for row in self._summary.groups if row["queue"] == key.queue]
                return [self._reasons(own), self._groups(groups, of_queue=True)]
            case "reason":
                return [self._queues_of(key.name)]
            case _:
                return []

    def _reasons(self, counted: Iterable[Measures]) -> Bars:
        counts = _summed(counted, "reason")
        rows = _bars_of(counts, lambda name: self.link(ViewKey("reason", None, name)))
        return Bars("Dead-letter reasons", "Reason", "messages", rows, "No message was dead-lettered.")

    def _queues_of(self, reason: str | None) -> Bars:
        counts = _summed((row for row in self._summary.reasons if row["reason"] == reason), "queue")
        rows = _bars_of(counts, lambda name: self.link(ViewKey("queue", name)))
        return Bars("Queues with this reason", "Queue", "messages", rows, "No message was dead-lettered.")

    def _groups(self, groups: Sequence[Measures], *, of_queue: bool = False) -> Bars:
        slowest = max((row["end_to_end_p95"] for row in groups), default=0)
        rows = [
            Bar(
                row["group_id"],
                self.link(ViewKey("group", row["queue"], row["group_id"])),
                max(0, row["end_to_end_p95"]) / slowest if slowest > 0 else 0,
                formatting.duration(row["end_to_end_p95"]),
                ("" if of_queue else f"{row['queue']}, ") + formatting.counted(row["messages"], "message"),
            )
            for row in groups
        ]
        none = "No completed message belongs to a group."
        if of_queue and self._summary.groups:
            none = "None of the slowest groups of all queues belongs to this queue."
        title = "Slowest groups of all queues that belong to this one" if of_queue else "Slowest groups"
        return Bars(title, "Group", "within which 95 % of a group were completed, end to end", rows, none)


def unknown_ends(unarchived: int) -> str:
    """Return the sentence about messages that left no row in the archive; empty without any."""
    if not unarchived:
        return ""
    left = formatting.counted(unarchived, "message")
    return (
        f"{left} left without a row in the archive, because their queue keeps none: how and when they ended is unknown. "
        "They count as sent, but are in no time, plot or table."
    )


def tiles(view: View, unarchived: int) -> list[Tile]:
    """Return the headline numbers of a view: of the dead-lettered messages of a reason, the completed ones of a group.

    Of `unarchived` messages it is known that they were sent and ended, and nothing else.
    """
    now, old = view.totals, view.before
    match view.key.kind:
        case "reason":
            return [_count_tile("Dead-lettered", now["dead_lettered"], old["dead_lettered"] if old else None)]
        case "group":
            done = _count_tile("Completed", changes.completed(now), changes.completed(old) if old else None)
            return [done, _time_tile(now, old), _again_tile(now, old)]
        case _:
            return [
                _count_tile("Sent", now["sent"] + unarchived, old["sent"] if old and not unarchived else None),
                _part_tile("Completed", changes.completed, now, old, unarchived),
                _part_tile("Dead-lettered", lambda of: of["dead_lettered"], now, old, unarchived),
                _time_tile(now, old),
                _again_tile(now, old),
                _loss_tile(now, old),
            ]


def _time_tile(now: Measures, old: Measures | None) -> Tile:
    half, nearly = now["end_to_end_p50"], now["end_to_end_p99"]
    detail = "none was completed" if nearly is None else f"half; 99 % in {formatting.duration(nearly)}"
    change = changes.time_change(half, old["end_to_end_p50"]) if old else ""
    return Tile("End to end", formatting.duration(half), detail, change)


def _again_tile(now: Measures, old: Measures | None) -> Tile:
    share = now["redelivery_share"]
    change = changes.ratio_change(share, old["redelivery_share"], formatting.share) if old else ""
    return Tile("Delivered again", formatting.share(share), formatting.counted(now["redelivered"], "message"), change)


def _loss_tile(now: Measures, old: Measures | None) -> Tile:
    change = f"{_losses(old)} before" if old else ""
    return Tile("Lock losses", _losses(now), "locks that ran out", change)


def _losses(measures: Measures) -> str:
    return formatting.between(measures["lock_losses_at_least"], measures["lock_losses_at_most"])


def _count_tile(label: str, now: int, old: int | None) -> Tile:
    change = "" if old is None else changes.count_change(now, old)
    return Tile(label, formatting.count(now), formatting.noun(now, "message"), change)


def _part_tile(
    label: str, count: Callable[[Measures], int], now: Measures, old: Measures | None, unarchived: int
) -> Tile:
    """Return a count as a share of the messages that ended: more may end in a period than were sent in it."""
    detail = f"{formatting.count(count(now))} of {formatting.count(changes.ended(now))} that ended"
    if unarchived:
        all_ended = changes.ended(now) + unarchived
        bounds = count(now) / all_ended, (count(now) + unarchived) / all_ended
        unknown = formatting.counted(unarchived, "message")
        return Tile(label, formatting.share_between(*bounds), f"{detail}; of {unknown} unknown", "")
    part = changes.part_of_ended(now, count(now))
    change = changes.ratio_change(part, changes.part_of_ended(old, count(old)), formatting.share) if old else ""
    return Tile(label, formatting.share(part), detail, change)


def _summed(rows: Iterable[Measures], name: str) -> dict[str | None, int]:
    """Return the messages of each name, the most frequent first, and those without a name last."""
    sums: dict[str | None, int] = {}
    for row in rows:
        sums[row[name]] = sums.get(row[name], 0) + row["messages"]
    return dict(sorted(sums.items(), key=lambda item: (item[0] is None, -item[1], item[0] or "")))


def _bars_of(counts: Mapping[str | None, int], link: Callable[[str | None], str]) -> list[Bar]:
    most = max(counts.values(), default=1)
    return [Bar(name, link(name), count / most, formatting.count(count)) for name, count in counts.items()]
