"""The page of a report: one HTML file that loads nothing, with a light, a dark and a print style.

It has a view of everything and one for each of the largest queues, the most frequent reasons and the slowest groups. The
fragment of its URL selects the view, by the style sheet alone.
"""

from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined

from peeklock_pipeline.page import changes, formatting, links
from peeklock_pipeline.page.sections import sections, unknown_ends
from peeklock_pipeline.page.summary import Summary


def render(summary: Summary) -> str:
    """Return the page. Clients choose the names of queues, groups and reasons, so these are escaped."""
    return _template().get_template("report.html").render(report=summary, sections=sections(summary))


@cache
def _template() -> Environment:
    environment = Environment(
        loader=PackageLoader("peeklock_pipeline", "page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "count": formatting.count,
        "counted": formatting.counted,
        "decimal": formatting.decimal,
        "share": formatting.share,
        "duration": formatting.duration,
        "period_length": formatting.length,
        "moment": formatting.moment,
        "shortened": links.shortened,
    }
    environment.globals |= {
        "between": formatting.between,
        "completed": changes.completed,
        "unknown_ends": unknown_ends,
    }
    return environment
