"""Log lines: one JSON object each, or text for a terminal. They contain no bodies and no tokens."""

import logging
import sys
from typing import Literal

import structlog


def configure(log_format: Literal["text", "json"], level: str) -> None:
    """Write all log lines, also those of libraries, to standard error in one format."""
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        # A line below the level costs one empty call.
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
    # It logs its plugins at every start.
    logging.getLogger("alembic.runtime.plugins").setLevel(logging.ERROR)


def _final_processors(log_format: Literal["text", "json"]) -> list[structlog.typing.Processor]:
    without_meta = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    if log_format == "text":
        # The default renderer shows the variables of every frame, including bodies and tokens.
        plain = structlog.dev.plain_traceback
        return [without_meta, structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=plain)]
    return [
        without_meta,
        structlog.processors.format_exc_info,
        structlog.processors.EventRenamer("message"),
        structlog.processors.JSONRenderer(),
    ]
