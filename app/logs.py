"""Log lines: one JSON object each, or text for a terminal. They contain no bodies and no tokens."""

import logging
import sys
from typing import Literal, TypeAlias

import structlog

LogFormat: TypeAlias = Literal["text", "json"]


def configure(log_format: LogFormat | None, level: str) -> None:
    """Write all log lines, also those of libraries, to standard error in one format: None is text on a terminal, else JSON.

    As text, which people read, libraries log nothing below a warning unless the level is `debug`.
    """
    if log_format is None:
        log_format = "text" if sys.stderr.isatty() else "json"
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
    for library in ("alembic", "uvicorn"):
        logging.getLogger(library).setLevel(
            logging.WARNING if log_format == "text" and level != "debug" else logging.NOTSET
        )


def _final_processors(log_format: LogFormat) -> list[structlog.typing.Processor]:
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
