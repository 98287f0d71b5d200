"""The page of a report: one HTML file that loads nothing, with a light, a dark and a print style."""

from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined

from peeklock_pipeline.page import figures, formatting
from peeklock_pipeline.page.summary import Summary


def render(summary: Summary) -> str:
    """Return the page. Clients choose the names of queues, groups and reasons, so these are escaped."""
    drawn = figures.all_figures(summary) if summary.messages else []
    return _template().get_template("report.html").render(report=summary, figures=drawn)


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
        "decimal": formatting.decimal,
        "share": formatting.share,
        "duration": formatting.duration,
        "moment": formatting.moment,
    }
    environment.globals |= {"between": formatting.between}
    return environment
