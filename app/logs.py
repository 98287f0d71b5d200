"""Log lines: one JSON object each for machines, or text for a terminal; never a body, never a token."""

import logging
import sys
from typing import Literal

import structlog


def configure(log_format: Literal["text", "json"], level: str) -> None:
    """Send everything that is logged, by libraries too, to standard error in one format."""
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        # Below the level a line costs one call that does nothing.
        wrapper_class=structlog.make_filtering_bound_logger(level),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=_final_processors(log_format))
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # What it can do is no news, and it says so at every start.
    logging.getLogger("alembic.runtime.plugins").setLevel(logging.ERROR)


def _final_processors(log_format: Literal["text", "json"]) -> list[structlog.typing.Processor]:
    without_meta = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    if log_format == "text":
        # The usual renderer shows the variables of every frame, and among them bodies and tokens.
        plain = structlog.dev.plain_traceback
        return [without_meta, structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=plain)]
    return [
        without_meta,
        structlog.processors.format_exc_info,
        structlog.processors.EventRenamer("message"),
        structlog.processors.JSONRenderer(),
    ]
