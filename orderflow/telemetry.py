"""Logs: what an order tells (safe events), and what the libraries say, as lines on stderr in one form."""

import logging
import sys
from typing import Literal

import structlog
from structlog.dev import ConsoleRenderer, plain_traceback
from structlog.processors import JSONRenderer, TimeStamper, format_exc_info
from structlog.typing import Processor
from temporalio import activity, workflow

from orderflow.domain.audit import SafeEvent

_OF_DELIVERIES = ("caller", "cause", "duplicate", "times")
_SHARED: tuple[Processor, ...] = (
    structlog.stdlib.ExtraAdder(allow=[*_OF_DELIVERIES, "order", *SafeEvent.model_fields]),
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    TimeStamper(fmt="iso", utc=True),
)


def configure_logging(log_format: Literal["auto", "console", "json"], level: int = logging.INFO) -> None:
    """Send every log line of this process, ours and the libraries', to stderr in one format; stdout is for answers.

    `auto` is `console` on a terminal and `json` elsewhere.
    """
    console = log_format == "console" or (log_format == "auto" and sys.stderr.isatty())
    # plain tracebacks: the rich ones show local variables, and those hold personal data
    pretty = ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=plain_traceback)
    last = [pretty] if console else [format_exc_info, JSONRenderer()]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=_SHARED,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    logging.basicConfig(handlers=[handler], level=level, force=True)
    workflow.logger.workflow_info_on_message = activity.logger.activity_info_on_message = False
    structlog.configure(
        processors=[*_SHARED, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
